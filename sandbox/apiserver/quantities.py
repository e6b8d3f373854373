"""Quantities in the form that the API server gives them back: text, canonical.

A manifest may say `huawei.com/Ascend910: 1` as a number; clients get "1".

Source: apimachinery v0.36.3, `pkg/api/resource/quantity.go` (CanonicalizeBytes).
"""

import re
from decimal import ROUND_CEILING, Decimal
from typing import Any

_FORM = re.compile(
    r"([+-]?(?:\d+\.?\d*|\.\d+))(?:(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE])|[eE]([+-]?\d+))?$"
)
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL = {
    "n": -9,
    "u": -6,
    "m": -3,
    "k": 3,
    "M": 6,
    "G": 9,
    "T": 12,
    "P": 15,
    "E": 18,
}
_MILLI = Decimal("0.001")


class QuantityError(ValueError):
    """A text that is no quantity."""

    def __init__(self, found: Any) -> None:
        """Name what was found."""
        super().__init__(
            "quantities must match the regular expression "
            f"'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$': found {found!r}"
        )


def canonical(value: Any) -> str:
    """Return the canonical text of a quantity.

    Args:
        value: Text or a number, as it came in JSON.

    Raises:
        QuantityError: It is no quantity.
    """
    number, suffix = _parsed(value)
    if suffix in _BINARY:
        return _binary(number)
    return _decimal(number)


def whole(value: Any) -> int | None:
    """Return a quantity as an integer, or None when it is not integral."""
    number, _ = _parsed(value)
    return int(number) if number == number.to_integral_value() else None


def _parsed(value: Any) -> tuple[Decimal, str]:
    match = _FORM.match(str(value)) if isinstance(value, str | int | float) else None
    if match is None or isinstance(value, bool):
        raise QuantityError(value)
    text, suffix, exponent = match.groups()
    number = Decimal(text)
    if suffix in _BINARY:
        number *= 1 << _BINARY[suffix]
    else:
        number = number.scaleb(_DECIMAL.get(suffix or "", 0) + int(exponent or 0))
    # Finer than a thousandth does not exist in resource lists: rounded up.
    return number.quantize(_MILLI, rounding=ROUND_CEILING), suffix or ""


def _binary(number: Decimal) -> str:
    if number != number.to_integral_value():
        return _decimal(number)
    count = int(number)
    for suffix, bits in reversed(_BINARY.items()):
        if count and count % (1 << bits) == 0:
            return f"{count >> bits}{suffix}"
    return str(count)


def _decimal(number: Decimal) -> str:
    if number != number.to_integral_value():
        return f"{int(number.scaleb(3))}m"
    count = int(number)
    for suffix, power in reversed(_DECIMAL.items()):
        if power > 0 and count and count % 10**power == 0:
            return f"{count // 10**power}{suffix}"
    return str(count)
