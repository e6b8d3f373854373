"""The annotations of a pod: what the scheduler decided, and what was mounted.

Strict both ways. A text that is almost right is refused, because chips that are read
wrongly are chips with two owners.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from scheduler_core.errors import SchedulerCoreError
from scheduler_core.products.table import PRODUCTS, Product
from scheduler_core.wire.shown import shown

#: when the scheduler decided, in nanoseconds; compared as a number, never as a date
PREDICATE_TIME = "predicate-time"
#: the chips that were mounted
ASCEND_REAL = "huawei.com/AscendReal"
#: the device ids that the kubelet chose
KLT_DEV = "huawei.com/kltDev"
#: the chips with their addresses, as JSON, for the training program
CONFIGURATION = "ascend.kubectl.kubernetes.io/ascend-910-configuration"
#: the same, of chips that are asked for as `huawei.com/npu`
NPU_CONFIGURATION = "ascend.kubectl.kubernetes.io/ascend-npu-configuration"
#: the node, on a pod that has its chips before it is bound: Volcano binds by itself
ALLOCATED_ON = "ascend-affinity/allocated-on"
#: the predicate-time of a pod that has been served: the largest uint64
SERVED = 2**64 - 1

#: {prefix of a line's chips: chips of its largest server}
_LINES = {
    prefix: max(row.chip_count for row in PRODUCTS if row.chip_prefix == prefix)
    for prefix in {row.chip_prefix for row in PRODUCTS}
}
_ID = re.compile("0|[1-9][0-9]*")
#: digits of an id, and characters of a chip's name, at most
_DIGITS = 5
_NAME = max(map(len, _LINES)) + _DIGITS
#: characters of a list that is remembered; 64 chips have fewer
_LIST = 1024
_UINT64 = re.compile("[0-9]{1,20}")


class WireError(SchedulerCoreError, ValueError):
    """A text that is not what its format demands.

    Attributes:
        path: Where, from the document's root.
        expected: What the format demands there.
        found: What is there.
    """

    def __init__(self, path: str, *, expected: str, found: object) -> None:
        """Remember where, what was expected, and what was found."""
        super().__init__(f"{path}: expected {expected}, found {shown(found)}")
        self.path = path
        self.expected = expected
        self.found = found


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What the scheduler wrote on a pod when it bound it."""

    #: physical ids, ascending, at least one
    chips: tuple[int, ...]
    #: 0 to `SERVED`
    predicate_time: int


def configuration_key(resource: str) -> str:
    """Under which key the configuration of a pod stands that asks for `resource`."""
    return NPU_CONFIGURATION if resource == "huawei.com/npu" else CONFIGURATION


def chip_name(chip: int, product: Product) -> str:
    """The name of a chip in every wire format: `Ascend910-3`."""
    return f"{product.chip_prefix}{chip}"


def parse_chip(name: object, product: Product, *, path: str) -> int:
    """The physical id of the chip that `name` names.

    Raises:
        WireError: It is not the name of a chip of this product, letter for letter.
    """
    chip = _id(name, product.chip_prefix, product.chip_count)
    if chip is None or not product.all_chips >> chip & 1:
        raise WireError(path, expected=chips_of(product), found=name)
    return chip


def _id(name: object, prefix: str, chip_count: int) -> int | None:
    """The id that follows the prefix; None if it is no chip of so many."""
    if not isinstance(name, str) or len(name) > len(prefix) + _DIGITS:
        return None
    if not name.startswith(prefix):
        return None
    return _number(name[len(prefix) :], chip_count)


# What names and lists mean never changes, and there are few: each bind and each pod
# that a watch shows names the same chips again.
@lru_cache(maxsize=1024)
def _number(digits: str, below: int) -> int | None:
    return int(digits) if _ID.fullmatch(digits) and int(digits) < below else None


def is_of_another_line(name: object, product: Product) -> bool:
    """Whether `name` is that of a chip, but of another product line than this one's.

    A node may have chips of several lines, and what is said of it names all of them.
    """
    if not isinstance(name, str) or len(name) > _NAME:
        return False
    return _is_of_another(name, product.chip_prefix)


@lru_cache(maxsize=1024)
def _is_of_another(name: str, own: str) -> bool:
    return any(
        prefix != own and _id(name, prefix, count) is not None
        for prefix, count in _LINES.items()
    )


def parse_chips(text: str, product: Product, *, path: str = "") -> tuple[int, ...]:
    """The chips of a list such as `Ascend910-0,Ascend910-1`.

    Args:
        text: The list; at least one chip, any order, no blanks.
        product: The node's row.
        path: Where the text stands, for the error; "" is the resource's annotation.

    Returns:
        Physical ids, ascending.

    Raises:
        WireError: Blanks, empty elements, a chip named twice, an unknown chip.
    """
    path = path or annotation_path(product.resource)
    if len(text) > _LIST:
        return parse_chip_names(text.split(","), product, path=path)
    return _chips_of(text, product, path)


@lru_cache(maxsize=1024)
def _chips_of(text: str, product: Product, path: str) -> tuple[int, ...]:
    return parse_chip_names(text.split(","), product, path=path)


def parse_chip_names(
    names: Iterable[object], product: Product, *, path: str, of_node: bool = False
) -> tuple[int, ...]:
    """The chips of these names, ascending; as `parse_chips`, of a list.

    Args:
        names: In any order.
        product: Of the node, or of one of its lines.
        path: Where the list stands, for the error.
        of_node: Whether the list may name chips of the node's other lines, which are
            left out.

    Raises:
        WireError: A name is not a chip's, or stands there twice.
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
    """The list of these chips as other programs read it.

    Args:
        chips: Physical ids, in any order; none gives "".
        product: The node's row.
        lexicographic: Order by name as text (`…-10` before `…-2`), as AscendReal,
            kltDev and the ConfigMap are written; else by id.
    """
    names = [chip_name(chip, product) for chip in sorted(chips)]
    return ",".join(sorted(names) if lexicographic else names)


def parse_predicate_time(text: str) -> int:
    """The predicate-time that `text` gives, 0 to `SERVED`.

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
    """The claim that a pod's annotations make, or None when they make none.

    Raises:
        WireError: One of the two annotations is missing or malformed.
    """
    chips = annotations.get(product.resource)
    moment = annotations.get(PREDICATE_TIME)
    if chips is None and moment is None:
        return None
    if chips is None:
        raise WireError(
            annotation_path(product.resource),
            expected=f"chips, because {PREDICATE_TIME} is set",
            found=None,
        )
    parsed = parse_chips(chips, product)
    if moment is None:
        raise WireError(
            annotation_path(PREDICATE_TIME),
            expected=f"a number, because {product.resource} is set",
            found=None,
        )
    return Claim(chips=parsed, predicate_time=parse_predicate_time(moment))


def annotation_path(key: str) -> str:
    """Where an annotation stands in its object, for errors."""
    return f"metadata.annotations[{key!r}]"


def chips_of(product: Product) -> str:
    """What a chip of this product may be called, for errors."""
    every = product.all_chips
    first = chip_name((every & -every).bit_length() - 1, product)
    return f"a chip from {first} to {chip_name(every.bit_length() - 1, product)}"
