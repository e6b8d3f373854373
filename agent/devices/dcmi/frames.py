"""Messages between worker and agent: JSON, its length before it."""

import json
import struct
from typing import Any

LENGTH = struct.Struct("<I")
#: Far more than a hundred chips with 128 codes each. Unit: bytes.
MOST_BYTES = 1 << 22


class FrameError(Exception):
    """What came is no message."""


def encode(message: dict[str, Any]) -> bytes:
    """Render a message."""
    body = json.dumps(message, separators=(",", ":")).encode()
    return LENGTH.pack(len(body)) + body


def length_of(head: bytes) -> int:
    """Return how many bytes follow these four.

    Raises:
        FrameError: More than any message has.
    """
    (length,) = LENGTH.unpack(head)
    if length > MOST_BYTES:
        raise FrameError(f"expected at most {MOST_BYTES} bytes, found {length}")
    return int(length)


def decode(body: bytes) -> dict[str, Any]:
    """Read a message.

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
