"""Places of pods that still end or stay, and of pods with the same number."""

from dataclasses import replace
from typing import Any

from extender.gang.generations import Generation
from tests.extender.rescheduling.jobs import JOB
from tests.extender.rescheduling.keptplaces import (
    NAMES,
    leave,
    moving,
    place,
    worker,
    world,
)
from tests.support.caches import (
    reservations,
)
from tests.support.watched import (
    gone,
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
