"""Programs of Kubernetes and Volcano, built once from Go modules that pin them."""

import hashlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.e2e import requirements
from tests.e2e.commands import fetch, run
from tests.e2e.places import REPOSITORY, Places
from tests.e2e.stages import CannotError, stage

VERSION = "v1.36.3"
VOLCANO = "vc-scheduler"
_KUBERNETES = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kubectl",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Module:
    """A Go module of ours, and what is built from it."""

    folder: Path
    #: {program: package}
    packages: Mapping[str, str]
    #: {variable: what the linker writes into it}
    marks: Mapping[str, str]

    def of(self, *programs: str) -> "_Module":
        """The module with some of its programs."""
        packages = {name: self.packages[name] for name in programs}
        return _Module(folder=self.folder, packages=packages, marks=self.marks)

    def digest(self) -> str:
        """Say what is built, so that another source is built anew."""
        found = hashlib.sha256(repr(self.marks).encode())
        for path in sorted(self.folder.rglob("*")):
            if path.is_file():
                found.update(path.read_bytes())
        return found.hexdigest()


_E2E = REPOSITORY / "tests" / "e2e"
_CONTROL_PLANE = _Module(
    folder=_E2E / "controlplane",
    packages={
        **{name: f"./{name}" for name in ("etcd", "pause")},
        **{name: f"k8s.io/kubernetes/cmd/{name}" for name in _KUBERNETES},
    },
    # Without them the components call themselves v0.0.0-master and kubectl complains.
    marks={
        "k8s.io/component-base/version.gitVersion": VERSION,
        "k8s.io/component-base/version.gitMajor": "1",
        "k8s.io/component-base/version.gitMinor": "36",
        "k8s.io/client-go/pkg/version.gitVersion": VERSION,
    },
)
_VOLCANO = _Module(
    folder=_E2E / "volcano",
    packages={VOLCANO: "volcano.sh/volcano/cmd/scheduler"},
    marks={},
)


def build(places: Places) -> None:
    """Make sure that all programs are there.

    KUBEBUILDER_ASSETS names a folder that has Kubernetes' ready (`pause` may be
    missing there, it is ours).

    Raises:
        CannotError: One is not in the given folder, or there is no Go.
    """
    if "KUBEBUILDER_ASSETS" in os.environ:
        _check_given(places.programs)
        _build(_CONTROL_PLANE.of("pause"), places.cache / "bin")
    else:
        _build(_CONTROL_PLANE, places.programs)
    build_volcano(places)


def build_volcano(places: Places) -> None:
    """Make sure that Volcano's scheduler and its CRDs are there.

    Raises:
        CannotError: There is no Go.
    """
    folder = volcano_crds(places)
    if _build(_VOLCANO, volcano(places).parent) or not folder.exists():
        which = ("go", "list", "-m", "-f", "{{.Dir}}", "volcano.sh/volcano")
        source = Path(run(*which, cwd=_VOLCANO.folder).strip())
        fresh = folder.with_name("crds.new")
        for each in (folder, fresh):
            shutil.rmtree(each, ignore_errors=True)
        fresh.mkdir()
        for path in sorted((source / "config/crd/volcano/bases").glob("*.yaml")):
            # Not a copy with its mode: nobody may write what lies in a module.
            (fresh / path.name).write_bytes(path.read_bytes())
        fresh.rename(folder)


def pause(places: Places) -> Path:
    """The program that the pause image consists of."""
    return places.cache / "bin" / "pause"


def volcano(places: Places) -> Path:
    """Volcano's scheduler."""
    return places.cache / "volcano" / VOLCANO


def volcano_crds(places: Places) -> Path:
    """The folder of Volcano's CRDs."""
    return places.cache / "volcano" / "crds"


def _check_given(folder: Path) -> None:
    absent = [
        name for name in ("etcd", *_KUBERNETES) if not os.access(folder / name, os.X_OK)
    ]
    if absent:
        raise CannotError(f"KUBEBUILDER_ASSETS={folder} has no {', '.join(absent)}")


def _build(module: _Module, folder: Path) -> bool:
    """Build what is not there as it should be; whether that was necessary."""
    stamp = folder / ".built"
    wanted = module.digest()
    complete = all((folder / name).exists() for name in module.packages)
    if complete and stamp.exists() and stamp.read_text(encoding="ascii") == wanted:
        return False
    requirements.check_go()
    folder.mkdir(parents=True, exist_ok=True)
    stamp.unlink(missing_ok=True)
    written = (f"-X {key}={value}" for key, value in module.marks.items())
    flags = " ".join(["-s -w", *written])
    # One at a time, so that each has its line: together they take minutes.
    for name, package in module.packages.items():
        with stage(f"building {name}"):
            # Fetches modules, too.
            fetch(
                *("go", "build", "-trimpath", "-ldflags", flags, "-o", folder / name),
                package,
                cwd=module.folder,
                env={"CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false"},
            )
    stamp.write_text(wanted, encoding="ascii")
    return True
