"""Many small questions, one in a line: is this job legal, and does this node serve it?

So that many thousand cases can be compared with any other implementation.

    {"resource": "huawei.com/Ascend910", "node_selector": {}, "labels": {},
     "annotations": {}, "node_labels": {}, "count": 2, "pods": 1,
     "node": {"chips": 8, "free": [0, 1, 4], "unhealthy": [], "network_unhealthy": []}}

    {"row": "atlas-800-training", "job_valid": true, "fits": true, "chips": [0, 1],
     "score": [0, 0, 1], "reason": ""}

`pods` above 1 is a job that talks over the network. `score` is the sort key, smaller
is better, empty where the node does not serve. Only resource, count and node must be
there, and of the node its number of chips. A line that cannot be read is answered by
`{"error": …}`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from scheduler_core.node import chips, order
from scheduler_core.node.reasons import refusal
from scheduler_core.node.state import NodeState
from scheduler_core.placement import job_rules
from scheduler_core.placement.job_rules import Job, Pod, Profile
from scheduler_core.products import lookup
from scheduler_core.products.columns import Product, distributed
from scheduler_core.products.lookup import SP_BLOCK, Traits
from scheduler_core.snapshot.job import is_block
from scheduler_core.snapshot.reader import Reader, SnapshotError
from scheduler_core.wire.shown import shown
from scheduler_core.wire.typed import (
    as_integer,
    as_name,
    as_string,
    parse_json,
)

#: chips of a node, at most: more than any product has
_MOST = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One question."""

    resource: str
    job: Traits
    node_labels: Mapping[str, str]
    count: int
    pods: int
    #: physical ids from 0
    chips: int
    free: tuple[int, ...]
    unhealthy: tuple[int, ...]
    network_unhealthy: tuple[int, ...]


def answer(line: str, profile: Profile = Profile.SEED) -> str:
    """The answer to one line, without a line end."""
    try:
        case = parse(line)
    except SnapshotError as error:
        return json.dumps({"error": "; ".join(error.problems)}, ensure_ascii=False)
    return json.dumps(_decide(case, profile), ensure_ascii=False)


def parse(line: str) -> Case:
    """The question of one line.

    Raises:
        SnapshotError: Anything that is not as the format demands, all at once.
    """
    reader = Reader()
    document = reader.read(_as_json, line, "line", default=None)
    reader.finish()
    root = reader.fields(
        document,
        "line",
        required=("resource", "count", "node"),
        optional=("node_selector", "labels", "annotations", "node_labels", "pods"),
    )

    node = reader.fields(
        root.get("node", {}),
        "node",
        required=("chips",),
        optional=("free", "unhealthy", "network_unhealthy"),
    )
    number = reader.get(node, "chips", as_integer, path="node", default=0)
    if not 0 <= number <= _MOST:
        reader.say("node.chips", f"0 to {_MOST}", number)
        number = 0

    def ids(name: str) -> tuple[int, ...]:
        return reader.chips(node.get(name, []), range(number), f"node.{name}")

    case = Case(
        resource=reader.get(root, "resource", as_name, default=""),
        job=Traits(
            annotations=reader.texts(root, "annotations"),
            labels=reader.texts(root, "labels"),
            node_selector=reader.texts(root, "node_selector"),
        ),
        node_labels=reader.texts(root, "node_labels"),
        count=reader.get(root, "count", as_integer, default=1),
        pods=reader.get(root, "pods", as_integer, default=1),
        chips=number,
        free=ids("free"),
        unhealthy=ids("unhealthy"),
        network_unhealthy=ids("network_unhealthy"),
    )
    if case.pods < 1:
        reader.say("pods", "1 or more", case.pods)
    reader.finish()
    return case


def _as_json(value: object, path: str) -> object:
    return parse_json(as_string(value, path), path)


def _decide(case: Case, profile: Profile) -> dict[str, object]:
    row = lookup.find(case.resource, case.node_labels, case.job)
    problems = _problems(case, row, profile)
    known: dict[str, object] = {
        "row": row and row.key,
        "job_valid": not problems,
        "fits": False,
        "chips": (),
        "score": (),
        "reason": "; ".join(problems),
    }
    if row is None:
        return known
    if case.chips > row.chip_count:
        return known | {"reason": f"more chips than any {row.name} has"}
    row = distributed(row) if case.pods > 1 else row
    healthy = (1 << case.chips) - 1 & ~chips.mask_of(case.unhealthy)
    node = NodeState(
        name="node",
        product=row,
        inventory=(1 << case.chips) - 1,
        healthy=healthy,
        free=chips.mask_of(case.free) & healthy,
        network_unhealthy=chips.mask_of(case.network_unhealthy),
    )
    return known | _on_node(node, row, case.count, problems)


def _on_node(
    node: NodeState, row: Product, count: int, problems: list[str]
) -> dict[str, object]:
    usable = node.usable(row)
    free = node.free & usable
    why = chips.why_not(row, free, node.healthy, count, usable=usable)
    if why is not None:
        return {"reason": "; ".join([*problems, refusal(why, row, count).text])}
    chosen = chips.choose(row, free, count)
    score = order.rank(row, node.healthy, free, count)
    return {"fits": True, "chips": chips.ids_of(chosen), "score": score}


def _problems(case: Case, row: Product | None, profile: Profile) -> list[str]:
    block = case.job.annotations.get(SP_BLOCK)
    if block is not None and not is_block(block):
        found = shown(block)
        return [f"annotation {SP_BLOCK}: expected a whole number, found {found}"]
    job = Job(
        row=row,
        pods=tuple(Pod(name=f"pod-{i}", chips=case.count) for i in range(case.pods)),
        sp_block=None if block is None else int(block),
    )
    if case.count < 1 and row is not None:
        return [f"count: expected 1 or more, found {case.count}"]
    return [problem.text for problem in job_rules.problems(job, profile)]
