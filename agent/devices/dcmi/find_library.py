"""Where the driver's library is, and whether it may be loaded."""

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

LIBRARY = "libdcmi.so"
#: Where Ascend's driver packages put it and what it needs.
FOLDERS = tuple(
    map(
        Path,
        (
            "/usr/local/dcmi",
            "/usr/local/Ascend/driver/lib64/driver",
            "/usr/local/Ascend/driver/lib64/common",
            "/usr/local/Ascend/driver/lib64",
        ),
    )
)
_SEARCH_PATH = "LD_LIBRARY_PATH"
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def folders(
    environment: Mapping[str, str], known: Iterable[Path] = FOLDERS
) -> tuple[Path, ...]:
    """The folders to look in: those of LD_LIBRARY_PATH, then those known, each once."""
    named = environment.get(_SEARCH_PATH, "").split(":")
    return tuple(dict.fromkeys((*(Path(name) for name in named if name), *known)))


def found(
    environment: Mapping[str, str], known: Iterable[Path] = FOLDERS
) -> Path | None:
    """The first libdcmi.so; None where there is none."""
    places = (folder / LIBRARY for folder in folders(environment, known))
    return next((place for place in places if place.is_file()), None)


def with_libraries(
    environment: Mapping[str, str], known: Iterable[Path] = FOLDERS
) -> dict[str, str]:
    """An environment in which libdcmi finds what it needs itself."""
    path = ":".join(str(folder) for folder in folders(environment, known))
    return {**environment, _SEARCH_PATH: path}


def distrust(library: Path) -> str:
    """Why a library must not be loaded by whoever we are; "" when it may.

    What somebody else can write, somebody else can have us run.
    """
    try:
        real = library.resolve(strict=True)
        facts = list(_facts(real))
    except OSError as error:
        return f"{library}: {error.strerror}"
    for path, fact in facts:
        if fact.st_uid not in {0, os.geteuid()}:
            return f"{path}: expected an owner root, found uid {fact.st_uid}"
    fact = facts[0][1]
    if not stat.S_ISREG(fact.st_mode):
        return f"{real}: expected a file"
    if fact.st_mode & _OTHERS_WRITE:
        mode = stat.S_IMODE(fact.st_mode)
        return f"{real}: expected a file that its owner alone may write, found {mode:o}"
    return ""


def _facts(real: Path) -> Iterator[tuple[Path, os.stat_result]]:
    yield real, real.stat()
    yield real.parent, real.parent.stat()
