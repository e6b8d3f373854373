"""Find libdcmi.so, and check whether the agent may load it."""

import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

LIBRARY = "libdcmi.so"
#: Folders of Ascend's driver packages, for the library and what it needs itself.
FOLDERS = (
    Path("/usr/local/dcmi"),
    Path("/usr/local/Ascend/driver/lib64/driver"),
    Path("/usr/local/Ascend/driver/lib64/common"),
    Path("/usr/local/Ascend/driver/lib64"),
)
_SEARCH_PATH = "LD_LIBRARY_PATH"
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def search_folders(
    environment: Mapping[str, str], known_folders: Iterable[Path] = FOLDERS
) -> tuple[Path, ...]:
    """Return the folders in which to search for libdcmi.so, each once.

    The folders in LD_LIBRARY_PATH come first, then `known_folders`.
    """
    path_entries = environment.get(_SEARCH_PATH, "").split(":")
    return tuple(
        dict.fromkeys((*(Path(name) for name in path_entries if name), *known_folders))
    )


def locate(
    environment: Mapping[str, str], known_folders: Iterable[Path] = FOLDERS
) -> Path | None:
    """Return the path of the first libdcmi.so in `search_folders`, or None."""
    places = (folder / LIBRARY for folder in search_folders(environment, known_folders))
    return next((place for place in places if place.is_file()), None)


def make_environment(
    environment: Mapping[str, str], known_folders: Iterable[Path] = FOLDERS
) -> dict[str, str]:
    """Return `environment` with all `search_folders` in LD_LIBRARY_PATH.

    From these folders, the dynamic loader loads the libraries that libdcmi needs.
    """
    path = ":".join(
        str(folder) for folder in search_folders(environment, known_folders)
    )
    return {**environment, _SEARCH_PATH: path}


def find_distrust_reason(library: Path) -> str:
    """Return why the agent must not load this library; "" if the agent may load it.

    A user who can replace the library can make the agent run any code. So root or the
    agent's user must own the library and its folder. Only the owner may have permission
    to write the library.
    """
    try:
        real = library.resolve(strict=True)
        path_stats = [(path, path.stat()) for path in (real, real.parent)]
    except OSError as error:
        return f"{library}: {error.strerror}"
    for path, stats in path_stats:
        if stats.st_uid not in {0, os.geteuid()}:
            return f"{path}: expected an owner root, found uid {stats.st_uid}"
    stats = path_stats[0][1]
    if not stat.S_ISREG(stats.st_mode):
        return f"{real}: expected a file"
    if stats.st_mode & _OTHERS_WRITE:
        mode = stat.S_IMODE(stats.st_mode)
        return f"{real}: expected a file that its owner alone may write, found {mode:o}"
    return ""
