"""JSON as Go writes it: what is compared byte for byte, and what CheckCodes are of."""

import json

#: what Go's JSON escapes besides what JSON demands
_GO_ESCAPES = str.maketrans(
    {c: f"\\u{ord(c):04x}" for c in ("<", ">", "&", "\u2028", "\u2029")}
)


def go_json(document: object) -> str:
    """The JSON of a document as Go writes it: compact, with its escapes."""
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    return text.translate(_GO_ESCAPES)
