"""Decode the JSON bodies of schedulers' requests; errors name the malformed key.

A module of its own: `kube_scheduler.protocol` and `volcano.protocol` both decode
bodies, and neither may import the other.
"""

from typing import TypeVar

import msgspec

from service.decoding import DECODE_ERRORS, describe_decode_error

_T = TypeVar("_T")


class BodyError(ValueError):
    """Error of a request body that is not JSON or violates the scheduler's protocol."""


def decode_body(
    decoder: msgspec.json.Decoder[_T], raw: bytes | msgspec.Raw, where: str
) -> _T:
    """Return the Python object that a JSON request body, or a part of it, stands for.

    Args:
        decoder: Decodes the expected type.
        raw: JSON text.
        where: Name of the body or part in errors, such as "body".

    Raises:
        BodyError: The text is not JSON, or is JSON of another type.
    """
    try:
        return decoder.decode(raw)
    except DECODE_ERRORS as error:
        raise BodyError(describe_decode_error(where, error)) from error
