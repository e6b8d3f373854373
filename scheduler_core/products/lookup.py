"""Look-up of the row of the table that a job or a node means.

A job names its row by resource, annotations, labels and node selector. Where the job
names none, the labels of the node decide.

    resource                     what decides, the first with a value
    ---------------------------  -------------------------------------------------
    huawei.com/npu               schedule_policy; without it no row
    huawei.com/Ascend910         schedule_policy, sp-block, accelerator-type
    huawei.com/Ascend310, 310P   labels npu-310-strategy, duo, distributed
    huawei.com/Ascend910-4c …    itself: a static virtual device

Source:
    MindCluster ascend-for-volcano, selection of the policy of a job.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType

from scheduler_core.products import table
from scheduler_core.products.columns import GroupKind, JobRule, Product, Way

SCHEDULE_POLICY = "huawei.com/schedule_policy"
#: chips of a logical SuperPoD
SP_BLOCK = "sp-block"
ACCELERATOR_TYPE = "accelerator-type"

#: policies of MindCluster that no row serves yet
_NOT_BUILT = frozenset({"chip8-node8-ra64-sp", "chip1-softShareDev", "multilevel"})
_VIRTUAL = re.compile(
    r"huawei\.com/(?P<line>Ascend910|Ascend310P)-[0-9]+c(\.[0-9a-z.]+)?"
)
#: row of the largest server of a product line
_LARGEST = {"Ascend910": "flat-16", "Ascend310P": "atlas-310p"}
#: numbers that the driver keeps for the parts of one chip
_PARTS_EACH = 16

#: resources of parts that are cut beforehand: the kinds of a 310P, of a 910A, and of
#: the 910B and A3
STATIC_PARTS: tuple[str, ...] = (
    *(f"huawei.com/Ascend310P-{kind}" for kind in ("1c", "2c", "2c.1cpu", "4c")),
    *(
        f"huawei.com/Ascend310P-{kind}"
        for kind in ("4c.3cpu", "4c.3cpu.ndvpp", "4c.4cpu.dvpp")
    ),
    *(f"huawei.com/Ascend910-{kind}" for kind in ("2c", "4c", "8c", "16c")),
    *(
        f"huawei.com/Ascend910-{kind}"
        for kind in (
            *("5c.1cpu.8g", "5c.1cpu.16g", "6c.1cpu.16g", "10c.3cpu.16g"),
            *("10c.3cpu.16g.ndvpp", "10c.4cpu.16g.dvpp", "10c.3cpu.32g"),
            "12c.3cpu.32g",
        )
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """Metadata of a job that names its row, besides the resource; all may be empty."""

    annotations: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)


#: a job with a resource only
PLAIN = Traits()


def find_row(
    resource: str, node_labels: Mapping[str, str], job: Traits = PLAIN
) -> Product | None:
    """Return the row by which a node serves a job; None when no row serves it there.

    Args:
        resource: Kubernetes resource, as `huawei.com/Ascend910`.
        node_labels: All labels of the node; may be empty.
        job: Metadata of the job; the default finds the row of the node itself.
    """
    row = _requested_row(resource, job, node_labels.get(ACCELERATOR_TYPE, ""))
    if row is None:
        return None
    fits = all(
        node_labels.get(name) == value for name, value in row.node_labels.items()
    )
    return row if fits else None


def find_node_row(
    resource: str, node_labels: Mapping[str, str], published: Sequence[str] = ()
) -> Product | None:
    """Return the row of a node's hardware, which serves jobs that name no row.

    What the node's agent has published decides, then the labels, then the resource.

    Args:
        resource: Kubernetes resource of the chips.
        node_labels: All labels of the node; may be empty.
        published: As for `choose_node_row`.
    """
    return choose_node_row(
        resource, published, by_node=_find_labelled_row(resource, node_labels)
    )


def choose_node_row(
    resource: str, published: Sequence[str], *, by_node: Product | None
) -> Product | None:
    """Return the row of a node's hardware, of the rows that its agent has published.

    The first key of the resource is the row that the agent knows from the chips. The
    other keys are rows that the same chips may be: there the labels decide. Keys of
    rows that are not known here mean nothing.

    Args:
        resource: Kubernetes resource of the chips.
        published: Keys from the agent, for all resources; empty without an agent, or
            from an agent that publishes none.
        by_node: Row that labels and resource mean; None if they mean none.
    """
    row_of = {row.key: row for row in _rows(resource)}
    # a hostile text may have a hundred thousand keys
    rows = [row_of[key] for key in published if key in row_of]
    return rows[0] if rows and by_node not in rows else by_node


def accelerator_type_of(row: Product) -> str:
    """Return the value of a node's `accelerator-type` that means a row; "" if none.

    Of several, it is the last: the one that the chips of such a server show.
    """
    values = (*row.node_types, *row.accelerator_types)
    return values[-1] if values else ""


def may_have_type(row: Product, accelerator_type: str) -> bool:
    """Return whether a node with this row may have a value of `accelerator-type`.

    Of rows that no value means, a node may have any.
    """
    if not (*row.node_types, *row.accelerator_types):
        return True
    return find_node_row(row.resource, {ACCELERATOR_TYPE: accelerator_type}) is row


def _find_labelled_row(resource: str, node_labels: Mapping[str, str]) -> Product | None:
    """Return the row that the labels of a node mean, or no labels.

    A node whose labels match `node_labels` of rows has the most general of these.
    Other nodes have the row of a job without metadata (`PLAIN`). Where only the job's
    policy decides (`huawei.com/npu`), `accelerator-type` names the hardware.
    """
    labelled_rows = [
        row
        for row in table.PRODUCTS
        if row.resource == resource
        and row.node_labels
        and row.node_labels.items() <= node_labels.items()
    ]
    row = labelled_rows[-1] if labelled_rows else find_row(resource, node_labels)
    return row or _by_node_type(resource, node_labels.get(ACCELERATOR_TYPE, ""))


def _by_node_type(resource: str, node_type: str) -> Product | None:
    rows = _rows(resource)
    matches = [
        row for value in (node_type, "") for row in rows if value in row.node_types
    ]
    return next(iter(matches), None)


def resolve_job(resource: str, job: Traits) -> Product | str | None:
    """Return the row that a job names, or its resource when the node decides.

    `cluster.Cluster` and `pod.place` take the result as `wanted`.

    Returns:
        None when no row serves such a job.
    """
    rows = _rows(resource)
    job_decides = (
        SP_BLOCK in job.annotations
        or ACCELERATOR_TYPE in job.node_selector
        or _by_policy(rows, job) is not None
        or _policy_is_unserved(job)
    )
    nodes_decide = any(row.accelerator_types for row in rows)
    if nodes_decide and not job_decides:
        return resource
    return _requested_row(resource, job, "")


def _requested_row(resource: str, job: Traits, accelerator: str) -> Product | None:
    rows = _rows(resource)
    policy_row = _by_policy(rows, job)
    if policy_row is not None:
        return policy_row
    if any(row.policies for row in rows) and _policy_is_unserved(job):
        return None
    if any(row.accelerator_types for row in rows):
        accelerator = job.node_selector.get(ACCELERATOR_TYPE, accelerator)
        return _by_accelerator(
            rows, accelerator, in_superpod=SP_BLOCK in job.annotations
        )
    plain = (row for row in rows if not row.policies and _labels_match(row, job.labels))
    return next(plain, None)


@cache
def find_virtual_row(resource: str) -> Product | None:
    """Return the row of a static virtual device; None for any other resource.

    Its chips are the parts of one kind, its groups the chips that they are cut from. An
    id is the driver's number of the part, from the first number on; the driver numbers
    the parts of chip c from 100 + 16 c. A pod gets one part, of the chip with the
    fewest that are free: so chips stay untouched.

    Args:
        resource: Kubernetes resource, as `huawei.com/Ascend910-4c`.
    """
    match = _VIRTUAL.fullmatch(resource)
    if match is None:
        return None
    name = resource.rpartition("/")[2]
    chip_row = table.by_key(_LARGEST[match["line"]])
    fills = tuple(range(1, _PARTS_EACH + 1))
    return Product(
        name="static virtual device",
        key=name.lower(),
        servers=(),
        resource=resource,
        chip_prefix=f"{name}-",
        chip_count=_PARTS_EACH * chip_row.chip_count,
        group_size=_PARTS_EACH,
        group_kind=GroupKind.CHIP,
        ways=MappingProxyType({1: (Way.GROUPS,)}),
        group_preference=MappingProxyType({1: fills}),
        capacity_staged=False,
        network_health=False,
        chip_row=chip_row,
        source=(
            "Affinity scheduling of NPUs, 'Resource application constraints', 5; Node "
            "Scoring, 'Common Node Selection Principle' (fewer fragments)"
        ),
    )


def _rows(resource: str) -> list[Product]:
    device = find_virtual_row(resource)
    if device is not None:
        return [device]
    return [row for row in table.PRODUCTS if row.resource == resource]


def _by_policy(rows: list[Product], job: Traits) -> Product | None:
    policy = job.annotations.get(SCHEDULE_POLICY)
    return next((row for row in rows if policy in row.policies), None)


def _policy_is_unserved(job: Traits) -> bool:
    return job.annotations.get(SCHEDULE_POLICY) in _NOT_BUILT


def _by_accelerator(
    rows: Iterable[Product], accelerator: str, *, in_superpod: bool
) -> Product | None:
    """Return the row with this `accelerator-type`; unknown cards have the A300T's row.

    A job of logical SuperPoDs always means a row of SuperPoDs: the row with this type,
    else the first.
    """
    if in_superpod:
        rows = [row for row in rows if row.job_rule is JobRule.SUPERPOD]
    for value in (accelerator, "card" if "card" in accelerator else accelerator):
        for row in rows:
            if value in row.accelerator_types:
                return row
    return next(iter(rows)) if in_superpod else None


def _labels_match(row: Product, labels: Mapping[str, str]) -> bool:
    return all(
        labels.get(name, "") in values for name, values in row.job_labels.items()
    )
