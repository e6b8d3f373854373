"""Kinds of members in jobs that are elastic, or whose pods come later.

The scheduler offers each kind its own nodes; a job needs not all of its pods at once.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from extender.cache import events
from extender.gang.gang import Gang
from extender.gang.size import Followers, Size
from sandbox.apiclient import Object
from tests.extender import scheduler_rules as rules
from tests.extender.gangworld import GangWorld, sim_node, sim_pod
from tests.support.objects import container

JOB = {"job": "j"}
KEY = "Minimum/default/ReplicaSet.j"
LATER = "Job of pods/default/j"
COMPLETION = "batch.kubernetes.io/job-completion-index"
MINIMUM = "huawei.com/schedule_minAvailable"
APART: dict[str, Any] = {"affinity": {"podAntiAffinity": rules.term(JOB)}}
PORT = {"containerPort": 2222, "hostPort": 2222, "protocol": "TCP"}


@contextmanager
def world(*nodes: Object, **options: Any) -> Iterator[GangWorld]:
    found = GangWorld(nodes, **options)
    try:
        yield found
    finally:
        found.close()


def nodes(*names: str, **labels: str) -> list[Object]:
    return [sim_node(name, **labels) for name in names]


def owned(name: str, *, least: int = 2, **spec: Any) -> Object:
    """A pod of a job that needs so many of its pods, as many as there are."""
    made = sim_pod(name, npus=spec.pop("npus", 8), **spec)
    made["metadata"]["annotations"] = {MINIMUM: f"{least}"}
    reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "j"}
    made["metadata"]["ownerReferences"] = [reference | {"controller": True}]
    return made


def in_pool(name: str, pool: str, **spec: Any) -> Object:
    return owned(name, nodeSelector={"pool": pool}, **spec)


def plans_given_back(w: GangWorld) -> float:
    (metric,) = w.world.metrics.plans.labels("unreserved").collect()
    return next(s.value for s in metric.samples if s.name.endswith("_total"))


def gang(w: GangWorld, job: str = KEY) -> Gang:
    return w.cache.gangs[job]


def test_a_kind_that_a_job_can_do_without_does_not_delay_it() -> None:
    with world(*nodes("n1", "n2", "n3", pool="a")) as w:
        w.add(*(in_pool(name, "a") for name in "ab"), in_pool("c", "b"))

        assert w.run(6, "a", "b") is not None

        assert plans_given_back(w) == 0
        assert w.run(5, "c") is None


def test_a_kind_joins_once_the_scheduler_has_nodes_for_it() -> None:
    with world(*nodes("n1", "n2", pool="a"), sim_node("n3", pool="c")) as w:
        w.add(*(in_pool(name, "a") for name in "ab"), in_pool("c", "b"))
        assert w.run(6, "a", "b") is not None

        w.nodes["n3"]["metadata"]["labels"]["pool"] = "b"

        assert w.run(5, "c") is not None
        assert w.bound["c"] == "n3"


def test_a_kind_that_a_job_needs_is_awaited() -> None:
    with world(*nodes("n1", "n2", pool="a")) as w:
        pods = [in_pool("a", "a", least=3), in_pool("b", "a", least=3)]
        w.add(*pods, in_pool("c", "b", least=3))

        assert w.run(60, "a", "b") is None

        assert w.world.why("a", ["n1", "n2"]) == (
            "its job waits until the scheduler finds nodes for c as well",
        )


def test_a_smaller_plan_keeps_its_pods_apart() -> None:
    """Half of a node is enough for each, but no two may share one."""
    with world(*nodes("n1", "n2", "n3")) as w:
        w.add(*(owned(name, npus=4, **APART) for name in "abcd"))

        assert w.run(6, "a", "b", "c") is not None

        assert sorted(w.bound.values()) == ["n1", "n2", "n3"]
        assert w.run(5, "d") is None


@pytest.mark.parametrize(("first", "second"), [("a", "b"), ("b", "a")])
def test_a_smaller_plan_of_one_kind_uses_its_own_nodes(first: str, second: str) -> None:
    where = [sim_node("n1", pool=second), *nodes("n2", "n3", pool=first)]
    with world(*where) as w:
        w.add(*(in_pool(name, first) for name in "abc"))
        w.add(*(in_pool(name, second) for name in "de"))

        assert w.run(6, "a", "b") is not None

        assert sorted(w.bound[name] for name in "ab") == ["n2", "n3"]
        assert w.run(6, "d") is not None
        assert w.bound["d"] == "n1"
        assert plans_given_back(w) == 0


def test_pods_that_have_succeeded_keep_no_others_away() -> None:
    with world(*nodes("n1", "n2")) as w:
        w.add(*(owned(name, **APART) for name in "ab"))
        assert w.run(6, "a", "b") is not None
        assert sorted(gang(w).nodes.values()) == ["n1", "n2"]

        w.pods["a"]["status"] = {"phase": "Succeeded"}
        w.show("a")

        assert gang(w).nodes == {"uid-b": w.bound["b"]}


def test_a_first_list_of_one_node_makes_no_job_smaller() -> None:
    """The scheduler asks about a nominated node alone, then about all."""
    with world(*nodes("n1", "n2")) as w:
        w.add(*(owned(name, npus=4) for name in "abc"))
        w.nominated = {"a": "n1", "b": "n1", "c": "n1"}
        w.world.pass_s(3)  # no more pods are awaited

        w.schedule("a")

        assert sorted(gang(w).plan.places.values()) == ["n1", "n1", "n2"]


def test_a_list_of_one_node_does_not_answer_for_all_nodes() -> None:
    """Two pods may join, and there is room for one, on a node nominated for it."""
    with world(*nodes("n1", "n2"), sim_node("n3", pool="x")) as w:
        pool = {"pool": "x"}
        w.add(*(sim_pod(name, job="x", nodeSelector=pool) for name in "xy"))
        assert w.run(6, "x", "y") is not None
        w.add(*(owned(name) for name in "abcd"))
        assert w.run(6, "a", "b") is not None
        w.pass_s()
        for name in "xy":
            w.world.learn(events.PodDeleted(uid=w.pods.pop(name)["metadata"]["uid"]))
        w.world.pass_s(3)
        w.report()
        w.nominated = {"c": "n3"}

        w.schedule("c")

        assert w.bound["c"] == "n3"


def test_a_pod_that_does_not_come_makes_its_job_smaller_at_the_next_gate() -> None:
    """As if its volume was missing: the scheduler has no nodes for it at all."""
    with world(*nodes("n1", "n2", "n3")) as w:
        w.add(*(owned(name) for name in "abc"))
        unseen = w.pods.pop("c")

        took = w.run(60, "a", "b")

        assert took is not None
        assert 20 < took < 40
        w.pods["c"] = unseen
        assert w.run(6, "c") is not None


# -- pods that come later --------------------------------------------------------------


def later(number: int, **spec: Any) -> Object:
    """A pod of a job that does not say itself how many pods it has."""
    made = sim_pod(f"s{number}", **spec)
    made["metadata"]["annotations"] = {"ascend-affinity/job": "j"}
    made["metadata"]["labels"] |= {COMPLETION: f"{number}"}
    return made


def read_size(w: GangWorld, **demand: Any) -> None:
    """Let the size of a job of three pods be read, of which the first starts alone."""
    ports = [PORT] if demand.pop("port", 0) else []
    containers = [container(npus=4, ports=ports)]
    meta = {"labels": {"job": "j"}}
    template = {"metadata": meta, "spec": {"containers": containers, **demand}}
    later = Followers(role="", numbers=((1, 0), (2, 0)), template=template)
    size = Size(count=3, least=2, followers=(later,))
    w.world.learn(events.SizeRead(job=LATER, size=size, problem=""))


@pytest.mark.parametrize(
    "demand", [APART, {"port": 2222}], ids=["anti-affinity", "port"]
)
def test_pods_that_come_later_are_kept_apart_by_their_template(
    demand: dict[str, Any],
) -> None:
    with world(*nodes("n1", "n2", "n3")) as w:
        w.add(later(0, **demand))
        read_size(w, **demand)
        assert w.run(6, "s0") is not None
        kept = sorted(gang(w, LATER).plan.followers.values())
        assert [w.bound["s0"], *kept] == ["n1", "n2", "n3"]

        for number in (1, 2):
            w.add(later(number, **demand))
            assert w.run(5, f"s{number}") is not None

        assert sorted(w.bound.values()) == ["n1", "n2", "n3"]
        assert plans_given_back(w) == 0


def test_a_job_waits_for_no_kind_of_which_there_is_no_pod() -> None:
    """The templates have a toleration less than the pods, which admission adds."""
    tolerations = [{"key": "k", "operator": "Exists", "effect": "NoExecute"}]
    with world(*nodes("n1", "n2")) as w:
        w.add(later(0, tolerations=tolerations))
        read_size(w)

        assert w.run(6, "s0") is not None

        assert len(gang(w, LATER).plan.followers) == 2


def test_a_pod_that_is_made_again_leaves_the_kept_nodes_to_those_that_come() -> None:
    with world(*nodes("n1", "n2", "n3")) as w:
        w.add(later(0, **APART))
        read_size(w, **APART)
        assert w.run(6, "s0") is not None
        w.add(later(1, **APART))
        assert w.run(6, "s1") is not None
        (kept,) = gang(w, LATER).plan.followers.values()

        w.delete("s0")
        w.add(later(0, **APART))
        assert w.run(6, "s0") is not None
        w.add(later(2, **APART))

        assert w.run(6, "s2") is not None
        assert w.bound["s2"] == kept
        assert plans_given_back(w) == 0
