"""Images, made here because none can be pulled: the pause image and a Python base.

They are kept as archives; making them needs the network (Debian's packages) and is
done once, loading them into a cluster's containerd does not.
"""

import hashlib
import shutil
from pathlib import Path

from tests.e2e import programs
from tests.e2e.commands import fetch, run
from tests.e2e.configurations import PAUSE_IMAGE
from tests.e2e.places import CONTAINERD_SOCKET, Places
from tests.e2e.stages import stage

_SUITE = "bookworm"
_PACKAGES = "python3,python3-venv,ca-certificates"
#: Half of all files; each costs two milliseconds to write and to remove again.
_NEEDLESS = (
    "usr/share/bash-completion",
    "usr/share/doc",
    "usr/share/info",
    "usr/share/locale",
    "usr/share/man",
    "usr/share/perl5",
    "usr/share/zoneinfo",
    "var/cache/apt",
    "var/lib/apt/lists",
    "var/lib/dpkg/info",
)
_RECIPE = hashlib.sha256(repr((_SUITE, _PACKAGES, _NEEDLESS)).encode()).hexdigest()[:8]
BASE_IMAGE = f"localhost/e2e-base:{_RECIPE}"


def make(places: Places) -> None:
    """Make sure that the archives of both images are there."""
    places.images.mkdir(parents=True, exist_ok=True)
    if not _is_made(places, PAUSE_IMAGE, pause_archive(places)):
        with stage("pause image"):
            _pause(places)
    if not _is_made(places, BASE_IMAGE, base_archive(places)):
        with stage(f"base image: debootstrap {_SUITE}"):
            _base(places)


def pause_archive(places: Places) -> Path:
    """The image of each pod's first process."""
    program = programs.pause(places).read_bytes()
    return places.images / f"pause-{hashlib.sha256(program).hexdigest()[:8]}.tar"


def base_archive(places: Places) -> Path:
    """Debian with Python: what test pods run, and what our own image builds on."""
    return places.images / f"base-{_RECIPE}.tar"


def load(archive: Path) -> None:
    """Import an image into the cluster's containerd."""
    ctr("images", "import", "--no-unpack", archive)


def ctr(*arguments: str | Path) -> str:
    """Ask the cluster's containerd, where the kubelet's containers are."""
    return run("ctr", "-a", CONTAINERD_SOCKET, "-n", "k8s.io", *arguments)


def build_environment(places: Places) -> dict[str, str]:
    """What buildah has to be told: a store of our own, and no namespaces."""
    settings = places.images / "storage.conf"
    settings.write_text(
        "[storage]\n"
        'driver = "overlay"\n'
        f'graphroot = "{places.images / "store"}"\n'
        f'runroot = "{places.images / "locks"}"\n',
        encoding="utf-8",
    )
    return {"CONTAINERS_STORAGE_CONF": str(settings), "BUILDAH_ISOLATION": "chroot"}


def buildah(places: Places, *arguments: str | Path) -> str:
    """Run buildah on that store."""
    return run("buildah", *arguments, env=build_environment(places))


def commit(places: Places, container: str, image: str, archive: Path) -> None:
    """Make an image of a working container, keep it as an archive too."""
    buildah(places, "commit", "--rm", container, image)
    draft = archive.with_suffix(".new")
    draft.unlink(missing_ok=True)
    buildah(places, "push", image, f"docker-archive:{draft}:{image}")
    draft.replace(archive)


def _is_made(places: Places, image: str, archive: Path) -> bool:
    # As an archive for containerd, and in the store for what builds on it.
    stored = buildah(places, "images", "--format", "{{.Name}}:{{.Tag}}").splitlines()
    return archive.exists() and image in stored


def _pause(places: Places) -> None:
    container = buildah(places, "from", "scratch").strip()
    buildah(places, "copy", container, programs.pause(places), "/pause")
    buildah(places, "config", "--entrypoint", '["/pause"]', container)
    commit(places, container, PAUSE_IMAGE, pause_archive(places))


def _base(places: Places) -> None:
    root = places.images / "rootfs"
    shutil.rmtree(root, ignore_errors=True)
    fetch("debootstrap", "--variant=minbase", f"--include={_PACKAGES}", _SUITE, root)
    for needless in _NEEDLESS:
        shutil.rmtree(root / needless, ignore_errors=True)
    container = buildah(places, "from", "scratch").strip()
    buildah(places, "copy", container, root, "/")
    commit(places, container, BASE_IMAGE, base_archive(places))
    shutil.rmtree(root)
