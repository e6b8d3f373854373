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
    agent's user must own the library and its folder, and of a link its folder, too.
    Only the owner may have permission to write them. In a folder with the sticky bit,
    others may write, but replace no file.
    """
    try:
        real = library.resolve(strict=True)
        file_stats = real.stat()
        folders = dict.fromkeys((real.parent, library.absolute().parent))
        folder_stats = {folder: folder.stat() for folder in folders}
    except OSError as error:
        return f"{library}: {error.strerror}"
    if not stat.S_ISREG(file_stats.st_mode):
        return f"{real}: expected a file"
    reason = _why_replaceable(real, file_stats, "file")
    for folder, stats in folder_stats.items():
        if not reason and not (stats.st_uid == 0 and stats.st_mode & stat.S_ISVTX):
            reason = _why_replaceable(folder, stats, "folder")
    return reason


def _why_replaceable(path: Path, stats: os.stat_result, noun: str) -> str:
    """Return why others can write a file or folder; "" if its owner alone can."""
    if stats.st_uid not in {0, os.geteuid()}:
        return f"{path}: expected an owner root, found uid {stats.st_uid}"
    if stats.st_mode & _OTHERS_WRITE:
        mode = stat.S_IMODE(stats.st_mode)
        return (
            f"{path}: expected a {noun} that its owner alone may write, found {mode:o}"
        )
    return ""
