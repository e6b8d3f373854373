"""Jobs that run, with what they say about faults, for tests of rescheduling."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from extender.cache import events
from extender.gang.fault_policy import FaultWishes
from extender.gang.membership import Member, Membership, SizeSource
from scheduler_core.placement.siblings import Demands
from scheduler_core.wire.deviceinfo import Fault
from tests.support.watched import claim, pod_update, report, running, served

GRACE = {"fault-scheduling": "grace"}
BY_POD = GRACE | {"pod-rescheduling": "on"}
JOB = "Job of pods/default/j"
FAULT = Fault(chip=0, code="80E01801", level="SeparateNPU")


def broken(
    node: str, *ids: int, level: str = "SeparateNPU", **parts: Any
) -> events.ReportUpdated:
    """A report in which chips are out of service."""
    faults = tuple(replace(FAULT, chip=chip, level=level) for chip in ids)
    return report(node, unhealthy=ids, faults=faults, **parts)


def lone(name: str, node: str, ids: Iterable[int], **says: str) -> events.PodUpdated:
    """A pod that is a job by itself and runs."""
    ids = tuple(ids)
    made = running(name, served(ids), node, len(ids))
    texts = {key.replace("_", "-"): text for key, text in says.items()} or GRACE
    membership = Membership(job=f"Pod/default/{name}", size=1)
    alone = Member(name=name, membership=membership)
    return replace(made, wishes=FaultWishes(texts=texts, alone=alone))


def of_job(  # noqa: PLR0913  # the parts of a pod that is judged
    name: str,
    node: str,
    ids: Iterable[int],
    *,
    size: int | None = 2,
    least: int | None = None,
    rank: int | None = None,
    says: dict[str, str] | None = None,
    on_nodes: str = "",
    source: SizeSource | None = None,
    is_confirmed: bool = True,
) -> events.PodUpdated:
    """A pod of the job `j` that runs; without `node` it waits."""
    ids = tuple(ids)
    made = pod_update(name, len(ids))
    if node:
        texts = served(ids) if is_confirmed else claim(ids)
        made = running(name, texts, node, len(ids))
    membership = Membership(
        job=JOB,
        size=least if least is not None else size,
        is_least=least is not None,
        rank=rank,
        size_source=source,
    )
    member = Member(
        name=name,
        membership=membership,
        demands=Demands(kind=on_nodes, on_nodes=on_nodes),
    )
    texts = GRACE if says is None else says
    wishes = FaultWishes(texts=texts) if texts else None
    return replace(made, member=member, wishes=wishes)
