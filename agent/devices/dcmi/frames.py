"""Encode and decode messages between the agent and the worker process for libdcmi.

A message is 4 bytes with the length of a JSON text, then this text. The worker process
calls the driver's library libdcmi for the agent.
"""

import json
import struct
from typing import Any

LENGTH = struct.Struct("<I")
#: Longest message, far more than 100 chips with 128 codes need. Unit: bytes.
MOST_BYTES = 1 << 22


class FrameError(Exception):
    """A received message is too long, or is no JSON object."""


def encode(message: dict[str, Any]) -> bytes:
    """Return a message as bytes: the length of its JSON text, then the text."""
    body = json.dumps(message, separators=(",", ":")).encode()
    return LENGTH.pack(len(body)) + body


def length_of(head: bytes) -> int:
    """Return the length of a message's JSON text, given by the message's first 4 bytes.

    Raises:
        FrameError: The length is above `MOST_BYTES`.
    """
    (length,) = LENGTH.unpack(head)
    if length > MOST_BYTES:
        raise FrameError(f"expected at most {MOST_BYTES} bytes, found {length}")
    return int(length)


def decode(body: bytes) -> dict[str, Any]:
    """Parse the JSON text of a message.

    Raises:
        FrameError: The bytes are no JSON object.
    """
    try:
        message = json.loads(body)
    except ValueError as error:
        raise FrameError(f"expected JSON, found {body[:60]!r}") from error
    if not isinstance(message, dict):
        raise FrameError(f"expected an object, found {body[:60]!r}")
    return message
