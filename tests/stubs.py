"""Are the committed gRPC stubs the ones that proto/ gives today?

`--write` generates them into kubelet_api/; `--check` generates into a scratch
folder and compares. Both files are named api.proto, so each is compiled under
a virtual path of its own; the names on the wire stay as they are.
"""

import argparse
import filecmp
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONTRACTS = ("deviceplugin/v1beta1", "podresources/v1")
SUFFIXES = ("_pb2.py", "_pb2.pyi", "_pb2_grpc.py", "_pb2_grpc.pyi")


def generate(out: Path) -> None:
    """Write the stubs of every contract below `out`/kubelet_api."""
    for contract in CONTRACTS:
        source = f"proto/{contract}"
        plugin = Path(sys.executable).parent / "protoc-gen-mypy_grpc"
        (out / "kubelet_api" / contract).mkdir(parents=True, exist_ok=True)
        outputs = (f"--{kind}_out={out}" for kind in ("python", "pyi", "grpc_python"))
        command = [
            *(sys.executable, "-m", "grpc_tools.protoc"),
            f"-Ikubelet_api/{contract}={source}",
            *outputs,
            f"--mypy_grpc_out=quiet:{out}",
            f"--plugin=protoc-gen-mypy_grpc={plugin}",
            f"{source}/api.proto",
        ]
        subprocess.run(command, cwd=ROOT, check=True)  # noqa: S603  # own arguments only


def stale(fresh: Path) -> list[str]:
    """Return the committed stubs that differ from those below `fresh`."""
    names = (
        f"kubelet_api/{contract}/api{suffix}"
        for contract in CONTRACTS
        for suffix in SUFFIXES
    )
    return [
        name
        for name in names
        if not (ROOT / name).exists()
        or not filecmp.cmp(ROOT / name, fresh / name, shallow=False)
    ]


def main() -> int:
    """Write or check, by the flag given."""
    parser = argparse.ArgumentParser(description=__doc__)
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--write", action="store_true")
    mode.add_argument("--check", action="store_true")
    if parser.parse_args().write:
        generate(ROOT)
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        generate(Path(scratch))
        different = stale(Path(scratch))
    for name in different:
        sys.stderr.write(f"{name} differs from proto/: run make stubs\n")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
