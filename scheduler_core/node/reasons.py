"""Reasons for which a node refuses a pod, and one sentence for each.

A node has exactly one reason: the first true one in the order of definition. Counts
over nodes therefore add up. Schedulers count equal sentences, so there are few, and
none names a node. Each reads well alone and behind a number
("0/3 nodes are available: 3 cannot give a pod 3 chips, only 1 or 2").
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby

from scheduler_core.products.columns import Product, Way

#: longest run of counts that is listed one by one; a longer run becomes a range
_LISTED = 4


class Reason(StrEnum):
    """Reason of a refusal; the value is its label in metrics, the order precedence."""

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
    """Refusal of one node: the reason for programs, the text for people."""

    reason: Reason
    text: str


def refusal(reason: Reason, product: Product, count: int) -> Refusal:
    """Return the refusal for `reason`, with the text for `count` chips of `product`."""
    if reason is Reason.GROUP_TOO_SMALL:
        text = _layout_text(product, count)
    elif reason is Reason.TOO_FEW_FREE and count == 1:
        text = "no free chip" if product.chip_row is None else "no free part"
    else:
        text = _TEXTS[reason].format(count=count, legal=join_counts(product.counts))
    return Refusal(reason=reason, text=text)


def reason_text(reason: Reason) -> str:
    """Return the text of a reason without counts or groups in its text."""
    return _TEXTS[reason]


def _layout_text(product: Product, count: int) -> str:
    """Return the text for a node with enough free chips but in the wrong groups."""
    group = product.group_kind.value
    way = product.ways[count][0]
    if way is Way.PAIRS:
        return f"without {count // 2} free chips at matching positions"
    if way is Way.HALVES:
        return f"without {count // 2} free chips in each {group}"
    whole, rest = divmod(count, product.group_size)
    if whole == 0 or (whole, rest) == (1, 0):
        return f"no {group} has {count} free chips"
    rest_text = f" and {rest} of another" if rest else ""
    return f"without {product.group_kind.whole(whole)}{rest_text} free"


def join_counts(counts: Sequence[int]) -> str:
    """Return counts as a text: "1, 2, 4 or 8", "1 to 64".

    Args:
        counts: Ascending, at least one.
    """
    parts: list[str] = []
    for _, run in groupby(enumerate(counts), key=lambda item: item[1] - item[0]):
        numbers = [number for _, number in run]
        if len(numbers) > _LISTED:
            parts.append(f"{numbers[0]} to {numbers[-1]}")
        else:
            parts += map(str, numbers)
    *others, last = parts
    return f"{', '.join(others)} or {last}" if others else last
