"""How does a simulated driver break? Its file becomes a pipe, or says other things.

Each function does it, and returns what undoes it.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from sandbox.faults.kinds import FaultError
from sandbox.world.directories import FAULT_CODE, Node

Undo = Callable[[], Awaitable[None]]
_LIE_S = 0.5
#: A reader comes back after the driver's poll; looking for one costs nothing.
_LOOK_S = 0.02


def broken(node: Node, chips: tuple[int, ...]) -> Undo:
    """Let these chips fail, beside those that have failed already."""
    return _adding(
        node, "faults", [{"chip": chip, "code": FAULT_CODE} for chip in chips]
    )


def occupied(node: Node, chips: tuple[int, ...]) -> Undo:
    """Let a process be on these chips; it is this one, so it can be named."""
    return _adding(
        node, "processes", [{"chip": chip, "pid": os.getpid()} for chip in chips]
    )


def silent(node: Node) -> Undo:
    """Let every look at the chips wait for ever."""
    before = _content(node)
    pipe = _pipe(node)

    async def undo() -> None:
        _write(node, before)
        _feed(pipe, before)  # who waits goes on
        pipe.unlink()

    return undo


def slow(node: Node, delay: float) -> Undo:
    """Let every look at the chips take that long."""
    before = _content(node)
    pipe = _pipe(node)

    async def feed() -> None:
        while True:
            await asyncio.sleep(delay)
            while not _feed(pipe, before):  # noqa: ASYNC110  # a reader sets no event
                await asyncio.sleep(_LOOK_S)

    task = asyncio.create_task(feed())

    async def undo() -> None:
        task.cancel()
        _write(node, before)
        _feed(pipe, before)
        pipe.unlink()

    return undo


def lying(node: Node, chips: tuple[int, ...]) -> Undo:
    """Let chips vanish and come back, again and again."""
    before = _content(node)
    lie = _with(yaml.safe_load(before), vanished=list(chips))

    async def lies() -> None:
        while True:
            for content in (lie, before):
                _write(node, content)
                await asyncio.sleep(_LIE_S)

    task = asyncio.create_task(lies())

    async def undo() -> None:
        task.cancel()
        _write(node, before)

    return undo


def _adding(node: Node, key: str, added: Sequence[Mapping[str, Any]]) -> Undo:
    """Have the driver's file say more, beside all else that it says."""
    _change(node, key, lambda known: [*known, *added])

    async def undo() -> None:
        def without(known: list[Any]) -> list[Any]:
            # each once: another of the same chip may go on
            for each in added:
                if each in known:
                    known.remove(each)
            return known

        _change(node, key, without)

    return undo


def _change(node: Node, key: str, change: Callable[[list[Any]], list[Any]]) -> None:
    said = yaml.safe_load(_content(node))
    _write(node, _with(said, **{key: change(list(said.get(key) or ()))}))


def _with(said: Mapping[str, Any], **more: Any) -> bytes:
    return yaml.safe_dump({**said, **more}, sort_keys=False).encode()


def _content(node: Node) -> bytes:
    if node.driver_file.is_fifo():
        raise FaultError([f"the driver of {node.name} is silent or slow already"])
    return node.driver_file.read_bytes()


def _write(node: Node, content: bytes) -> None:
    draft = node.driver_file.with_suffix(".draft")
    draft.write_bytes(content)
    draft.replace(node.driver_file)


def _pipe(node: Node) -> Path:
    """Put a pipe in the file's place; return another name of it, which stays."""
    pipe = node.driver_file.with_suffix(".pipe")
    twin = node.driver_file.with_suffix(".twin")
    os.mkfifo(pipe)
    os.link(pipe, twin)
    twin.replace(node.driver_file)
    return pipe


def _feed(pipe: Path, content: bytes) -> bool:
    """Answer whoever reads the pipe; say whether anybody does."""
    try:
        end = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:  # ENXIO: nobody waits
        return False
    try:
        os.write(end, content)
    finally:
        os.close(end)
    return True
