"""This checkout as another release: its version and its formats differ.

A checkout need not have a history, so the other release is made from this one. It
writes a journal that we cannot read, and cannot read ours, as after a change of
format; and what it publishes has a key that we do not know.
"""

import re
import shutil
import tomllib
from pathlib import Path

from tests.e2e import product
from tests.e2e.places import REPOSITORY, Places
from tests.e2e.stages import CannotError

_PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
OURS = str(_PROJECT["project"]["version"])
OTHER = "0.0.9"
#: Shape: {file: (what stands there once, what stands there in the other release)}.
DIFFERENCES = {
    "pyproject.toml": (r'(?m)^version = ".*"$', f'version = "{OTHER}"'),
    "agent/journal/file.py": (r"(?m)^_VERSION = \d+$", "_VERSION = 0"),
    "scheduler_core/wire/deviceinfo.py": (
        r'(?m)^( +)"version": _AFFINITY_VERSION,$',
        r'\1"version": _AFFINITY_VERSION, "another": ["Ascend910-0"],',
    ),
}


def build_other(places: Places) -> str:
    """Make sure that there is an image of the other release; returns its tag."""
    source = places.cache / "other-release"
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir(parents=True)
    for name in (*product.SOURCES, "LICENSE", "Makefile", "README.md"):
        _copy(REPOSITORY / name, source / name)
    differ(source)
    return product.build(places, source)


def differ(source: Path) -> None:
    """Make another release of the sources in a folder.

    Raises:
        CannotError: They are not as they were when this was written.
    """
    for name, (ours, theirs) in DIFFERENCES.items():
        path = source / name
        text, count = re.subn(ours, theirs, path.read_text(encoding="utf-8"))
        if count != 1:
            raise CannotError(f"{name}: expected {ours!r} once, found it {count} times")
        path.write_text(text, encoding="utf-8")


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        unneeded = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(source, target, ignore=unneeded)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
