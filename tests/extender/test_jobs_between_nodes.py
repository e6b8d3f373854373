"""Jobs whose pods may not go everywhere, or not beside each other (G1, G1b).

What they demand is read, or learnt from the nodes that the scheduler does not offer.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from extender.cache import events
from extender.cache.requests import ONE_POD, Resources
from extender.gang import events as gang_events
from extender.gang.job_plan import Phase
from sandbox.apiclient import Object
from tests.extender import scheduler_rules as rules
from tests.extender.gangworld import GangWorld, sim_node, sim_pod
from tests.support.watched import node, pod_update

JOB = {"job": "j"}
KEY = "Job of pods/default/j"
ZONE = "topology.kubernetes.io/zone"


@contextmanager
def world(*nodes: Object, **options: Any) -> Iterator[GangWorld]:
    found = GangWorld(nodes or (sim_node("n1"), sim_node("n2")), **options)
    try:
        yield found
    finally:
        found.close()


#: What keeps two pods of a job off one node, by fields of their specs.
APART: dict[str, dict[str, Any]] = {
    "a host port": {"port": 2222},
    "anti-affinity": {"affinity": {"podAntiAffinity": rules.term(JOB)}},
    "spread": {"topologySpreadConstraints": [rules.spread(JOB)]},
}


@pytest.mark.parametrize("demand", APART)
def test_g1_pods_that_may_not_share_a_node_are_bound_at_the_first_gate(
    demand: str,
) -> None:
    with world() as w:
        w.add(*(sim_pod(name, **APART[demand]) for name in "ab"))

        assert w.run(5, "a", "b") == 1

        assert sorted(w.bound.values()) == ["n1", "n2"]


def test_g1b_members_of_two_pools_are_bound_at_the_first_gate() -> None:
    nodes = [sim_node("n1", pool="a"), sim_node("n2", pool="b")]
    with world(*nodes) as w:
        w.add(*(sim_pod(p, nodeSelector={"pool": p}) for p in "ab"))

        assert w.run(5, "a", "b") == 2  # a is asked about again once b was

        assert w.bound == {"a": "n1", "b": "n2"}


def test_a_job_is_not_planned_before_the_scheduler_has_nodes_for_each_kind() -> None:
    with world(sim_node("n1", pool="a")) as w:
        w.add(sim_pod("a"), sim_pod("b", nodeSelector={"pool": "b"}))

        assert w.run(600, "a", "b") is None

        assert w.world.why("a", ["n1"]) == (
            "its job waits until the scheduler finds nodes for b as well",
        )
        assert w.held_s(KEY) == 0


@pytest.mark.parametrize("first", ["a", "b"])
def test_the_order_of_questions_does_not_matter_for_a_spread(first: str) -> None:
    """Four pods fill two nodes; each second one fits its node only after the others."""
    with world() as w:
        demand: dict[str, Any] = {"topologySpreadConstraints": [rules.spread(JOB)]}
        pods = [sim_pod(name, size=4, npus=2, **demand) for name in "abcd"]
        w.add(*pods if first == "a" else reversed(pods))

        assert w.run(9, *"abcd") == 1

        assert sorted(w.bound.values()) == ["n1", "n1", "n2", "n2"]


def apart_by_zone(name: str, *, size: int = 2) -> Object:
    anti_affinity = {"podAntiAffinity": rules.term(JOB, ZONE)}
    return sim_pod(name, size=size, affinity=anti_affinity)


def zones(**zones: str) -> list[Object]:
    return [sim_node(name, **{ZONE: zone}) for name, zone in zones.items()]


def test_what_is_not_read_costs_no_gate_where_the_scheduler_offers_other_nodes() -> (
    None
):
    with world(*zones(n1="x", n2="x", n3="y", n4="y")) as w:
        w.add(*(apart_by_zone(name) for name in "ab"))

        took = w.run(9, "a", "b")

        assert took is not None
        assert {w.bound["a"], w.bound["b"]} & {"n1", "n2"}
        assert {w.bound["a"], w.bound["b"]} & {"n3", "n4"}


def test_what_is_not_read_costs_one_gate_where_it_offers_a_single_node() -> None:
    """A list of one node may be that of a nominated node, and proves nothing."""
    with world(*zones(n1="x", n2="x", n3="y")) as w:
        w.add(*(apart_by_zone(name) for name in "ab"))

        took = w.run(60, "a", "b")

        assert took is not None
        assert 20 < took < 30
        assert w.cache.gangs[KEY].plan.failures == 0


def test_two_kinds_whose_only_node_is_the_same_share_it() -> None:
    """A list of one node is all that there is if it comes again."""
    with world(sim_node("n1", pool="a"), sim_node("n2", pool="b")) as w:
        pool: dict[str, Any] = {"nodeSelector": {"pool": "a"}}
        even: dict[str, Any] = {"topologySpreadConstraints": [rules.spread(JOB)]}
        w.add(sim_pod("a", **pool, **even), sim_pod("b", **pool))

        took = w.run(9, "a", "b")

        assert took is not None
        assert w.bound == {"a": "n1", "b": "n1"}


def unread(labels: dict[str, str]) -> dict[str, Any]:
    """Anti-affinity on the host name that the extender does not read."""
    terms = rules.term(labels)
    key, (one,) = next(iter(terms.items()))
    return {"podAntiAffinity": {key: [{**one, "namespaceSelector": TEAM}]}}


TEAM = {"matchLabels": {"team": "a"}}


def test_one_of_a_kind_is_on_a_node_where_another_was_not_let_onto_it() -> None:
    with world(*(sim_node(f"n{number}") for number in range(3))) as w:
        w.add(*(sim_pod(name, size=3, affinity=unread(JOB)) for name in "abc"))

        took = w.run(9, *"abc")

        assert took is not None
        assert len(set(w.bound.values())) == 3
        assert len(w.cache.gangs[KEY].plan.apart) == 1


def test_two_kinds_share_no_node_where_one_was_not_let_beside_the_other() -> None:
    with world(*(sim_node(f"n{number}") for number in range(3))) as w:
        w.add(sim_pod("a", role="lead"))
        w.add(sim_pod("b", affinity=unread({"role": "lead"})))

        took = w.run(9, "a", "b")

        assert took is not None
        assert w.bound["a"] != w.bound["b"]


def test_what_was_learnt_of_a_late_scheduler_keeps_no_job_off_its_only_node() -> None:
    with world(sim_node("n1")) as w:
        w.add(*(sim_pod(name) for name in "ab"))
        w.schedule("a")
        for _ in range(21):
            w.world.pass_s(1)
        w._settle()
        assert w.cache.gangs[KEY].plan.apart

        took = w.run(9, "a", "b")

        assert took is not None
        assert w.bound == {"a": "n1", "b": "n1"}


def test_a_question_about_a_nominated_node_ends_no_plan() -> None:
    with world(sim_node("n1"), sim_node("n2"), sim_node("n3")) as w:
        w.add(*(sim_pod(name, npus=8) for name in "ab"))
        w.schedule("a")
        planned = dict(w.cache.gangs[KEY].plan.places)
        other = next(name for name in w.nodes if name not in planned.values())
        w.nominated = {"b": other}

        assert w.run(9, "a", "b") == 1

        assert {f"uid-{name}": node for name, node in w.bound.items()} == planned


def test_a_pod_takes_the_planned_node_that_is_nominated_for_it() -> None:
    with world(*(sim_node(f"n{number}") for number in range(3))) as w:
        w.add(*(sim_pod(name, npus=8, size=3) for name in "abc"))
        w.schedule("c")
        planned = dict(w.cache.gangs[KEY].plan.places)
        w.nominated = {"a": planned["uid-b"]}

        assert w.run(9, *"abc") == 1

        assert w.bound["a"] == planned["uid-b"]
        assert w.bound["b"] == planned["uid-a"]


def test_a_node_where_a_pod_does_not_come_to_its_bind_is_left_out() -> None:
    nodes = (sim_node("n1"), sim_node("n2"), sim_node("n3"))
    with world(*nodes, refused=[("worker", "n1")]) as w:
        w.add(*(sim_pod(name, npus=8) for name in "ab"))

        took = w.run(60, "a", "b")

        assert took is not None
        assert 20 <= took < 30
        assert sorted(w.bound.values()) == ["n2", "n3"]


def refuse_n1(w: GangWorld) -> None:
    """Let a job of two learn that n1 refuses its pods; it does not fit without."""
    w.add(*(sim_pod(name, npus=8) for name in "ab"))
    w.run(21)
    assert refused_nodes(w) == {"n1"}


def refused_nodes(w: GangWorld) -> set[str]:
    return {node for _, node in w.cache.gangs[KEY].plan.refused}


def test_a_refusal_holds_for_two_minutes() -> None:
    with world(refused=[("worker", "n1")]) as w:
        refuse_n1(w)
        w.refused = set()
        w.world.learn(gang_events.PlanBroken(job=KEY, text="held back"))
        w.cache.gangs[KEY].plan.again_s = w.time.now_s + 1000

        for _ in range(118):
            w.pass_s()
        assert refused_nodes(w) == {"n1"}
        for _ in range(3):
            w.pass_s()
        assert refused_nodes(w) == set()


def other(where: str) -> events.OtherPodUpdated:
    """A pod without chips on a node."""
    return events.OtherPodUpdated(uid="w", node=where, ask=ONE_POD)


CHANGES: dict[str, tuple[events.Change, bool]] = {
    "a label": (replace(node("n1"), marks=1), True),
    "room": (replace(node("n1"), allocatable_resources=Resources(1, 1, 1)), True),
    "nothing": (node("n1"), False),
    "another node": (replace(node("n2"), marks=1), False),
    "a pod that comes": (other("n1"), True),
    "a pod elsewhere": (other("n2"), False),
    "a pod with chips": (pod_update("x", node="n1"), True),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_refusal_ends_when_the_node_or_a_pod_on_it_changes(change: str) -> None:
    with world(refused=[("worker", "n1")]) as w:
        refuse_n1(w)
        event, is_forgotten = CHANGES[change]

        w.world.learn(event)

        assert refused_nodes(w) == (set() if is_forgotten else {"n1"})


def test_a_refusal_ends_when_a_pod_of_the_node_goes() -> None:
    with world(refused=[("worker", "n1")]) as w:
        w.world.learn(other("n1"))
        refuse_n1(w)
        w.world.learn(other("n1"))
        assert refused_nodes(w) == {"n1"}

        w.world.learn(events.PodDeleted(uid="w"))

        assert refused_nodes(w) == set()


@pytest.mark.long
def test_chips_are_held_in_vain_for_five_minutes_in_an_hour_at_most() -> None:
    with world(refused=[("worker", "n1"), ("worker", "n2")]) as w:
        w.add(*(sim_pod(name, npus=8) for name in "ab"))

        assert w.run(4000, "a", "b") is None

        assert 200 < w.held_s(KEY) <= 300


def test_under_volcano_nothing_is_learnt() -> None:
    with world(refused=[("worker", "n1")]) as w:
        w.add(*(sim_pod(name, npus=8) for name in "ab"))
        w.world.learn(gang_events.SeenInVolcano(job=KEY))
        w.schedule("a")

        w.world.learn(gang_events.NodeNotOffered(uid="uid-a"))

        plan = w.cache.gangs[KEY].plan
        assert plan.phase is Phase.GATHERING
        assert not plan.refused
        assert not plan.apart
        assert not plan.caps


def beside_lead(name: str, key: str = rules.HOST_NAME, **parts: Any) -> Object:
    """A worker that must be near a leader of its job."""
    near = {"podAffinity": rules.term({"job": "j", "role": "lead"}, key)}
    return sim_pod(name, role="work", affinity=near, **parts)


@pytest.mark.parametrize("key", [rules.HOST_NAME, ZONE])
def test_pods_that_must_be_beside_another_kind_are_bound_at_the_first_gate(
    key: str,
) -> None:
    """The scheduler offers them no node before the others have one."""
    with world(*zones(n1="x", n2="y")) as w:
        w.add(beside_lead("b", key), sim_pod("a", role="lead"))

        assert w.run(5, "a", "b") == 2  # b is asked about once a has a node

        assert w.bound["a"] == w.bound["b"]


def test_a_pod_beside_another_kind_that_the_scheduler_leaves_alone_is_bound() -> None:
    """It is asked about again only when the other is bound, and so is at no gate."""
    with world(is_patient=True) as w:
        w.add(
            beside_lead("c", size=3, npus=2),
            beside_lead("b", size=3, npus=2),
            sim_pod("a", size=3, npus=2, role="lead"),
        )

        took = w.run(30, *"abc")

        assert took is not None
        assert took <= 25
        assert len(set(w.bound.values())) == 1


def test_nothing_is_bound_for_a_pod_that_may_not_follow() -> None:
    nodes = [sim_node("n1", pool="a"), sim_node("n2", pool="b")]
    with world(*nodes, is_patient=True) as w:
        b = beside_lead("b", nodeSelector={"pool": "b"})
        w.add(b, sim_pod("a", role="lead", nodeSelector={"pool": "a"}))

        assert w.run(400, "a", "b") is None

        assert not w.bound
        assert w.held_s(KEY) <= 300


def test_each_kind_of_a_chain_is_planned_beside_the_one_before() -> None:
    near = {"podAffinity": rules.term({"job": "j", "role": "work"})}
    with world() as w:
        w.add(
            sim_pod("c", size=3, npus=2, role="last", affinity=near),
            beside_lead("b", size=3, npus=2),
            sim_pod("a", size=3, npus=2, role="lead"),
        )

        assert w.run(5, *"abc") == 3

        assert len(set(w.bound.values())) == 1


def test_a_pod_of_another_pool_beside_another_kind_finds_the_node_of_both() -> None:
    nodes = [sim_node("n1", pool="a"), sim_node("n2", pool="b"), sim_node("n3")]
    with world(*nodes) as w:
        b = beside_lead("b", nodeSelector={"pool": "b"})
        w.add(b, sim_pod("a", role="lead"))

        took = w.run(75, "a", "b")

        assert took is not None
        assert w.bound == {"a": "n2", "b": "n2"}


def test_pods_beside_another_kind_find_zones_of_their_own_after_some_gates() -> None:
    """They are asked about where the others are, and say nothing of other nodes."""
    apart = rules.term({"job": "j", "role": "work"}, ZONE)
    near = rules.term({"job": "j", "role": "lead"})
    affinity = {"podAffinity": near, "podAntiAffinity": apart}
    with world(*zones(n1="x", n2="x", n3="y")) as w:
        for name in "cd":
            w.add(sim_pod(name, size=4, npus=1, role="work", affinity=affinity))
        w.add(*(sim_pod(name, size=4, npus=1, role="lead") for name in "ab"))

        took = w.run(4 * 20 + 40, *"abcd")

        assert took is not None
        assert "n3" in {w.bound["c"], w.bound["d"]}


def beside_all(name: str, key: str = rules.HOST_NAME, **parts: Any) -> Object:
    """A pod that must be near any pod of its team."""
    near = {"podAffinity": rules.term({"team": "t"}, key)}
    pod = sim_pod(name, affinity=near, **parts)
    pod["metadata"]["labels"]["team"] = "t"
    return pod


def of_team(name: str, node_name: str, *, npus: int = 0) -> Object:
    """A pod of the team that runs, and is of no job."""
    pod = sim_pod(name, npus=npus, job=name, size=1, nodeName=node_name)
    pod["metadata"]["labels"]["team"] = "t"
    return pod


def test_pods_beside_pods_of_others_need_not_be_on_one_node() -> None:
    """Their affinity is met wherever a pod of the team runs."""
    with world() as w:
        w.add(of_team("x", "n1"), of_team("y", "n2"))
        w.add(*(beside_all(name, npus=8) for name in "ab"))

        assert w.run(5, "a", "b") == 1

        assert sorted({w.bound["a"], w.bound["b"]}) == ["n1", "n2"]


def test_pods_beside_their_like_alone_are_tried_apart_once_an_hour() -> None:
    """Nobody tells whether pods of others are there; the first gate does."""
    with world() as w:
        w.add(*(beside_all(name, npus=8) for name in "ab"))

        assert w.run(300, "a", "b") is None

        assert w.held_s(KEY) <= 20


def test_a_pod_joins_its_job_beside_pods_of_others() -> None:
    with world() as w:
        w.add(of_team("x", "n1"), of_team("y", "n2"))
        w.add(*(beside_all(name, npus=8) for name in "ab"))
        assert w.run(5, "a", "b") == 1
        node_name = w.bound["b"]
        w.delete("b")

        w.add(beside_all("b", npus=8))

        assert w.run(5, "b") is not None
        assert w.bound["b"] == node_name


@pytest.mark.parametrize(
    ("of_nodes", "count", "npus", "skew", "within_s"),
    [
        ("xy", 3, 1, 1, 30),
        ("xy", 4, 2, 1, 30),
        ("xxyy", 4, 8, 1, 5),
        ("xxyy", 5, 2, 1, 5),
        ("xxyy", 6, 4, 2, 5),
        ("xxyyzz", 6, 4, 1, 5),
    ],
)
def test_more_pods_than_zones_over_which_they_are_spread_are_bound(
    of_nodes: str, count: int, npus: int, skew: int, within_s: int
) -> None:
    """What a zone takes grows with what is in the others."""
    found = zones(**{f"n{at}": zone for at, zone in enumerate(of_nodes)})
    demand: dict[str, Any] = {
        "topologySpreadConstraints": [rules.spread(JOB, skew, ZONE)]
    }
    with world(*found) as w:
        names = [f"p{number}" for number in range(count)]
        w.add(*(sim_pod(name, size=count, npus=npus, **demand) for name in names))

        took = w.run(within_s, *names)

        assert took is not None
