"""Why a node cannot serve a pod: a closed set, and one sentence for each.

A node has exactly one reason, the first that is true in the order of definition, so
that counts over nodes add up. The sentences are made to be counted by schedulers:
few, short, without the names of nodes, and such that they can stand alone as well as
behind a number ("0/3 nodes are available: 3 cannot give a pod 3 chips, only 1 or 2").
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby

from scheduler_core.products.columns import Product, Way

#: counts in a row that are said one by one; more are said as a range
_LISTED = 4


class Reason(StrEnum):
    """One reason; the value is its label in metrics, the order its precedence."""

    NO_SUCH_NPU = "no-such-npu"
    NO_ALLOCATABLE = "no-allocatable"
    AGENT_SILENT = "agent-silent"
    BAD_NODE_REPORT = "bad-node-report"
    IDS_LOST = "ids-lost"
    ILLEGAL_COUNT = "illegal-count"
    CHIP_UNHEALTHY = "chip-unhealthy"
    NETWORK_UNHEALTHY = "network-unhealthy"
    TOO_FEW_FREE = "too-few-free"
    GROUP_TOO_SMALL = "group-too-small"
    CONFLICT = "conflict"


_TEXTS = {
    Reason.NO_SUCH_NPU: "no such NPU",
    Reason.NO_ALLOCATABLE: "kubelet offers no NPU",
    Reason.AGENT_SILENT: "agent silent",
    Reason.BAD_NODE_REPORT: "unreadable NPU report",
    Reason.IDS_LOST: "kubelet lost device ids of a running pod",
    Reason.ILLEGAL_COUNT: "cannot give a pod {count} chips, only {legal}",
    Reason.CHIP_UNHEALTHY: "chip unhealthy",
    Reason.NETWORK_UNHEALTHY: "chip network unhealthy",
    Reason.TOO_FEW_FREE: "without {count} free chips",
    Reason.CONFLICT: "another pod waits there for as many chips",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why one node cannot serve, for programs and for people."""

    reason: Reason
    text: str


def refusal(reason: Reason, product: Product, count: int) -> Refusal:
    """The refusal for `reason`, said of `count` chips of `product`."""
    if reason is Reason.GROUP_TOO_SMALL:
        text = _apart(product, count)
    elif reason is Reason.TOO_FEW_FREE and count == 1:
        text = "no free chip"
    else:
        text = _TEXTS[reason].format(count=count, legal=any_of(product.counts))
    return Refusal(reason=reason, text=text)


def text_of(reason: Reason) -> str:
    """What is said for a reason that says nothing of counts or groups."""
    return _TEXTS[reason]


def _apart(product: Product, count: int) -> str:
    """Why enough free chips are not enough: what of the layout is not to be had."""
    group = product.group_kind.value
    way = product.ways[count][0]
    if way is Way.PAIRS:
        return f"without {count // 2} free chips at matching positions"
    if way is Way.HALVES:
        return f"without {count // 2} free chips in each {group}"
    whole, rest = divmod(count, product.group_size)
    if whole == 0 or (whole, rest) == (1, 0):
        return f"no {group} has {count} free chips"
    besides = f" and {rest} of another" if rest else ""
    return f"without {product.group_kind.whole(whole)}{besides} free"


def any_of(counts: Sequence[int]) -> str:
    """Say them as a person does: 1, 2, 4 or 8; 1 to 64. Ascending, at least one."""
    parts: list[str] = []
    for _, run in groupby(enumerate(counts), key=lambda item: item[1] - item[0]):
        numbers = [number for _, number in run]
        if len(numbers) > _LISTED:
            parts.append(f"{numbers[0]} to {numbers[-1]}")
        else:
            parts += map(str, numbers)
    *some, last = parts
    return f"{', '.join(some)} or {last}" if some else last
