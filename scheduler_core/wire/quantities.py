"""Quantities of Kubernetes: `8`, `100m`, `1Gi`, `1e3`; exact, to a thousandth.

Numbers of more digits are rounded away from zero. Numbers beyond 2^63 - 1 count as
2^63 - 1.

Source: apimachinery v0.36.3, `pkg/api/resource/quantity.go` (grammar, ParseQuantity,
CanonicalizeBytes) and `pkg/apis/core/v1/defaults.go` of Kubernetes (RoundUp).
"""

import re
from decimal import MAX_EMAX, MIN_EMIN, ROUND_UP, Context, Decimal
from enum import Enum, auto
from functools import lru_cache
from typing import NamedTuple

_FORM = re.compile(
    r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))"
    r"(?:([KMGTPE]i|[numkMGTPE])|[eE]([+-]?[0-9]{1,17}))?"
)
#: {suffix: power of two}
_BINARY = {f"{unit}i": 10 * place for place, unit in enumerate("KMGTPE", 1)}
#: {suffix: power of ten}
_DECIMAL = {
    unit: 3 * place for place, unit in enumerate(("n", "u", "m", "", *"kMGTPE"), -3)
}
#: largest quantity
MOST = 2**63 - 1
#: A number of at most 2^63 - 1 whose product with 2^60 is a whole number of thousandths
#: has fewer digits. So this context rounds only where the result is rounded anyway.
_CONTEXT = Context(200, ROUND_UP, MIN_EMIN, MAX_EMAX, traps=[])
_THOUSANDTH = Decimal("0.001")


class QuantityError(ValueError):
    """Value that is no quantity; the text is Kubernetes' own."""

    def __init__(self, found: object) -> None:
        super().__init__(
            "quantities must match the regular expression "
            f"'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$': found {found!r}"
        )


class Notation(Enum):
    """Form of a quantity's suffix, which its canonical text keeps."""

    DECIMAL = auto()
    BINARY = auto()
    EXPONENT = auto()


class Quantity(NamedTuple):
    """Amount of a resource, in thousandths."""

    milli: int
    notation: Notation = Notation.DECIMAL

    @property
    def whole(self) -> int | None:
        """The amount, or None when it is no whole number."""
        number, rest = divmod(self.milli, 1000)
        return None if rest else number

    @property
    def rounded_up(self) -> int:
        """The least whole number that is not below the amount."""
        return -(-self.milli // 1000)

    @property
    def canonical(self) -> str:
        """The text that the API server writes: the largest suffix without fraction."""
        number = self.whole
        if self.notation is Notation.BINARY and number and abs(number) >= 2**10:
            for suffix, bits in reversed(_BINARY.items()):
                if number % (1 << bits) == 0:
                    return f"{number >> bits}{suffix}"
            return str(number)
        for suffix, power in reversed(_DECIMAL.items()):
            if self.milli and self.milli % (scale := 10 ** max(power + 3, 0)) == 0:
                is_exponent = self.notation is Notation.EXPONENT and power
                return f"{self.milli // scale}{f'e{power}' if is_exponent else suffix}"
        return "0"


def parse(value: object) -> Quantity:
    """Parse a quantity, as text or as a number of JSON.

    Raises:
        QuantityError: It is no quantity.
    """
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        raise QuantityError(value)
    return _parse(str(value))


def count(value: object) -> int:
    """Return a quantity as a count; 0 if it is no quantity, or no whole number."""
    try:
        return parse(value).whole or 0
    except QuantityError:
        return 0


@lru_cache(maxsize=4096)
def _parse(text: str) -> Quantity:
    match = _FORM.fullmatch(text)
    if match is None:
        raise QuantityError(text)
    digits, suffix, exponent = match.groups(default="")
    number = _CONTEXT.create_decimal(digits)
    notation = Notation.EXPONENT if exponent else Notation.DECIMAL
    if suffix in _BINARY:
        notation = Notation.BINARY
        number = _CONTEXT.multiply(number, 1 << _BINARY[suffix])
    else:
        number = _CONTEXT.scaleb(number, int(exponent or _DECIMAL[suffix]))
    capped = max(min(number, Decimal(MOST)), Decimal(-MOST))
    rounded = _CONTEXT.quantize(capped, _THOUSANDTH)
    return Quantity(int(_CONTEXT.scaleb(rounded, 3)), notation)
