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
from typing import Any

from scheduler_core.documents.parsers import chips, name, read_json, texts, whole
from scheduler_core.documents.reader import DocumentError, Part
from scheduler_core.node import chips as chip_sets
from scheduler_core.node import order
from scheduler_core.node.reasons import refusal
from scheduler_core.node.state import NodeState
from scheduler_core.placement import job_rules
from scheduler_core.placement.job_rules import Job, Profile
from scheduler_core.products import lookup
from scheduler_core.products.columns import Product, distributed
from scheduler_core.products.lookup import SP_BLOCK, Traits
from scheduler_core.snapshot.job import is_block_size
from scheduler_core.wire.quote import quote_value

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
    except DocumentError as error:
        return json.dumps({"error": "; ".join(error.problems)}, ensure_ascii=False)
    return json.dumps(_answer_case(case, profile), ensure_ascii=False)


def parse(line: str) -> Case:
    """Parse the case of one line.

    Raises:
        DocumentError: The line breaks the format; has all problems.
    """
    return read_json(line, _read_case)


def _read_case(part: Part) -> Case:
    fields = part.fields(
        *("resource", "count", "node", "node_selector", "labels", "annotations"),
        *("node_labels", "pods"),
    )
    traits = {
        key: fields.get(key, texts({}), {})
        for key in ("annotations", "labels", "node_selector")
    }
    return Case(
        resource=fields.need("resource", name, ""),
        job=Traits(**traits),
        node_labels=fields.get("node_labels", texts({}), {}),
        count=fields.need("count", whole(), 1),
        pods=fields.get("pods", whole(1), 1),
        **fields.need("node", _read_node),
    )


def _read_node(part: Part) -> dict[str, Any]:
    """Return the chips of a node, by the names of a case."""
    fields = part.fields("chips", "free", "unhealthy", "network_unhealthy")
    count = fields.need("chips", whole(0, _MOST_CHIPS))
    some = chips(range(count))
    return {
        "chips": count,
        **{
            key: fields.get(key, some, ())
            for key in ("free", "unhealthy", "network_unhealthy")
        },
    }


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
    healthy = (1 << case.chips) - 1 & ~chip_sets.mask_of(case.unhealthy)
    node = NodeState(
        name="node",
        product=row,
        inventory=(1 << case.chips) - 1,
        healthy=healthy,
        free=chip_sets.mask_of(case.free) & healthy,
        network_unhealthy=chip_sets.mask_of(case.network_unhealthy),
    )
    return answer_fields | _on_node(node, row, case.count, problems)


def _on_node(
    node: NodeState, row: Product, count: int, problems: list[str]
) -> dict[str, object]:
    usable, free = node.usable(row), node.free_for(row)
    why = chip_sets.find_reason(row, free, node.healthy, count, usable=usable)
    if why is not None:
        return {"reason": "; ".join([*problems, refusal(why, row, count).text])}
    chosen = chip_sets.choose(row, free, count)
    score = order.rank(row, node.healthy, free, count)
    return {"fits": True, "chips": chip_sets.ids_of(chosen), "score": score}


def _problems(case: Case, row: Product | None, profile: Profile) -> list[str]:
    block = case.job.annotations.get(SP_BLOCK)
    if block is not None and not is_block_size(block):
        quoted = quote_value(block)
        return [f"annotation {SP_BLOCK}: expected a whole number, found {quoted}"]
    job = Job(
        row=row,
        pods=job_rules.pods_alike(case.pods, case.count),
        sp_block=None if block is None else int(block),
    )
    if case.count < 1 and row is not None:
        return [f"count: expected 1 or more, found {case.count}"]
    return [problem.text for problem in job_rules.problems(job, profile)]
