"""What kubectl shows, run for real where it is installed."""

import asyncio
import os
import shutil

from sandbox.apiclient import Object
from sandbox.inspect import observer
from sandbox.world import World

_DEADLINE_S = 20.0


class KubectlError(Exception):
    """kubectl failed; the text has its own words."""


async def described_config_map(world: World, node: str) -> str:
    """Return a node's ConfigMap as `kubectl describe cm` shows it.

    Raises:
        KubectlError: kubectl is there and fails.
    """
    path = observer.config_map_path(node)
    name = path.rpartition("/")[2]
    arguments = ("describe", "cm", name, "-n", "kube-system")
    command = f"$ kubectl {' '.join(arguments)}"
    program = shutil.which("kubectl")
    if program is None:
        told = described(await world.api.get(path))
        return f"{command}   (kubectl is not installed; this is its content)\n{told}"
    return f"{command}\n{await _run(world, program, *arguments)}"


def described(config_map: Object) -> str:
    """Return the content of a ConfigMap in the form of `kubectl describe`."""
    meta = config_map["metadata"]
    labels = [f"{key}={value}" for key, value in sorted(meta["labels"].items())]
    lines = [
        f"Name:         {meta['name']}",
        f"Namespace:    {meta['namespace']}",
        f"Labels:       {', '.join(labels)}",
        "",
        "Data",
        "====",
    ]
    for key, value in sorted(config_map["data"].items()):
        lines += [f"{key}:", "----", value, ""]
    return "\n".join(lines)


async def _run(world: World, program: str, *arguments: str) -> str:
    root = world.premises.root
    process = await asyncio.create_subprocess_exec(
        program,
        *("--kubeconfig", str(world.premises.kubeconfig)),
        # Its own default is below the person's home.
        *("--cache-dir", str(root / "kubectl-cache")),
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"PATH": os.environ.get("PATH", ""), "HOME": str(root)},
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(_DEADLINE_S):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise KubectlError(f"kubectl {' '.join(arguments)}: {err.decode().strip()}")
    return out.decode().rstrip() + "\n"
