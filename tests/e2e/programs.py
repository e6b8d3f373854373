"""Programs of Kubernetes, Volcano and controllers of jobs, built once.

Go modules pin them.

KUBERNETES names another release of Kubernetes, such as v1.37.2. Its programs are built
from a module that is made for it; the checksum database vouches for what is fetched.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tests.e2e import requirements
from tests.e2e.commands import fetch, run
from tests.e2e.places import PINNED, REPOSITORY, Places, kubernetes, minor
from tests.e2e.stages import CannotError, stage

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
    #: the release of Kubernetes, if another than the module pins
    other: str = ""

    def of(self, *programs: str) -> "_Module":
        """The module with some of its programs."""
        packages = {name: self.packages[name] for name in programs}
        return replace(self, packages=packages)

    def digest(self) -> str:
        """Say what is built, so that another source is built anew."""
        found = hashlib.sha256(repr(self.marks).encode())
        for path in sorted(self.folder.rglob("*")):
            if path.is_file():
                found.update(path.read_bytes())
        return found.hexdigest()


_E2E = REPOSITORY / "tests" / "e2e"
#: What a control plane without a node consists of, and what gives it its rights.
_BARE = ("etcd", "kube-apiserver", "kube-scheduler", "kubectl")
#: No module of this name can be had, and nothing needs it.
_NO_MODULE = "k8s.io/sample-cli-plugin"


def _control_plane() -> _Module:
    release = kubernetes()
    version = "k8s.io/component-base/version"
    return _Module(
        folder=_E2E / "controlplane",
        packages={
            **{name: f"./{name}" for name in ("etcd", "pause")},
            **{name: f"k8s.io/kubernetes/cmd/{name}" for name in _KUBERNETES},
        },
        # Without them the components call themselves v0.0.0-master and kubectl
        # complains.
        marks={
            f"{version}.gitVersion": release,
            f"{version}.gitMajor": "1",
            f"{version}.gitMinor": str(minor()),
            "k8s.io/client-go/pkg/version.gitVersion": release,
        },
        other="" if release == PINNED else release,
    )


_VOLCANO = _Module(
    folder=_E2E / "volcano",
    packages={VOLCANO: "volcano.sh/volcano/cmd/scheduler"},
    marks={},
)

_CONTROLLERS = _Module(
    folder=_E2E / "controllers",
    packages={"lws": "sigs.k8s.io/lws/cmd", "jobset": "sigs.k8s.io/jobset"},
    marks={},
)
_OPERATOR = "github.com/kubeflow/training-operator"
#: Each has a module of its own: they need other versions of `k8s.io`.
_OPERATORS = (
    _Module(
        folder=_E2E / "kuberay",
        packages={"kuberay": "github.com/ray-project/kuberay/ray-operator"},
        marks={},
    ),
    _Module(
        folder=_E2E / "trainingoperator",
        packages={"training-operator": f"{_OPERATOR}/cmd/training-operator.v1"},
        marks={},
    ),
)
#: {controller: its module, and what people install of that}
_INSTALLED = {
    "lws": ("sigs.k8s.io/lws", "config/default"),
    "jobset": ("sigs.k8s.io/jobset", "config/default"),
    "kuberay": ("github.com/ray-project/kuberay/ray-operator", "config/default"),
    "training-operator": (_OPERATOR, "manifests/overlays/standalone"),
}


def build(places: Places) -> None:
    """Make sure that all programs are there.

    KUBEBUILDER_ASSETS names a folder that has Kubernetes' ready (`pause` may be
    missing there, it is ours).

    Raises:
        CannotError: One is not in the given folder, or there is no Go.
    """
    if "KUBEBUILDER_ASSETS" in os.environ:
        _check_given(places.programs, ("etcd", *_KUBERNETES))
        _build(_control_plane().of("pause"), pause(places).parent)
    else:
        _build(_control_plane(), places.programs)
    build_volcano(places)


def build_bare(places: Places, *more: str) -> None:
    """Make sure that all programs of a control plane without a node are there.

    Args:
        places: Where to.
        more: Programs of Kubernetes that are needed besides.

    Raises:
        CannotError: One is not in the given folder, or there is no Go.
    """
    needed = (*_BARE, *more)
    if "KUBEBUILDER_ASSETS" in os.environ:
        _check_given(places.programs, needed)
    elif not all((places.programs / name).exists() for name in _KUBERNETES):
        _build(_control_plane().of(*needed), places.programs)


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


def build_controllers(places: Places) -> None:
    """Make sure that the controllers of sets are there, and what installs them.

    Raises:
        CannotError: There is no Go.
    """
    build_bare(places, "kube-controller-manager")
    _build_installed(places, _CONTROLLERS)


def build_operators(places: Places) -> None:
    """Make sure that KubeRay and the training operator are there, as above.

    Raises:
        CannotError: There is no Go.
    """
    build_bare(places, "kube-controller-manager")
    for module in _OPERATORS:
        _build_installed(places, module)


def _build_installed(places: Places, module: _Module) -> None:
    manifests = {name: installation(places, name) for name in module.packages}
    is_new = _build(module, places.cache / module.folder.name)
    if is_new or not all(path.exists() for path in manifests.values()):
        for name, path in manifests.items():
            its_module, overlay = _INSTALLED[name]
            which = ("go", "list", "-m", "-f", "{{.Dir}}", its_module)
            source = Path(run(*which, cwd=module.folder).strip())
            kubectl = places.programs / "kubectl"
            rendered = run(kubectl, "kustomize", source / overlay)
            path.write_text(rendered, encoding="utf-8")


def controller(places: Places, name: str) -> Path:
    """The program of a controller of jobs."""
    modules = (_CONTROLLERS, *_OPERATORS)
    (folder,) = (each.folder.name for each in modules if name in each.packages)
    return places.cache / folder / name


def installation(places: Places, name: str) -> Path:
    """The file of all that is applied to install this controller."""
    program = controller(places, name)
    return program.with_name(f"{name}.yaml")


def pause(places: Places) -> Path:
    """The program that the pause image consists of."""
    is_given = "KUBEBUILDER_ASSETS" in os.environ
    return (places.cache / "bin" if is_given else places.programs) / "pause"


def volcano(places: Places) -> Path:
    """Volcano's scheduler."""
    return places.cache / "volcano" / VOLCANO


def volcano_crds(places: Places) -> Path:
    """The folder of Volcano's CRDs."""
    return places.cache / "volcano" / "crds"


def _check_given(folder: Path, names: Collection[str]) -> None:
    absent = [name for name in names if not os.access(folder / name, os.X_OK)]
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
    source = _of_other_release(module, folder.parent) if module.other else module.folder
    # What the other release needs besides is not in its go.mod yet.
    needs = " -mod=mod" if module.other else ""
    # One at a time, so that each has its line: together they take minutes.
    for name, package in module.packages.items():
        with stage(f"building {name}"):
            # Fetches modules, too.
            fetch(
                *("go", "build", "-trimpath", "-ldflags", flags, "-o", folder / name),
                package,
                cwd=source,
                env={"CGO_ENABLED": "0", "GOFLAGS": f"-buildvcs=false{needs}"},
            )
    stamp.write_text(wanted, encoding="ascii")
    return True


def _of_other_release(module: _Module, cache: Path) -> Path:
    """Make a Go module like ours for another release of Kubernetes; its folder.

    Kubernetes replaces its staging modules by relative paths, which a module that
    depends on it must repeat as versions.
    """
    folder = cache / f"controlplane-{module.other}"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(module.folder, folder)
    kubernetes_module = f"k8s.io/kubernetes@{module.other}"
    found = fetch("go", "mod", "download", "-json", kubernetes_module, cwd=folder)
    theirs = Path(json.loads(found)["GoMod"]).read_text(encoding="utf-8")
    staging = {*re.findall(r"=> \./staging/src/(\S+)", theirs)} - {_NO_MODULE}
    version = "v0" + module.other.removeprefix("v1")
    lines = [
        "module ascend-affinity/controlplane",
        *re.findall(r"(?m)^go .*$", theirs),
        f"require k8s.io/kubernetes {module.other}",
        *(f"replace {name} => {name} {version}" for name in sorted(staging)),
    ]
    (folder / "go.mod").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder
