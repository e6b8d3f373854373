"""How does a simulated driver break? Its file becomes a pipe, or says other things.

Each function breaks it for as long as its context lasts.
"""

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import yaml

from sandbox.faults.kinds import FaultError
from sandbox.world.directories import FAULT_CODE, Node

_LIE_S = 0.5
#: A reader comes back after the driver's poll; looking for one costs nothing.
_LOOK_S = 0.02


def broken(node: Node, chips: tuple[int, ...]) -> AbstractContextManager[None]:
    """Let these chips fail, beside those that have failed already."""
    return _adding(
        node, "faults", [{"chip": chip, "code": FAULT_CODE} for chip in chips]
    )


def occupied(node: Node, chips: tuple[int, ...]) -> AbstractContextManager[None]:
    """Let a process be on these chips; it is this one, so it can be named."""
    return _adding(
        node, "processes", [{"chip": chip, "pid": os.getpid()} for chip in chips]
    )


@contextmanager
def silent(node: Node) -> Iterator[tuple[Path, str]]:
    """Let every look at the chips wait for ever.

    Yields:
        Another name of the pipe in the file's place, and the file's content.
    """
    before = _content(node)
    pipe = node.driver_file.with_suffix(".pipe")
    twin = node.driver_file.with_suffix(".twin")
    os.mkfifo(pipe)
    os.link(pipe, twin)
    twin.replace(node.driver_file)
    yield pipe, before
    node.describe(before)
    _feed(pipe, before)  # who waits goes on
    pipe.unlink()


@contextmanager
def slow(node: Node, delay: float) -> Iterator[None]:
    """Let every look at the chips take that long."""

    async def feed(pipe: Path, content: str) -> None:
        while True:
            await asyncio.sleep(delay)
            while not _feed(pipe, content):  # noqa: ASYNC110  # a reader sets no event
                await asyncio.sleep(_LOOK_S)

    with silent(node) as (pipe, content):
        task = asyncio.create_task(feed(pipe, content))
        yield
        task.cancel()


@contextmanager
def lying(node: Node, chips: tuple[int, ...]) -> Iterator[None]:
    """Let chips vanish and come back, again and again."""
    before = _content(node)
    lie = _with(yaml.safe_load(before), vanished=list(chips))

    async def lies() -> None:
        while True:
            for content in (lie, before):
                node.describe(content)
                await asyncio.sleep(_LIE_S)

    task = asyncio.create_task(lies())
    yield
    task.cancel()
    node.describe(before)


@contextmanager
def _adding(node: Node, key: str, added: Sequence[Mapping[str, Any]]) -> Iterator[None]:
    """Have the driver's file say more, beside all else that it says."""

    def without(known: list[Any]) -> list[Any]:
        # each once: another of the same chip may go on
        for each in added:
            if each in known:
                known.remove(each)
        return known

    _change(node, key, lambda known: [*known, *added])
    yield
    _change(node, key, without)


def _change(node: Node, key: str, change: Callable[[list[Any]], list[Any]]) -> None:
    said = yaml.safe_load(_content(node))
    node.describe(_with(said, **{key: change(list(said.get(key) or ()))}))


def _with(said: Mapping[str, Any], **more: Any) -> str:
    return str(yaml.safe_dump({**said, **more}, sort_keys=False))


def _content(node: Node) -> str:
    if node.driver_file.is_fifo():
        raise FaultError([f"the driver of {node.name} is silent or slow already"])
    return node.driver_file.read_text(encoding="utf-8")


def _feed(pipe: Path, content: str) -> bool:
    """Answer whoever reads the pipe; say whether anybody does."""
    try:
        end = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:  # ENXIO: nobody waits
        return False
    try:
        os.write(end, content.encode())
    finally:
        os.close(end)
    return True
