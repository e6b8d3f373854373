"""The control plane's programs, built once from a pinned Go module."""

import hashlib
import os
from pathlib import Path

from tests.e2e import requirements
from tests.e2e.commands import fetch
from tests.e2e.places import REPOSITORY, Places
from tests.e2e.stages import CannotError, stage

_MODULE = REPOSITORY / "tests" / "e2e" / "controlplane"
VERSION = "v1.36.3"
#: Without them the components call themselves v0.0.0-master and kubectl complains.
_MARKS = {
    "k8s.io/component-base/version.gitVersion": VERSION,
    "k8s.io/component-base/version.gitMajor": "1",
    "k8s.io/component-base/version.gitMinor": "36",
    "k8s.io/client-go/pkg/version.gitVersion": VERSION,
}
_OURS = ("etcd", "pause")
_KUBERNETES = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kubectl",
)


def build(places: Places) -> None:
    """Make sure that all programs are there.

    KUBEBUILDER_ASSETS names a folder that has them ready (`pause` may be missing
    there, it is ours).

    Raises:
        CannotError: One is not in the given folder, or there is no Go.
    """
    if "KUBEBUILDER_ASSETS" in os.environ:
        _check_given(places.programs)
        _build(places.cache / "bin", ("pause",), ())
        return
    _build(places.programs, _OURS, _KUBERNETES)


def pause(places: Places) -> Path:
    """The program that the pause image consists of."""
    return places.cache / "bin" / "pause"


def _check_given(folder: Path) -> None:
    absent = [
        name for name in ("etcd", *_KUBERNETES) if not os.access(folder / name, os.X_OK)
    ]
    if absent:
        raise CannotError(f"KUBEBUILDER_ASSETS={folder} has no {', '.join(absent)}")


def _build(folder: Path, ours: tuple[str, ...], theirs: tuple[str, ...]) -> None:
    stamp = folder / ".built"
    wanted = _sources_hash()
    names = (*ours, *theirs)
    complete = all((folder / name).exists() for name in names)
    if complete and stamp.exists() and stamp.read_text(encoding="ascii") == wanted:
        return
    requirements.check_go()
    folder.mkdir(parents=True, exist_ok=True)
    flags = " ".join(["-s -w", *(f"-X {key}={value}" for key, value in _MARKS.items())])
    packages = [
        *(f"./{name}" for name in ours),
        *(f"k8s.io/kubernetes/cmd/{name}" for name in theirs),
    ]
    # One at a time, so that each has its line: together they take minutes.
    for name, package in zip(names, packages, strict=True):
        with stage(f"building {name}"):
            # Fetches modules, too.
            fetch(
                *("go", "build", "-trimpath", "-ldflags", flags, "-o", folder / name),
                package,
                cwd=_MODULE,
                env={"CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false"},
            )
    stamp.write_text(wanted, encoding="ascii")


def _sources_hash() -> str:
    found = hashlib.sha256(repr(_MARKS).encode())
    for path in sorted(_MODULE.rglob("*")):
        if path.is_file():
            found.update(path.read_bytes())
    return found.hexdigest()
