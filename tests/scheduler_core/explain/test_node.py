from itertools import product as every

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.explain import node as node_explanation
from scheduler_core.explain.node import NodeExplanation, Step
from scheduler_core.index.cluster import Cluster
from scheduler_core.node.decision import Placement, Rejection
from scheduler_core.node.reasons import Reason
from scheduler_core.placement.gang_on_superpods import SuperPods
from scheduler_core.placement.job import Terms
from scheduler_core.placement.job_rules import Job
from scheduler_core.placement.pod import place
from scheduler_core.products import table
from scheduler_core.products.table import ATLAS_800_TRAINING as ATLAS
from scheduler_core.products.table import Product
from scheduler_core.topology.leaves import Network, Schema
from tests.machines import EIGHT, RINGS, atlas, node_state
from tests.scheduler_core.jobs import job_of
from tests.scheduler_core.leaf_parts import leaf_of

ROWS = [row for row in table.PRODUCTS if row.resource != "huawei.com/npu"]
A3 = table.by_key("atlas-a3-8-superpod")


def check(explanation: NodeExplanation, answer: Placement | Rejection) -> None:
    """Each node's verdict is the one that `place` counts."""
    assert explanation.fits == isinstance(answer, Placement)
    said = [step.text for step in explanation.steps if not step.holds]
    if isinstance(answer, Rejection):
        ((text, _),) = answer.reasons
        assert len(said) == 1
        assert said[0].endswith(text) or text == "no such NPU"
    else:
        (choice,) = [step.text for step in explanation.steps if step.about == "choice"]
        assert choice == f"{', '.join(map(str, answer.chips))}: {answer.reason}"


def test_a_verdict_is_what_place_says_of_that_node() -> None:
    for free, healthy, count in every(range(0, 256, 5), (0xFF, 0x7F, 0x33), range(10)):
        node = node_state("a", ATLAS, free, healthy=healthy)
        cluster = Cluster([node])

        explanation = node_explanation.explain(ATLAS, count, cluster, "a")

        check(explanation, place(ATLAS, count, cluster))


@pytest.mark.property
@given(
    row=st.sampled_from(ROWS),
    wanted=st.sampled_from(ROWS),
    masks=st.tuples(st.integers(0), st.integers(0), st.integers(0, 0xFF)),
    count=st.integers(0, 17),
    in_network=st.booleans(),
    avoided=st.booleans(),
    barred=st.sampled_from([None, None, None, Reason.AGENT_SILENT]),
)
def test_of_every_row_a_verdict_is_what_place_says(  # noqa: PLR0913  # a strategy each
    row: Product,
    wanted: Product,
    masks: tuple[int, int, int],
    count: int,
    barred: Reason | None,
    *,
    in_network: bool,
    avoided: bool,
) -> None:
    free, healthy, bad_network = masks
    healthy = (healthy | 0xFF) & row.all_chips
    node = node_state(
        "a", row, free, healthy=healthy, network_unhealthy=bad_network, barred=barred
    )
    cluster, avoid = Cluster([node]), ("a",) if avoided else ()

    explanation = node_explanation.explain(
        wanted, count, cluster, "a", avoid=avoid, in_network=in_network
    )

    check(
        explanation, place(wanted, count, cluster, avoid=avoid, in_network=in_network)
    )


SERVES = """\
a can serve
  ok node       Atlas 800 training server
  ok count      a pod may have 1, 2, 4 or 8
  ok health     7 of 8 chips, not 3
  ok free       0, 1, 4, 5, 6, 7
  ok groups     by HCCS ring: 0, 1 | 4, 5, 6, 7
  ok choice     4, 5, 6, 7: the last 4 free of one HCCS ring (2 more free on the node)\
, on a node with 7 of 8 chips healthy
  ok rank       chips missing: 1, place in the preference: 0, more free chips: 2; \
nodes with less come first
  ok fragments  2 now, +0
  ok order      1 of 2 that can serve come before, first c
"""
FAILS = """\
b cannot serve
  ok node    Atlas 800 training server
  ok count   a pod may have 1, 2, 4 or 8
  ok health  all 8 chips
  NO free    0, 4, 5: without 4 free chips
  ok groups  by HCCS ring: 0 | 4, 5
"""


def test_what_is_so_is_said_for_a_person() -> None:
    cluster = Cluster(
        [
            atlas("a", (*RINGS[0][:2], *RINGS[1]), healthy={*EIGHT} - {3}),
            atlas("b", (0, 4, 5)),
            atlas("c", RINGS[0]),
        ]
    )

    texts = [node_explanation.explain(ATLAS, 4, cluster, name).text for name in "ab"]

    assert texts == [SERVES, FAILS]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nowhere", "no node of that name has NPUs"),
        ("a", "Atlas 800 training server; the job wants nodes with huawei.com/npu"),
    ],
)
def test_a_node_that_cannot_be_meant_says_so(name: str, said: str) -> None:
    explanation = node_explanation.explain(
        "huawei.com/npu", 1, Cluster([atlas("a")]), name
    )

    step = Step(about="node", text=said, holds=False)
    assert explanation == NodeExplanation(node=name, steps=(step,))


def test_a_guest_says_by_whose_rule_it_serves() -> None:
    duo = table.by_key("atlas-300i-duo-chip")
    node = node_state("a", duo, inventory=0xFF)
    wanted = table.by_key("atlas-300i-duo-distributed")

    explanation = node_explanation.explain(wanted, 2, Cluster([node]), "a")

    assert explanation.steps[0].text == (
        "server with 300I Duo cards, by chip, served as server with 300I Duo cards, "
        "distributed inference"
    )


def ends(explanation: NodeExplanation, number: int) -> list[tuple[str, str, bool]]:
    steps = explanation.steps[-number:]
    return [(step.about, step.text, step.holds) for step in steps]


@pytest.mark.parametrize(
    ("given_job", "said"),
    [
        (job_of(ATLAS, 4, 4), "up to 8 chips must be one pod, found 2 pods"),
        (job_of(None, 4), "no kind of server that we know serves such a job"),
        (job_of(ATLAS), "no pod asks for chips"),
    ],
)
def test_what_is_wrong_with_a_job_is_said_of_every_node(
    given_job: Job, said: str
) -> None:
    explanation = node_explanation.explain_job(given_job, Cluster([atlas("a")]), "a")

    assert explanation == NodeExplanation(
        node="a", steps=(Step(about="job", text=said, holds=False),)
    )


def test_the_plan_says_which_pods_a_node_gets_or_where_they_go_instead() -> None:
    cluster = Cluster([atlas("a"), atlas("b", RINGS[0]), atlas("c")])

    verdicts = [
        node_explanation.explain_job(job_of(ATLAS, 4), cluster, name) for name in "ab"
    ]

    assert [each.steps[0].text for each in verdicts] == ["one pod of 4 chips"] * 2
    assert [ends(each, 1) for each in verdicts] == [
        [("plan", "the job goes to b", True)],
        [("plan", "gets pod-0", True)],
    ]


def test_a_plan_that_fails_is_said_although_the_node_could_serve() -> None:
    explanation = node_explanation.explain_job(
        job_of(ATLAS, 8, 8), Cluster([atlas("a")]), "a"
    )

    assert not explanation.fits
    assert explanation.steps[0].text == (
        "2 pods of up to 8 chips, that talk over the network"
    )
    assert ends(explanation, 1) == [
        ("plan", "1 of 2 pods fit: 1 taken by other pods of this job", False)
    ]


def test_of_a_node_that_cannot_serve_the_plan_is_not_asked() -> None:
    cluster = Cluster([atlas("a"), atlas("b", ())])

    explanation = node_explanation.explain_job(job_of(ATLAS, 8), cluster, "b")

    assert [step.about for step in explanation.steps] == [
        *("job", "node", "count", "health", "free", "groups")
    ]


def test_many_nodes_of_a_plan_are_not_all_named() -> None:
    cluster = Cluster([atlas(f"n{at}") for at in range(6)])

    explanation = node_explanation.explain_job(job_of(ATLAS, *[8] * 5), cluster, "n5")

    assert ends(explanation, 1) == [
        ("plan", "the job goes to n0, n1, n2 and 2 more", True)
    ]


def test_under_leaves_and_in_superpods_it_is_said_where_a_node_hangs() -> None:
    network = Network(leaves=(leaf_of("x", "a"),))
    leaves = Terms(schema=Schema.NORMAL, network=network)
    joined = Terms(superpods=SuperPods(of_node={"a": 7}, reserve=0))
    a3 = [node_state(name, A3, inventory=0xFF) for name in "ab"]

    found = [
        ends(
            node_explanation.explain_job(given_job, Cluster(nodes), name, terms=terms),
            2,
        )
        for given_job, nodes, terms in (
            (job_of(ATLAS, 8), [atlas("a"), atlas("b")], leaves),
            (job_of(A3, 8, 8), a3, joined),
        )
        for name in "ab"
    ]

    assert [each[0] for each in found] == [
        ("leaf", "x", True),
        ("leaf", "under no leaf switch that is known", False),
        ("superpod", "SuperPoD 7", True),
        ("superpod", "in a SuperPoD that is not known", False),
    ]
    assert found[0][1] == ("plan", "gets pod-0", True)
    assert found[1][1] == ("plan", "the job goes to a", True)
