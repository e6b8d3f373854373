"""Waiting for what changes without an event to wait for."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar, overload

T = TypeVar("T")


@overload
async def until(
    look: Callable[[], Awaitable[T | None]],
    is_so: Callable[[Any], object] = ...,
    *,
    within_s: float = ...,
    every_s: float = ...,
    ignoring: type[Exception] | tuple[type[Exception], ...] = ...,
) -> T: ...


@overload
async def until(
    look: Callable[[], T | None],
    is_so: Callable[[Any], object] = ...,
    *,
    within_s: float = ...,
    every_s: float = ...,
    ignoring: type[Exception] | tuple[type[Exception], ...] = ...,
) -> T: ...


async def until(
    look: Callable[[], Awaitable[Any] | Any],
    is_so: Callable[[Any], object] = bool,
    *,
    within_s: float = 120.0,
    every_s: float = 0.01,
    ignoring: type[Exception] | tuple[type[Exception], ...] = (),
) -> Any:
    """Look until what is seen is as wanted; return that.

    Args:
        look: Returns what is waited for, or an awaitable of it.
        is_so: Whether that is as wanted; by itself, whether it is true.
        within_s: Seconds until the wait fails.
        every_s: Pause between two looks, in seconds.
        ignoring: Errors of `look` after which it looks again.

    Raises:
        AssertionError: The time is out; with what was seen last.
    """
    seen: object = "nothing yet"
    ignored = ignoring if isinstance(ignoring, tuple) else (ignoring,)
    limit = asyncio.timeout(within_s)
    try:
        async with limit:
            while True:
                with suppress(*ignored):
                    found = look()
                    seen = await found if inspect.isawaitable(found) else found
                    if is_so(seen):
                        return seen
                await asyncio.sleep(every_s)
    except TimeoutError:
        if not limit.expired():
            raise
    message = f"{_name(look)} is not as wanted after {within_s:g} s"
    raise AssertionError(f"{message}; last seen: {seen!r}")


def equal(wanted: object) -> Callable[[object], bool]:
    """Whether what is seen is this."""
    return lambda seen: seen == wanted


def _name(look: Callable[[], object]) -> str:
    """The function, and the line in which it is written."""
    code = getattr(look, "__code__", None)
    name = getattr(look, "__qualname__", repr(look))
    return f"{name} (line {code.co_firstlineno})" if code else name
