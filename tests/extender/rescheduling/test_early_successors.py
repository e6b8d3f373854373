"""Places of pods that still end or stay, and of pods with the same number."""

from dataclasses import replace
from typing import Any

from extender.gang.generations import Generation
from tests.extender.rescheduling.jobs import JOB, of_job
from tests.extender.rescheduling.keptplaces import (
    BOTH,
    NAMES,
    ending,
    leave,
    moving,
    place,
    worker,
    world,
)
from tests.support.caches import (
    annotated,
    reservations,
)
from tests.support.watched import (
    ALL,
    gone,
    node,
    report,
)

# -- several controllers, and early successors ---------------------------------------


def of_line(found: Any, line: str) -> Any:
    """A pod of one of the controllers of the job."""
    generation = Generation(f"uid-{line}", f"Job.batch/{line}")
    membership = replace(found.member.membership, generation=generation)
    return replace(found, member=replace(found.member, membership=membership))


#: Two Indexed Jobs under one name: leader 0 on n1, worker 0 on n2.
LED = (
    of_line(worker(0, "a", "n1"), "leader"),
    of_line(worker(0, "b", "n2"), "workers"),
)


async def test_a_pod_of_another_controller_with_the_same_number_gets_no_place() -> None:
    async with world(*LED) as w:
        there = place("b", 0, "n3", line="Job.batch/workers")
        w.returns.keep(JOB, [there])
        w.pass_s()
        assert (w.reported, moving(w)) == ([], {(JOB, "n3"): 255})

        w.learn(*gone("b"), report("n2"))
        w.pass_s()
        assert w.reported == []
        w.learn(of_line(worker(0, "b2"), "workers"))
        assert w.filter("b2", NAMES) == ["n3"]


async def test_successors_of_two_controllers_do_not_swap_places() -> None:
    places = (
        place("a", 0, "n3", line="Job.batch/leader"),
        place("b", 0, "n2", line="Job.batch/workers"),
    )
    async with world(*LED) as w:
        w.returns.keep(JOB, places)
        leave(w, "a", "b")
        w.learn(of_line(worker(0, "0"), "workers"), of_line(worker(0, "1"), "leader"))
        w.filter("0", NAMES)

        planned = reservations(w.cache)
        nodes = {uid: each.node for uid, each in planned.items()}
        assert nodes == {"uid-0": "n2", "uid-1": "n3"}


async def test_a_place_of_an_earlier_release_is_for_the_pod_with_its_number() -> None:
    async with world(*LED) as w:
        w.returns.keep(JOB, [place("b", 0, "n3")])
        w.learn(*gone("b"), report("n2"), of_line(worker(0, "b2"), "workers"))

        assert w.filter("b2", NAMES) == ["n3"]


def of_replica_set(name: str, where: str = "", rank: int | None = None) -> Any:
    """A pod that the scheduler gives its rank; one that waits has none yet."""
    found = of_job(name, where, ALL, rank=rank)
    assert found.member is not None
    return replace(found, member=replace(found.member, owner_kind="ReplicaSet"))


#: The pods of a ReplicaSet: rank 0 on n1, rank 1 on n2.
RANKED = (of_replica_set("a", "n1", 0), of_replica_set("b", "n2", 1))


async def test_an_early_successor_waits_until_the_pod_of_its_rank_has_ended() -> None:
    waits = (
        "waits for pod a of the same rank (index 0), which still ends on n1; if n1 is "
        "lost, delete that pod by force"
    )
    async with world(*RANKED) as w:
        w.returns.keep(JOB, BOTH[:1])
        w.learn(ending(RANKED[0]), of_replica_set("x"))
        assert w.why("x", NAMES) == (waits,)
        assert moving(w) == {(JOB, "n3"): 255}

        before = w.calls.wakes
        w.learn(*gone("a"))
        w.pass_s()
        assert w.calls.wakes > before
        assert w.filter("x", NAMES) == ["n3"]
        assert annotated(reservations(w.cache)["uid-x"]) == {"hccl/rankIndex": "0"}


async def test_a_pod_more_of_a_replica_set_gets_no_place_of_one_that_stays() -> None:
    async with world(*RANKED) as w:
        w.returns.keep(JOB, BOTH[:1])
        w.learn(node("n4"), report("n4"), of_replica_set("x"))

        assert w.filter("x", (*NAMES, "n4")) == ["n4"]
        assert moving(w) == {(JOB, "n3"): 255}


async def test_one_that_waits_for_an_end_keeps_no_other_from_its_place() -> None:
    three = (*RANKED, of_replica_set("c", "n3", 2))
    places = place("a", 0, "n4"), place("b", 1, "n5")
    async with world(*three, node("n4"), report("n4"), node("n5"), report("n5")) as w:
        w.returns.keep(JOB, places)
        w.learn(ending(three[0]), *gone("b"), report("n2"))
        w.learn(of_replica_set("x"), of_replica_set("y"))
        names = (*NAMES, "n4", "n5")

        assert w.filter("x", names) == ["n5"]
        assert reservations(w.cache).keys() == {"uid-x"}
        assert moving(w) == {(JOB, "n4"): 255}
