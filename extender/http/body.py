"""Decoding of request bodies, with errors that name the wrong place.

A module of its own: both scheduler protocols decode bodies, and neither may import the
other.
"""

from typing import TypeVar

import msgspec

from service.decoding import DECODE_ERRORS, describe_decode_error

_T = TypeVar("_T")


class BodyError(ValueError):
    """A request body that violates the scheduler's protocol."""


def decode_body(
    decoder: msgspec.json.Decoder[_T], raw: bytes | msgspec.Raw, where: str
) -> _T:
    """Decode a body, or a part of one, and return the object.

    Args:
        decoder: for the expected type.
        raw: JSON text.
        where: name of the part in errors, such as "body".

    Raises:
        BodyError: the text is not JSON, or is of another type.
    """
    try:
        return decoder.decode(raw)
    except DECODE_ERRORS as error:
        raise BodyError(describe_decode_error(where, error)) from error
