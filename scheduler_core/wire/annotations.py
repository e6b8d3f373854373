"""Annotations of a pod: the chips that the scheduler chose, and the chips mounted.

A text that is almost right is an error: chips read wrongly would have two owners.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from scheduler_core.errors import SchedulerCoreError
from scheduler_core.products.table import PRODUCTS, Product
from scheduler_core.wire.quote import quote_value

#: time of the scheduler's decision, in nanoseconds; only compared, never read as a date
PREDICATE_TIME = "predicate-time"
#: chips that were mounted
ASCEND_REAL = "huawei.com/AscendReal"
#: device ids that the kubelet chose
KLT_DEV = "huawei.com/kltDev"
#: chips with their addresses, as JSON, for the training program
CONFIGURATION = "ascend.kubectl.kubernetes.io/ascend-910-configuration"
#: the same for chips of the resource `huawei.com/npu`
NPU_CONFIGURATION = "ascend.kubectl.kubernetes.io/ascend-npu-configuration"
#: node of a pod that has its chips before it is bound, since Volcano binds by itself
ALLOCATED_ON = "ascend-affinity/allocated-on"
#: on the pod that stands for a static one: uid of the static pod, without dashes
MIRROR = "kubernetes.io/config.mirror"
#: predicate-time of a pod that has its chips: the largest uint64
SERVED = 2**64 - 1

#: {name prefix of a product line's chips: number of chips of its largest server}
_CHIPS_BY_PREFIX = {
    prefix: max(row.chip_count for row in PRODUCTS if row.chip_prefix == prefix)
    for prefix in {row.chip_prefix for row in PRODUCTS}
}
#: the driver's number of the first part of chip 0
_FIRST_PART = 100
#: most digits of a number that is meant; Python reads up to 4,300
_MOST_COUNT_DIGITS = 9
#: without a sign or zeros in front; Python would read up to 4,300 digits
_NUMBER = re.compile("0|[1-9][0-9]{0,9}")
#: largest number of digits of an id, and of characters of a chip's name
_MOST_DIGITS = 5
_LONGEST_NAME = max(map(len, _CHIPS_BY_PREFIX)) + _MOST_DIGITS
#: largest number of characters of a list that is cached; 64 chips have fewer
_LONGEST_CACHED = 1024
_UINT64 = re.compile("[0-9]{1,20}")


class WireError(SchedulerCoreError, ValueError):
    """Text that breaks its format.

    Attributes:
        path: Path of the wrong value, from the document's root.
        expected: Description of a right value.
        found: Actual value.
    """

    def __init__(self, path: str, *, expected: str, found: object) -> None:
        super().__init__(f"{path}: expected {expected}, found {quote_value(found)}")
        self.path = path
        self.expected = expected
        self.found = found


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Chips that the scheduler wrote on a pod at bind, and the time of the decision."""

    #: physical ids, ascending, at least one
    chips: tuple[int, ...]
    #: 0 to `SERVED`
    predicate_time: int


def configuration_key(resource: str) -> str:
    """Return the configuration annotation's key for pods that ask for `resource`."""
    return NPU_CONFIGURATION if resource == "huawei.com/npu" else CONFIGURATION


def chip_name(chip: int, product: Product) -> str:
    """Return the name of a chip in every wire format, such as `Ascend910-3`.

    The name of a part has its number and its chip: `Ascend910-4c-117-1`.
    """
    if product.chip_row is None:
        return f"{product.chip_prefix}{chip}"
    number, parent = _FIRST_PART + chip, chip // product.group_size
    return f"{product.chip_prefix}{number}-{parent}"


def part_id(number: int, chip: int, product: Product) -> int | None:
    """Return the id of a part; None if the driver's number is not one of its chip.

    Args:
        number: The driver's number of the part.
        chip: Physical id of its chip.
        product: Row of the kind of part.
    """
    part = number - _FIRST_PART
    is_of_chip = part >= 0 and part // product.group_size == chip
    return part if is_of_chip and product.all_chips >> part & 1 else None


def parse_chip(name: object, product: Product, *, path: str) -> int:
    """Return the physical id of the chip called `name`.

    Raises:
        WireError: `name` is not exactly the name of a chip of this product.
    """
    if product.chip_row is None:
        chip = _id(name, product.chip_prefix, product.chip_count)
    else:
        chip = _part_of(name, product)
    if chip is None or not product.all_chips >> chip & 1:
        raise WireError(path, expected=describe_chips(product), found=name)
    return chip


def _id(name: object, prefix: str, chip_count: int) -> int | None:
    """Return the id behind the prefix; None if it is not below `chip_count`."""
    if not isinstance(name, str) or len(name) > len(prefix) + _MOST_DIGITS:
        return None
    if not name.startswith(prefix):
        return None
    return parse_number(name[len(prefix) :], chip_count)


def _part_of(name: object, product: Product) -> int | None:
    """Return the id of the part with a name; None if no part has it."""
    if not isinstance(name, str) or not name.startswith(product.chip_prefix):
        return None
    texts = name[len(product.chip_prefix) :].partition("-")[::2]
    if max(map(len, texts)) > _MOST_DIGITS:
        return None
    number, chip = (parse_number(text, 10**_MOST_DIGITS) for text in texts)
    if number is None or chip is None:
        return None
    return part_id(number, chip, product)


# The meaning of names and lists never changes, and there are few: each bind and each
# pod event names the same chips again.
@lru_cache(maxsize=1024)
def parse_number(digits: str, below: int) -> int | None:
    """Return a number as ids are written; None if it is none, or not below `below`.

    Args:
        digits: A short text, since answers are remembered.
        below: Smallest number that is too large.
    """
    return int(digits) if _NUMBER.fullmatch(digits) and int(digits) < below else None


def is_of_another_line(name: object, product: Product) -> bool:
    """Return whether `name` is that of a chip of another product line.

    A node may have chips of several lines, and its texts name the chips of all.
    """
    if not isinstance(name, str) or len(name) > _LONGEST_NAME:
        return False
    return _is_of_another(name, product.chip_prefix)


@lru_cache(maxsize=1024)
def _is_of_another(name: str, own_prefix: str) -> bool:
    return any(
        prefix != own_prefix and _id(name, prefix, count) is not None
        for prefix, count in _CHIPS_BY_PREFIX.items()
    )


def parse_chips(text: str, product: Product) -> tuple[int, ...]:
    """Parse the chips of an annotation such as `Ascend910-0,Ascend910-1`.

    Args:
        text: List of at least one chip, in any order, without blanks.
        product: Row of the node.

    Returns:
        Physical ids, ascending.

    Raises:
        WireError: Blanks, empty elements, a chip named twice, an unknown chip.
    """
    parse = _cached_chips if len(text) <= _LONGEST_CACHED else _chips_of
    return parse(text, product)


def _chips_of(text: str, product: Product) -> tuple[int, ...]:
    path = annotation_path(product.resource)
    return parse_chip_names(text.split(","), product, path=path)


_cached_chips = lru_cache(maxsize=1024)(_chips_of)


def parse_chip_names(
    names: Iterable[object], product: Product, *, path: str, of_node: bool = False
) -> tuple[int, ...]:
    """Return the physical ids of the chips with these names, ascending.

    Args:
        names: Names of chips, in any order.
        product: Row of the node, or of one of its product lines.
        path: Path of the list, for the error.
        of_node: Whether the list may name chips of the node's other lines, which are
            left out.

    Raises:
        WireError: A name is not that of a chip, or is repeated.
    """
    prefix = product.chip_prefix
    chips: set[int] = set()
    for index, name in enumerate(names):
        is_own = isinstance(name, str) and name.startswith(prefix)
        if of_node and not is_own and is_of_another_line(name, product):
            continue
        chip = parse_chip(name, product, path=f"{path}[{index}]")
        if chip in chips:
            raise WireError(f"{path}[{index}]", expected="each chip once", found=name)
        chips.add(chip)
    return tuple(sorted(chips))


def render_chips(
    chips: Iterable[int], product: Product, *, lexicographic: bool = False
) -> str:
    """Render the list of these chips as other programs read it.

    Args:
        chips: Physical ids, in any order; no id gives "".
        product: Row of the node.
        lexicographic: Order by name as text (`…-10` before `…-2`), as AscendReal,
            kltDev and the ConfigMap are written; else by id.
    """
    names = [chip_name(chip, product) for chip in sorted(chips)]
    return ",".join(sorted(names) if lexicographic else names)


def parse_predicate_time(text: str) -> int:
    """Parse a predicate-time, 0 to `SERVED`.

    Raises:
        WireError: Not a decimal number of 64 bits without a sign.
    """
    if not _UINT64.fullmatch(text) or int(text) > SERVED:
        raise WireError(
            annotation_path(PREDICATE_TIME),
            expected=f"a decimal number from 0 to {SERVED}",
            found=text,
        )
    return int(text)


def parse_claim(annotations: Mapping[str, str], product: Product) -> Claim | None:
    """Parse the claim in a pod's annotations; None without its two annotations.

    Raises:
        WireError: Only one of the two annotations is set, or one is malformed.
    """
    chips = annotations.get(product.resource)
    time_text = annotations.get(PREDICATE_TIME)
    if chips is None and time_text is None:
        return None
    if chips is None:
        raise WireError(
            annotation_path(product.resource),
            expected=f"chips, because {PREDICATE_TIME} is set",
            found=None,
        )
    chip_ids = parse_chips(chips, product)
    if time_text is None:
        raise WireError(
            annotation_path(PREDICATE_TIME),
            expected=f"a number, because {product.resource} is set",
            found=None,
        )
    return Claim(chips=chip_ids, predicate_time=parse_predicate_time(time_text))


def annotation_path(key: str) -> str:
    """Return the path of an annotation in its object, for errors."""
    return f"metadata.annotations[{key!r}]"


def describe_chips(product: Product) -> str:
    """Return the range of names of the product's chips, for errors."""
    all_chips = product.all_chips
    first_name = chip_name((all_chips & -all_chips).bit_length() - 1, product)
    return (
        f"a chip from {first_name} to {chip_name(all_chips.bit_length() - 1, product)}"
    )


def parse_count(text: str) -> int | None:
    """Return a whole number that people wrote, not negative; None for any other text.

    Decimal digits only, at most nine: no number of pods, chips or SuperPoDs has more.
    """
    is_count = text.isascii() and text.isdigit() and len(text) <= _MOST_COUNT_DIGITS
    return int(text) if is_count else None
