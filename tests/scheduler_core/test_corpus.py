"""Every recorded case, one test each; those of parts not built are skipped by a table.

An exception is a rule over the input, never the name of a case, and then the answer
that we hold to be right is asserted instead.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from scheduler_core.index.cluster import Cluster
from scheduler_core.node import chips
from scheduler_core.node import order as node_order
from scheduler_core.node.decision import JobPlacement
from scheduler_core.node.free import free_chips
from scheduler_core.placement import job_rules
from scheduler_core.placement.job import Terms, place_job
from scheduler_core.products import lookup
from scheduler_core.products.lookup import Traits
from scheduler_core.products.table import ATLAS_800_TRAINING, Product
from scheduler_core.topology.leaves import (
    TOR_AFFINITY,
    Network,
    Schema,
    schema_of,
)
from scheduler_core.wire.annotations import WireError, parse_chip_names, parse_chips
from tests.machines import mask, node_state
from tests.scheduler_core import corpus, part_corpus, superpod_corpus
from tests.scheduler_core.corpus import Case
from tests.scheduler_core.jobs import job_of
from tests.scheduler_core.leaf_parts import leaf_of, plan

Given = Mapping[str, Any]


def usable(row: Product, given: Given) -> int:
    node = corpus.node_of(row, given)
    return node.free & node.usable(row)


def check_chip_select(case: Case) -> None:
    row, given, wanted = corpus.row_of(case), case["input"], case["expect"]["chips"]
    answer = chips.ids_of(chips.choose(row, usable(row, given), given["request"]))

    if row.key == "atlas-300i-duo-chip" and given["request"] == 2:
        # One card before two halves: tests/scheduler_core/product_rules.py, `duo`.
        cards = {chip // 2 for chip in answer}
        whole = {c // 2 for c in given["free"] if c ^ 1 in given["free"]}
        assert len(answer) == len(wanted or ())
        assert len(cards) == (1 if whole else len(answer))
    elif row.key.startswith("mesh") and given["request"] % 4 and given["request"] > 4:
        # Whole meshes first, where the reference takes the lowest ids.
        assert len(answer) == len(wanted or ())
        assert set(answer) <= set(given["free"])
    else:
        assert set(answer) == set(wanted or ())


def check_node_predicate(case: Case) -> None:
    row, given = corpus.row_of(case), case["input"]
    if isinstance(raw := given.get("raw"), str):
        try:
            given = {**given, "free": parse_chips(raw, row)}
        except WireError:
            given = {**given, "free": []}
    labels = given.get("node_labels")
    served = labels is None or row.node_labels.items() <= labels.items()
    answer = served and chips.choose(row, usable(row, given), given["request"]) != 0

    assert answer == case["expect"]["ok"]


def ranks(row: Product, given: Given) -> dict[str, node_order.Rank | None]:
    nodes = [corpus.node_of(row, node) for node in given["nodes"]]
    count = given["request"]
    return {
        node.name: node_order.rank(
            row, node.healthy, node.free & node.usable(row), count
        )
        for node in nodes
    }


def check_node_rank(case: Case) -> None:
    found = ranks(corpus.row_of(case), case["input"])
    groups = [[found[name] for name in names] for names in case["expect"]["order"]]

    places = [rank for group in groups for rank in group if rank is not None]
    assert len(places) == sum(map(len, groups))
    assert places == sorted(places)


def check_node_score(case: Case) -> None:
    row, given = corpus.row_of(case), case["input"]
    found, scores = ranks(row, given), dict(case["expect"]["scores"])
    if row.key == "atlas-a3-16":
        # The reference scores no node after one that fits exactly; all are ordered
        # here: fewer chips left first, and for one chip a module in use first.
        scores = {node["name"]: a3_score(node, given) for node in given["nodes"]}
    worst = node_order.Rank(1 << 30, 0, 0)
    for one, other in ((a, b) for a in scores for b in scores if scores[a] > scores[b]):
        assert (found[one] or worst) < (found[other] or worst)


def a3_score(node: Given, given: Given) -> int:
    bad = set(node["net_unhealthy"]) if given["distributed"] else set()
    free, count = set(node["free"]) - bad, int(given["request"])
    whole = [chip for chip in free if chip ^ 1 in free]
    if len(whole if count > 1 else free) < count:
        return 0
    unused = count == 1 and len(whole) == len(free)
    return 16 * (32 - (len(free) - count) - 16 * unused)


def check_priority_array(case: Case) -> None:
    preference = corpus.row_of(case).group_preference

    assert list(preference[case["input"]["request"]]) == case["expect"]["priority"]


def check_allocation_sequence(case: Case) -> None:
    row, free, had = corpus.row_of(case), mask(case["input"]["free"]), {}
    answers = []
    for operation, pod, *rest in case["input"]["ops"]:
        if operation == "alloc":
            had[pod] = chips.choose(row, free, rest[0])
            answers.append(list(chips.ids_of(had[pod])))
            free &= ~had[pod]
        else:
            free |= had.pop(pod)

    assert answers == case["expect"]["chips"]
    assert list(chips.ids_of(free)) == case["expect"]["free_after"]


def check_available_cards(case: Case) -> None:
    row, given = corpus.row_of(case), case["input"]
    own = given["self_maintain"]
    pods = [
        pod if isinstance(pod, dict) else {"cards": pod, "phase": "Running"}
        for pod in given["pods"]
    ]
    living = [pod for pod in pods if pod["phase"] not in {"Failed", "Succeeded"}]

    def names(listed: Sequence[str]) -> int:
        return mask(parse_chip_names(listed, row, path="corpus"))

    answer = free_chips(
        healthy=names(given["base_devices"]) & ~names(given["unhealthy"]),
        claimed=names([name for pod in living if own for name in pod["cards"]]),
        held=0,
        releasing=0,
        listed=None if own else names(given["configmap_list"]),
    )

    assert answer == names(case["expect"]["available"])


def check_handler_select(case: Case) -> None:
    given, handler = case["input"], case["expect"]["handler"]
    job = Traits(
        annotations=given.get("annotations") or {},
        labels=given.get("labels") or {},
        node_selector=given.get("selector") or {},
    )
    duo = {"infer-card-type": "card-300i-duo"}
    row = lookup.find_row(given["resource"], duo, job)
    if handler is not None and handler not in corpus.HANDLERS:
        pytest.skip(f"no row stands for {handler}")

    found = set() if row is None else {row.key.removeprefix("npu-")}
    assert found <= corpus.HANDLERS[handler]
    assert bool(found) == (handler is not None)


def check_tor_label(case: Case) -> None:
    """A job of one pod on an empty cluster of one node, under its leaf."""
    given = case["input"]
    row = ATLAS_800_TRAINING
    node = node_state("n", row, inventory=1)
    network = (
        Network(leaves=(leaf_of("0", "n"),)) if given["tor_configmap_loaded"] else None
    )
    try:
        schema = schema_of((given.get("labels") or {}).get(TOR_AFFINITY, ""))
    except ValueError:
        valid = False
    else:
        terms = Terms(schema=schema, network=network)
        placed = place_job(job_of(row, 1), Cluster([node]), terms=terms)
        valid = isinstance(placed, JobPlacement)

    assert valid == case["expect"]["valid"]


def check_job_valid(case: Case) -> None:
    if case["product"] == "ToR affinity":
        check_tor_label(case)
        return
    if case["product"].startswith("vNPU"):
        part_corpus.check_job_valid(case)
        return
    row, given = corpus.row_of(case), case["input"]
    if "tasks" in given:
        pods = [pod_of(f"pod-{i}", task) for i, task in enumerate(given["tasks"])]
    else:
        number, total = given["npu_task_num"], given["job_total_chips"]
        pods = list(job_of(row, *(total // number for _ in range(number))).pods)
    job = job_rules.Job(
        row=row,
        pods=tuple(pods),
        total_chips=given.get("job_total_chips"),
        sp_block=given.get("sp_block_chips"),
        superpod_size=given.get("super_pod_size", 48),
    )
    profile = "seed" if "(seed policy)" in case["product"] else "per-pod"
    valid = not job_rules.problems(job, job_rules.Profile(profile))

    if row.key == "atlas-300i-card":  # the reference accepts what it cannot place
        assert valid == all(1 <= pod.chips <= 4 for pod in pods)
    else:
        assert valid == case["expect"]["valid"]


def pod_of(name: str, task: Given) -> job_rules.Pod:
    said = task.get("annotations") or {}
    excused = (
        said.get("volcano.sh/task-spec") == "scheduler"
        or said.get("huawei.com/skip-ascend-plugin") == "enabled"
    )
    return job_rules.Pod(name=name, chips=task["chips"], excused=excused)


def check_rank_annotation(case: Case) -> None:
    given = case["input"]
    written = given["pod_annotations"].get("hccl/rankIndex", "")
    answer = job_rules.choose_rank_annotation(
        given["task_index"],
        annotation=written,
        owner_kind=given["owner_kind"] or "",
        of_minimum="huawei.com/schedule_minAvailable" in given["job_annotations"],
    )

    assert (answer or written or None) == case["expect"]["hccl/rankIndex"]


def check_tor_schedule(case: Case) -> None:
    given, expect = case["input"], case["expect"]
    network, candidates = corpus.network_of(case)
    schema, tasks = Schema(given["job"]["tor-affinity"]), given["job"]["tasks"]
    found = plan(network, schema, tasks, dict.fromkeys(candidates, ("", 0)))
    if isinstance(found, str):
        assert not expect["ready"]
        return

    ranks = [node for part in found for _, node in part.nodes]
    # A job of the normal schema that falls back is placed, though an error is noted.
    assert expect["ready"]
    assert ranks == expect["ranks"]
    if expect.get("tors") is not None:
        assert [
            {
                "tor": int(part.nodes[0][0]),
                "isSharedTor": part.use.value,
                "isHealthy": 0 if part.healthy else 1,
                "nodes": len(part.nodes),
            }
            for part in found
        ] == expect["tors"]


def check_superpod(case: Case) -> None:
    superpod_corpus.CHECKS[case["area"]](case["input"], case["expect"])


CHECKS: dict[str, Callable[[Case], None]] = {
    "allocation_sequence": check_allocation_sequence,
    "available_cards": check_available_cards,
    "chip_select": check_chip_select,
    "handler_select": check_handler_select,
    "job_valid": check_job_valid,
    "node_predicate": check_node_predicate,
    "node_rank": check_node_rank,
    "node_score": check_node_score,
    "priority_array": check_priority_array,
    **dict.fromkeys(superpod_corpus.CHECKS, check_superpod),
    "rank_annotation": check_rank_annotation,
    "tor_schedule": check_tor_schedule,
    **part_corpus.CHECKS,
}


@pytest.mark.seed("004-12", "004-14", "002-02")
@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case["id"]) for case in corpus.load()]
)
def test_a_recorded_case_is_answered_as_recorded(case: Case) -> None:
    why = corpus.why_skipped(case)
    if why is not None:
        pytest.skip(why)

    CHECKS[case["area"]](case)


def test_nodes_of_the_recorded_order_are_found_in_that_order() -> None:
    """What the index answers one after the other, when each is taken away."""
    (case,) = [case for case in corpus.load() if case["area"] == "node_rank"][:1]
    row = corpus.row_of(case)
    cluster = Cluster(
        replace(node, product=row)
        for node in (corpus.node_of(row, given) for given in case["input"]["nodes"])
    )

    order = []
    while found := cluster.best(row.resource, case["input"]["request"]):
        order.append(found.node.name)
        cluster.drop(found.node.name, row)

    assert order == [
        name for names in case["expect"]["order"] for name in sorted(names)
    ]
