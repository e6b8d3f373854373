"""JSON in the bytes that Go writes, since CheckCodes are hashes of these bytes.

A module of its own: the texts of devices and of faults both need it.
"""

import json

#: {character: its escape} of Go's JSON, beyond what JSON demands
_GO_ESCAPES = str.maketrans(
    {c: f"\\u{ord(c):04x}" for c in ("<", ">", "&", "\u2028", "\u2029")}
)


def go_json(document: object) -> str:
    """Render a document as JSON as Go writes it: compact, with Go's escapes."""
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    return text.translate(_GO_ESCAPES)
