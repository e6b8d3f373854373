"""Batch cases: one job and one node in a line of JSON, answered by a line of JSON.

The format serves to compare many thousand cases with other implementations.

    {"resource": "huawei.com/Ascend910", "node_selector": {}, "labels": {},
     "annotations": {}, "node_labels": {}, "count": 2, "pods": 1,
     "node": {"chips": 8, "free": [0, 1, 4], "unhealthy": [], "network_unhealthy": []}}

    {"row": "atlas-800-training", "job_valid": true, "fits": true, "chips": [0, 1],
     "score": [0, 0, 1], "reason": ""}

`pods` above 1 means a job whose pods talk over the network.
`score` is the sort key: smaller is better, empty if the node cannot serve.
Required are `resource`, `count`, `node` and its `chips`; the rest is optional.
The answer to a line that cannot be read is `{"error": …}`.
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
from scheduler_core.snapshot.job import is_block_size
from scheduler_core.snapshot.reader import Reader, SnapshotError
from scheduler_core.wire.quote import quote_value
from scheduler_core.wire.typed import (
    as_integer,
    as_name,
    as_string,
    parse_json,
)

#: largest number of chips of a node; no product has as many
_MOST_CHIPS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Job and node of one line."""

    resource: str
    job: Traits
    node_labels: Mapping[str, str]
    count: int
    pods: int
    #: number of chips; their physical ids start at 0
    chips: int
    free: tuple[int, ...]
    unhealthy: tuple[int, ...]
    network_unhealthy: tuple[int, ...]


def answer(line: str, profile: Profile = Profile.SEED) -> str:
    """Return the answer to one line, without a line end."""
    try:
        case = parse(line)
    except SnapshotError as error:
        return json.dumps({"error": "; ".join(error.problems)}, ensure_ascii=False)
    return json.dumps(_answer_case(case, profile), ensure_ascii=False)


def parse(line: str) -> Case:
    """Parse the case of one line.

    Raises:
        SnapshotError: The line breaks the format; has all problems.
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
    chip_count = reader.get(node, "chips", as_integer, path="node", default=0)
    if not 0 <= chip_count <= _MOST_CHIPS:
        reader.report("node.chips", f"0 to {_MOST_CHIPS}", chip_count)
        chip_count = 0

    def ids(name: str) -> tuple[int, ...]:
        return reader.chips(node.get(name, []), range(chip_count), f"node.{name}")

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
        chips=chip_count,
        free=ids("free"),
        unhealthy=ids("unhealthy"),
        network_unhealthy=ids("network_unhealthy"),
    )
    if case.pods < 1:
        reader.report("pods", "1 or more", case.pods)
    reader.finish()
    return case


def _as_json(value: object, path: str) -> object:
    return parse_json(as_string(value, path), path)


def _answer_case(case: Case, profile: Profile) -> dict[str, object]:
    row = lookup.find_row(case.resource, case.node_labels, case.job)
    problems = _problems(case, row, profile)
    answer_fields: dict[str, object] = {
        "row": row and row.key,
        "job_valid": not problems,
        "fits": False,
        "chips": (),
        "score": (),
        "reason": "; ".join(problems),
    }
    if row is None:
        return answer_fields
    if case.chips > row.chip_count:
        return answer_fields | {"reason": f"more chips than any {row.name} has"}
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
    return answer_fields | _on_node(node, row, case.count, problems)


def _on_node(
    node: NodeState, row: Product, count: int, problems: list[str]
) -> dict[str, object]:
    usable = node.usable(row)
    free = node.free & usable
    why = chips.find_reason(row, free, node.healthy, count, usable=usable)
    if why is not None:
        return {"reason": "; ".join([*problems, refusal(why, row, count).text])}
    chosen = chips.choose(row, free, count)
    score = order.rank(row, node.healthy, free, count)
    return {"fits": True, "chips": chips.ids_of(chosen), "score": score}


def _problems(case: Case, row: Product | None, profile: Profile) -> list[str]:
    block = case.job.annotations.get(SP_BLOCK)
    if block is not None and not is_block_size(block):
        quoted = quote_value(block)
        return [f"annotation {SP_BLOCK}: expected a whole number, found {quoted}"]
    job = Job(
        row=row,
        pods=tuple(Pod(name=f"pod-{i}", chips=case.count) for i in range(case.pods)),
        sp_block=None if block is None else int(block),
    )
    if case.count < 1 and row is not None:
        return [f"count: expected 1 or more, found {case.count}"]
    return [problem.text for problem in job_rules.problems(job, profile)]
