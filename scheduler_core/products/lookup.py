"""Which row of the table a job or a node means.

The job says it by its resource, annotations, labels and node selector; what it leaves
open, the node says by its own labels.

    resource                     what decides, the first that says something
    ---------------------------  -------------------------------------------------
    huawei.com/npu               schedule_policy; without it no row
    huawei.com/Ascend910         schedule_policy, sp-block, accelerator-type
    huawei.com/Ascend310, 310P   labels npu-310-strategy, duo, distributed
    huawei.com/Ascend910-4c …    itself: a static virtual device

Source:
    MindCluster ascend-for-volcano, selection of the policy of a job.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from types import MappingProxyType

from scheduler_core.products import table
from scheduler_core.products.columns import JobRule, Product, Way

SCHEDULE_POLICY = "huawei.com/schedule_policy"
#: chips of a logical SuperPoD
SP_BLOCK = "sp-block"
ACCELERATOR_TYPE = "accelerator-type"

#: policies that are known, but that no row serves yet
_NOT_BUILT = frozenset({"chip8-node8-ra64-sp", "chip1-softShareDev", "multilevel"})
_VIRTUAL = re.compile(r"huawei\.com/Ascend(910|310P)-[0-9]+c(\.[0-9a-z.]+)?")
_NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What of a job tells its row, besides the resource. All may be empty."""

    annotations: Mapping[str, str] = field(default_factory=lambda: _NONE)
    labels: Mapping[str, str] = field(default_factory=lambda: _NONE)
    node_selector: Mapping[str, str] = field(default_factory=lambda: _NONE)


#: a job that says nothing but its resource
PLAIN = Traits()


def find(
    resource: str, node_labels: Mapping[str, str], job: Traits = PLAIN
) -> Product | None:
    """The row by which a job is served on a node; of no job, the node's own.

    Args:
        resource: The Kubernetes resource, as `huawei.com/Ascend910`.
        node_labels: All labels of the node; may be empty.
        job: What the job says.

    Returns:
        The row, or None when no row serves such a job, or not on such a node.
    """
    row = _asked(resource, job, node_labels.get(ACCELERATOR_TYPE, ""))
    if row is None:
        return None
    fits = all(node_labels.get(name) == said for name, said in row.node_labels.items())
    return row if fits else None


def of_node(resource: str, node_labels: Mapping[str, str]) -> Product | None:
    """The row of a node's hardware, by which jobs are served that ask for no other.

    That of a job that says nothing; but a node whose labels name rows of its own has
    the most general of these, and one whose resource leaves the row to the job's
    policy (`huawei.com/npu`) has the row of its hardware.
    """
    own = [
        row
        for row in table.PRODUCTS
        if row.resource == resource
        and row.node_labels
        and row.node_labels.items() <= node_labels.items()
    ]
    found = own[-1] if own else find(resource, node_labels)
    return found or _by_node_type(resource, node_labels.get(ACCELERATOR_TYPE, ""))


def _by_node_type(resource: str, said: str) -> Product | None:
    rows = _rows(resource)
    named = [row for value in (said, "") for row in rows if value in row.node_types]
    return next(iter(named), None)


def wanted(resource: str, job: Traits) -> Product | str | None:
    """The row that a job asks for; the resource when it leaves that to the node.

    What `cluster.Cluster` and `pod.place` look for.

    Returns:
        None when no row serves such a job.
    """
    rows = _rows(resource)
    says = (
        SP_BLOCK in job.annotations
        or ACCELERATOR_TYPE in job.node_selector
        or _by_policy(rows, job) is not None
        or _asks_for_more(job)
    )
    nodes_say = any(row.accelerator_types for row in rows)
    return resource if nodes_say and not says else _asked(resource, job, "")


def _asked(resource: str, job: Traits, accelerator: str) -> Product | None:
    rows = _rows(resource)
    named = _by_policy(rows, job)
    if named is not None:
        return named
    if any(row.policies for row in rows) and _asks_for_more(job):
        return None
    if any(row.accelerator_types for row in rows):
        said = job.node_selector.get(ACCELERATOR_TYPE, accelerator)
        return _by_accelerator(rows, said, in_superpod=SP_BLOCK in job.annotations)
    plain = (row for row in rows if not row.policies and _agree(row, job.labels))
    return next(plain, None)


@cache
def virtual(resource: str) -> Product | None:
    """The row of a static virtual device, as `huawei.com/Ascend910-4c`.

    One of them for a pod, whichever: where it lies is not ours to choose.

    Returns:
        The row, or None when the resource is no such device.
    """
    if not _VIRTUAL.fullmatch(resource):
        return None
    name = resource.rpartition("/")[2]
    return replace(
        table.by_key("atlas-310p"),
        name="static virtual device",
        key=name.lower(),
        servers=(),
        resource=resource,
        chip_prefix=f"{name}-",
        ways=MappingProxyType({1: (Way.LOWEST,)}),
        source="Affinity scheduling of NPUs, 'Resource application constraints', 5",
    )


def _rows(resource: str) -> list[Product]:
    device = virtual(resource)
    if device is not None:
        return [device]
    return [row for row in table.PRODUCTS if row.resource == resource]


def _by_policy(rows: list[Product], job: Traits) -> Product | None:
    policy = job.annotations.get(SCHEDULE_POLICY)
    return next((row for row in rows if policy in row.policies), None)


def _asks_for_more(job: Traits) -> bool:
    return job.annotations.get(SCHEDULE_POLICY) in _NOT_BUILT


def _by_accelerator(
    rows: Iterable[Product], said: str, *, in_superpod: bool
) -> Product | None:
    """The row of that `accelerator-type`; any other kind of card is an A300T's.

    A job of logical SuperPoDs means a row of SuperPoDs whatever is said, the first
    unless another is named.
    """
    if in_superpod:
        rows = [row for row in rows if row.job_rule is JobRule.SUPERPOD]
    for value in (said, "card" if "card" in said else said):
        for row in rows:
            if value in row.accelerator_types:
                return row
    return next(iter(rows)) if in_superpod else None


def _agree(row: Product, labels: Mapping[str, str]) -> bool:
    return all(labels.get(name, "") in said for name, said in row.job_labels.items())
