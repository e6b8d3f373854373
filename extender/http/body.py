"""Decode a request body, and say where it is not what a protocol demands."""

from typing import TypeVar

import msgspec

from service.decoding import UNDECODABLE, undecodable

_T = TypeVar("_T")


class BodyError(ValueError):
    """A request body is not what the scheduler's protocol says."""


def decoded(
    decoder: msgspec.json.Decoder[_T], raw: bytes | msgspec.Raw, where: str
) -> _T:
    """Read a body, or a part of one.

    Args:
        decoder: of what it is to be.
        raw: as it came.
        where: names it in errors.

    Raises:
        BodyError: it is something else.
    """
    try:
        return decoder.decode(raw)
    except UNDECODABLE as error:
        raise BodyError(undecodable(where, error)) from error
