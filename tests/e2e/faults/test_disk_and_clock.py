"""The journal's disk is full or read-only; the clock jumps."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import product
from tests.e2e.cluster import Cluster
from tests.e2e.commands import run, until
from tests.e2e.faults import ours
from tests.e2e.faults.conftest import Try
from tests.e2e.stages import CannotError

pytestmark = pytest.mark.faults

_LIBRARIES = Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")
_FOLDER = Path("/run/ascend-e2e-faketime")


@pytest.fixture
def small_disk(cluster: Cluster) -> Iterator[Path]:
    """The agent's state on a small file system of its own."""
    agent = ours.agent(cluster)
    run("mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", ours.STATE)
    try:
        agent.replace_pod()
        yield ours.STATE
    finally:
        # Lazily: the agent that stands in it goes right after.
        run("umount", "--lazy", ours.STATE)
        agent.replace_pod()


def test_the_disk_is_full(attempt: Try, small_disk: Path) -> None:
    with attempt("state directory full", "ENOSPC; agent killed meanwhile") as this:
        _fill(small_disk / "filler")
        this.load.churn.wait_succeeded(3)
        this.agent.kill()
        this.agent.wait_ready()
        this.load.churn.wait_succeeded(2)

        (small_disk / "filler").unlink()


def test_the_disk_is_read_only(attempt: Try, small_disk: Path) -> None:
    with attempt("state directory read-only", "EROFS; agent killed meanwhile") as this:
        until(lambda: _is_remounted(small_disk), "the disk read-only", within_s=60)
        try:
            this.load.churn.wait_succeeded(3)
            this.agent.kill()
            this.load.churn.wait_succeeded(2)
        finally:
            run("mount", "-o", "remount,rw", small_disk)


def test_the_clock_jumps(attempt: Try, cluster: Cluster) -> None:
    with (
        _faked(cluster) as clock,
        attempt("clock", "agent's and extender's: an hour ahead, then back") as this,
    ):
        for ahead_s in (3600, 0):
            _set(clock, ahead_s)
            this.load.churn.wait_succeeded(5)


def _is_remounted(disk: Path) -> bool:
    """Make it read-only, which the kernel does not while a file is being written."""
    try:
        run("mount", "-o", "remount,ro", disk)
    except CannotError:
        return False
    return True


@contextmanager
def _faked(cluster: Cluster) -> Iterator[Path]:
    """Agent and extender under libfaketime; yields the file that it reads."""
    library = next(_LIBRARIES, None)
    if library is None:
        raise CannotError("libfaketime is missing; on Debian: apt-get install faketime")
    clock = _FOLDER / "clock"
    _FOLDER.mkdir(exist_ok=True)
    shutil.copy(library, _FOLDER / "library")
    _set(clock, 0)
    preloaded = {each: _preload(each) for each in product.WORKLOADS}
    try:
        with product.patched(cluster, preloaded):
            try:
                yield clock
            finally:
                _set(clock, 0)
    finally:
        shutil.rmtree(_FOLDER)


def _set(clock: Path, ahead_s: int) -> None:
    """Set it at one stroke: a program that reads half a line of it would end."""
    draft = clock.with_suffix(".draft")
    draft.write_text(f"+{ahead_s}\n", encoding="ascii")
    draft.replace(clock)


def _preload(workload: str) -> dict[str, Any]:
    """What the pods of a workload need for it."""
    env = {
        "LD_PRELOAD": "/faketime/library",
        "FAKETIME_TIMESTAMP_FILE": "/faketime/clock",
        "FAKETIME_NO_CACHE": "1",
        # Time that passes is not the clock on the wall: no jump reaches it.
        "DONT_FAKE_MONOTONIC": "1",
    }
    container = {
        "name": workload.rpartition("-")[2],
        "env": [{"name": key, "value": value} for key, value in env.items()],
        "volumeMounts": [{"name": "faketime", "mountPath": "/faketime"}],
    }
    volume = {"name": "faketime", "hostPath": {"path": str(_FOLDER)}}
    return {"containers": [container], "volumes": [volume]}


def _fill(path: Path) -> None:
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
