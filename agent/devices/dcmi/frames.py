"""Encode and decode messages between worker and agent: a length, then JSON."""

import json
import struct
from typing import Any

LENGTH = struct.Struct("<I")
#: Longest message, far more than 100 chips with 128 codes need. Unit: bytes.
MOST_BYTES = 1 << 22


class FrameError(Exception):
    """The received bytes are no message."""


def encode(message: dict[str, Any]) -> bytes:
    """Return the bytes of a message, with its length before it."""
    body = json.dumps(message, separators=(",", ":")).encode()
    return LENGTH.pack(len(body)) + body


def length_of(head: bytes) -> int:
    """Return the number of bytes that follow the four in `head`.

    Raises:
        FrameError: More than any message has.
    """
    (length,) = LENGTH.unpack(head)
    if length > MOST_BYTES:
        raise FrameError(f"expected at most {MOST_BYTES} bytes, found {length}")
    return int(length)


def decode(body: bytes) -> dict[str, Any]:
    """Return the message in a body.

    Raises:
        FrameError: Not a JSON object.
    """
    try:
        message = json.loads(body)
    except ValueError as error:
        raise FrameError(f"expected JSON, found {body[:60]!r}") from error
    if not isinstance(message, dict):
        raise FrameError(f"expected an object, found {body[:60]!r}")
    return message
