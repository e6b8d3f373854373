"""Questions to files: every part of a snapshot and of a job reaches its decision."""

from dataclasses import replace
from typing import Any

from scheduler_core.explain.node import NodeExplanation, Step
from scheduler_core.node.decision import LeafUse, Rejection
from scheduler_core.placement.job_rules import Profile
from scheduler_core.preemption.relaxations import FreeChip
from scheduler_core.products import table
from scheduler_core.snapshot import questions
from scheduler_core.snapshot.job import Job
from scheduler_core.snapshot.questions import Case
from scheduler_core.snapshot.values import (
    Snapshot,
    SnapshotBudget,
    SnapshotJob,
    SnapshotNode,
    SnapshotPod,
    SnapshotSwitches,
)
from tests.machines import EIGHT
from tests.scheduler_core.jobs import place_of, places_of
from tests.scheduler_core.leaf_parts import leaf_of
from tests.scheduler_core.snapshot.documents import node
from tests.support.rows import rows

RESOURCE = "huawei.com/Ascend910"
A3 = table.by_key("atlas-a3-8-superpod")


X, Y = {"zone": "x"}, {"zone": "y"}


def asked(found: Snapshot, chips: int = 8, **job: Any) -> Case:
    """A job for Ascend 910 chips of a snapshot."""
    return Case(snapshot=found, job=Job(resource=RESOURCE, chips=chips, **job))


def nodes(answer: object) -> list[str]:
    return [place.node for place in places_of(answer)]


def test_one_pod_goes_where_place_lets_it_among_the_nodes_of_its_selector() -> None:
    found = Snapshot(nodes=(node("a", labels=X), node("b", labels=Y)))

    place = place_of(questions.decide(asked(found, node_selector=Y)))

    assert (place.node, place.chips) == ("b", EIGHT)


def test_a_node_that_the_selector_does_not_allow_says_so() -> None:
    case = asked(Snapshot(nodes=(node("a", labels=X),)), node_selector=Y)

    said = "the job's node selector does not allow it"
    step = Step(about="selector", text=said, holds=False)
    assert questions.explain(case, "a") == NodeExplanation(node="a", steps=(step,))
    assert questions.decide(case) == Rejection(reasons=())


def test_pods_of_a_job_are_placed_together() -> None:
    found = Snapshot(nodes=(node("a"), node("b", held=(0,)), node("c")))

    answer = questions.decide(asked(found, pods=2))

    assert nodes(answer) == ["a", "c"]


def test_the_rules_over_a_job_hold_as_the_snapshot_says() -> None:
    strict = Snapshot(nodes=(node("a"),))
    relaxed = replace(strict, profile=Profile.PER_POD)

    refused = questions.decide(asked(strict, 4, pods=2))
    placed = questions.decide(asked(relaxed, 4, pods=2))

    text = "up to 8 chips must be one pod, found 2 pods"
    assert refused == Rejection(job=text, reasons=())
    assert nodes(placed) == ["a", "a"]


@rows(
    ("given", "job", "text"),
    {
        "none": (
            (),
            Job(resource=RESOURCE, chips=8, pods=2),
            "no node offers huawei.com/Ascend910",
        ),
        "no row": (
            (node("a"),),
            Job(resource="huawei.com/npu", chips=1),
            "no kind of server that we know serves such a job",
        ),
    },
)
def test_where_no_server_is_meant_all_answers_say_so(
    given: tuple[SnapshotNode, ...], job: Job, text: str
) -> None:
    case = Case(snapshot=Snapshot(nodes=given), job=job)

    step = Step(about="job", text=text, holds=False)
    assert questions.decide(case) == Rejection(job=text, reasons=())
    assert questions.explain(case, "a") == NodeExplanation(node="a", steps=(step,))
    assert questions.advise(case) is None


def servers(*, a2: int, a3: int) -> Snapshot:
    """So many Atlas A2, with room for eight chips each, and A3, for sixteen."""
    rows = [table.by_key("atlas-a3-16")] * a3 + [table.by_key("atlas-a2-8")] * a2
    names = [*(f"a{at}" for at in range(a3)), *(f"b{at}" for at in range(a2))]
    return Snapshot(
        nodes=tuple(
            node(name, product=row, chips=tuple(range(row.chip_count)))
            for name, row in zip(names, rows, strict=True)
        )
    )


@rows(
    ("found", "job", "said"),
    {
        "the first by key": (servers(a2=4, a3=2), {}, ["b0", "b1", "b2", "b3"]),
        "the next": (servers(a2=3, a3=2), {}, ["a0", "a0", "a1", "a1"]),
        "together only": (
            servers(a2=3, a3=1),
            {},
            (
                "a job gets servers of one kind; "
                "Atlas A2 server with 8 chips: 3 of 4 pods fit; "
                "Atlas A3 server with 16 chips: 2 of 4 pods fit: "
                "4 taken by other pods of this job"
            ),
        ),
        "by label": (
            servers(a2=4, a3=2),
            {"node_selector": {"accelerator-type": "module-a3-16"}},
            ["a0", "a0", "a1", "a1"],
        ),
        "by label, full": (
            servers(a2=4, a3=1),
            {"node_selector": {"accelerator-type": "module-a3-16"}},
            "2 of 4 pods fit: 1 taken by other pods of this job",
        ),
        "by policy, full": (
            servers(a2=4, a3=1),
            {"annotations": {"huawei.com/schedule_policy": "chip2-node16"}},
            "2 of 4 pods fit: 4 no such NPU, 1 taken by other pods of this job",
        ),
    },
)
def test_d2_a_job_gets_servers_of_one_kind(
    found: Snapshot, job: dict[str, Any], said: list[str] | str
) -> None:
    case = asked(found, pods=4, **job)

    answer = questions.decide(case)

    if isinstance(answer, Rejection):
        assert answer.text == said
        assert questions.advise(case) is not None
        return
    assert sorted(nodes(answer)) == said
    assert questions.advise(case) is None
    explained = {each.name: questions.explain(case, each.name) for each in found.nodes}
    assert {name for name, each in explained.items() if each.fits} == {*said}


def test_d2_a_node_of_another_kind_says_where_the_job_goes() -> None:
    explained = questions.explain(asked(servers(a2=4, a3=2), pods=4), "a0")

    text = "the job goes to servers of another kind: Atlas A2 server with 8 chips"
    step = Step(about="kind", text=text, holds=False)
    assert explained == NodeExplanation(node="a0", steps=(step,))


def test_d2_no_node_is_explained_by_parts_of_another_kind() -> None:
    case = asked(servers(a2=3, a3=1), pods=4)

    texts = [questions.explain(case, name).text for name in ("a0", "b0")]

    assert ["HiAM" in text for text in texts] == [True, False]


def test_d2_one_pod_that_names_its_servers_gets_no_others() -> None:
    policy = {"huawei.com/schedule_policy": "chip2-node16"}
    case = asked(servers(a2=2, a3=0), annotations=policy)

    assert questions.decide(case) == Rejection(reasons=(("no such NPU", 2),))
    assert questions.evict(case) is None
    assert [step.text for step in questions.explain(case, "b0").steps] == [
        "Atlas A2 server with 8 chips; the job wants Atlas A3 server with 16 chips"
    ]


def test_d2_advice_frees_chips_rather_than_adds_nodes() -> None:
    """The A2s come first, and would need another server."""
    found = servers(a2=1, a3=1)
    taken = SnapshotPod(name="x", node="a0", chips=(0, 1))

    advised = questions.advise(asked(replace(found, pods=(taken,)), pods=2))

    assert advised is not None
    assert advised.text == "it would fit if chips 0, 1 of a0 were free"


def test_a_job_that_asks_for_it_lies_under_leaf_switches() -> None:
    leaves = tuple(leaf_of(name, name) for name in "ba")
    found = Snapshot(
        nodes=(node("a"), node("b")), switches=SnapshotSwitches(leaves=leaves)
    )
    labels = {"tor-affinity": "large-model-schema"}

    answer = questions.decide(asked(found, labels=labels))

    (place,) = places_of(answer)
    assert (place.node, place.leaf, place.leaf_use) == ("a", "a", LeafUse.IDLE)


def test_a_job_of_superpods_lies_in_them_as_its_block_and_reserve_say() -> None:
    found = Snapshot(
        nodes=(
            *(node(f"x{at}", product=A3, superpod=0) for at in range(2)),
            *(node(f"y{at}", product=A3, superpod=1) for at in range(3)),
        ),
        superpod_reserve=1,
    )
    case = asked(
        found,
        pods=2,
        annotations={"sp-block": "16"},
        node_selector={"accelerator-type": "module-a3-8-super-pod"},
    )

    assert nodes(questions.decide(case)) == ["y0", "y1"]
    assert questions.evict(case) is None
    explanation = questions.explain(case, "y0")
    assert [step.text for step in explanation.steps if step.about == "plan"] == [
        "gets pod-0"
    ]


def test_advice_is_given_for_one_pod_and_for_several() -> None:
    found = Snapshot(nodes=(node("a", held=(3,)), node("b")))

    advised = [
        questions.advise(asked(found, **job))
        for job in ({"node_selector": {"zone": "none"}}, {"pods": 2}, {})
    ]

    assert [each and each.text for each in advised] == [
        "it would fit if there was one more node (Atlas 800 training server)",
        "it would fit if chip 3 of a was free",
        None,
    ]
    assert advised[1] is not None
    assert advised[1].parts == (FreeChip(node="a", chip=3),)


def test_whom_to_evict_is_said_by_priorities_budgets_and_what_jobs_can_spare() -> None:
    def pod(name: str, first: int, **more: Any) -> SnapshotPod:
        return SnapshotPod(name=name, node="a", chips=(first, first + 1), **more)

    found = Snapshot(
        nodes=(node("a"),),
        pods=(
            pod("budgeted", 0, budgets=("strict",)),
            pod("member-0", 2, job="whole"),
            pod("member-1", 4, job="elastic"),
            pod("member-2", 6, job="elastic", started_s=5),
            pod("gone", 0, phase="Succeeded"),
        ),
        jobs=(
            SnapshotJob(name="whole"),
            SnapshotJob(name="elastic", min_available=1),
        ),
        budgets=(SnapshotBudget(name="strict", allowed=0),),
    )

    victims = [
        questions.evict(asked(found, chips, priority=priority))
        for chips, priority in ((2, 1), (8, 1), (2, 0))
    ]

    assert [each and [pod.name for pod in each.victims] for each in victims] == [
        ["member-1"],
        ["member-2", "budgeted", "member-0", "member-1"],
        None,
    ]
