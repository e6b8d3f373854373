"""A cluster for somebody to try: what to type, and where."""

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from sandbox.inspect import pods
from sandbox.inspect.terminal import Terminal
from sandbox.world import Machine, World

_POD_FILE = "pod.json"
_PROGRAM = "ascend-sandbox"


async def invite(world: World, terminal: Terminal) -> None:
    """Say how to get in, and five things worth trying."""
    node, *others = world.nodes.values()
    machines = [each.machine for each in (node, *others)]
    pod_file = world.premises.root / _POD_FILE
    row = node.machine.row
    count = row.counts[min(1, len(row.counts) - 1)]
    manifest = pods.manifest("mine", count, resource=row.resource)
    pod_file.write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    terminal.title("A cluster with simulated chips")
    for line in _described(machines):
        terminal.say(line)
    terminal.say()
    terminal.say(f"export KUBECONFIG={world.premises.kubeconfig}")
    for command in commands(str(pod_file), node.name):
        terminal.say(f"  {command}")
    terminal.say()
    terminal.say(f"Break a chip: edit {node.driver_file}")
    terminal.say(f"Break more:   {_ourselves()} faults lists what there is")
    terminal.say(f"Ask why:      curl {world.extender_url}/v1/explain/default/mine")
    terminal.say(f"Logs:         {world.premises.logs}")
    terminal.say()
    terminal.say("Ctrl-C ends it, and leaves nothing behind.")


def _ourselves() -> str:
    """Return how this program is called from another terminal."""
    if shutil.which(_PROGRAM):
        return _PROGRAM
    installed = Path(sys.executable).with_name(_PROGRAM)
    return str(installed) if installed.exists() else f"{sys.executable} -m sandbox"


def commands(pod_file: str, node: str) -> tuple[str, ...]:
    """Return five commands worth trying, in this order."""
    return (
        f"kubectl apply -f {pod_file}",
        "kubectl get pods -o wide",
        "kubectl describe pod mine",
        f"kubectl describe cm mindx-dl-deviceinfo-{node} -n kube-system",
        "kubectl delete pod mine",
    )


def _described(machines: Sequence[Machine]) -> list[str]:
    """Return a line for each node: what kind of server it is."""
    margin = max(len(machine.name) for machine in machines)
    return [
        f"{machine.name:<{margin}}  {machine.row.name}: "
        + " and ".join(f"{n} {resource}" for resource, n in machine.offers.items())
        for machine in machines
    ]
