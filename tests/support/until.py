"""Waiting for what changes without an event to wait for."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import TypeVar, overload

T = TypeVar("T")


@overload
async def until(
    look: Callable[[], Awaitable[T]],
    *,
    within_s: float = ...,
    every_s: float = ...,
    why: Callable[[], object] = ...,
) -> T: ...


@overload
async def until(
    look: Callable[[], T],
    *,
    within_s: float = ...,
    every_s: float = ...,
    why: Callable[[], object] = ...,
) -> T: ...


async def until(
    look: Callable[[], Awaitable[object] | object],
    *,
    within_s: float = 60.0,
    every_s: float = 0.005,
    why: Callable[[], object] = lambda: "",
) -> object:
    """Call `look` until it returns something true; return that.

    Args:
        look: Returns what is waited for, or an awaitable of it.
        within_s: Seconds until the wait fails.
        every_s: Pause between two looks, in seconds.
        why: Called when the time is out: what the failure shows of the world.

    Raises:
        AssertionError: The time is out; with the last value that `look` gave.
    """
    seen: object = "nothing yet"
    limit = asyncio.timeout(within_s)
    try:
        async with limit:
            while True:
                found = look()
                seen = await found if inspect.isawaitable(found) else found
                if seen:
                    return seen
                await asyncio.sleep(every_s)
    except TimeoutError:
        if not limit.expired():
            raise
    message = f"{_name(look)} is not so after {within_s:g} s; last seen: {seen!r}"
    raise AssertionError(f"{message} {why()}".rstrip())


def _name(look: Callable[[], object]) -> str:
    """The function, and the line in which it is written."""
    code = getattr(look, "__code__", None)
    name = getattr(look, "__qualname__", repr(look))
    return f"{name} (line {code.co_firstlineno})" if code else name
