"""Why a node cannot serve a pod: a closed set, and one sentence for each.

A node has exactly one reason, the first that is true in the order of definition, so
that counts over nodes add up. The sentences are made to be counted by schedulers:
few, short, without the names of nodes, and such that they can stand alone as well as
behind a number ("0/3 nodes are available: 3 cannot give a pod 3 chips, only 1 or 2").
"""

from dataclasses import dataclass
from enum import StrEnum

from scheduler_core.products import Product


class Reason(StrEnum):
    """One reason; the value is its label in metrics, the order its precedence."""

    NO_SUCH_NPU = "no-such-npu"
    NO_ALLOCATABLE = "no-allocatable"
    AGENT_SILENT = "agent-silent"
    BAD_NODE_REPORT = "bad-node-report"
    IDS_LOST = "ids-lost"
    ILLEGAL_COUNT = "illegal-count"
    CHIP_UNHEALTHY = "chip-unhealthy"
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
    Reason.TOO_FEW_FREE: "fewer than {count} free chips",
    Reason.GROUP_TOO_SMALL: "no {group} has {count} free chips",
    Reason.CONFLICT: "another pod waits there for as many chips",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why one node cannot serve, for programs and for people."""

    reason: Reason
    text: str


def refusal(reason: Reason, product: Product, count: int) -> Refusal:
    """The refusal for `reason`, said of `count` chips of `product`."""
    text = _TEXTS[reason].format(
        count=count,
        legal=_any_of(product.counts),
        group=product.group_kind.value,
    )
    if reason is Reason.TOO_FEW_FREE and count == 1:
        text = "no free chip"
    return Refusal(reason=reason, text=text)


def _any_of(counts: tuple[int, ...]) -> str:
    """Say them as a person does: 1, 2, 4 or 8."""
    *some, last = map(str, counts)
    return f"{', '.join(some)} or {last}" if some else last
