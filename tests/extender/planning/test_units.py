"""Which members of a job wait for others of their replica or partition."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.gang import permit
from extender.gang.events import Bound, Limits
from extender.gang.gangs import Gangs
from extender.gang.membership import AbsentMember, Member, Membership, order_of
from extender.gang.parts import Division
from extender.gang.size import Size
from extender.planning.units import (
    UnitsOfJobs,
    find_incomplete,
    read_units,
    read_waiting,
)

JOB = "RayCluster/default/llm"
#: Replicas of two hosts, and partitions of two pods.
HOSTS = Division("g0", "replica", 2, 1)
PAIRS = Division("w", "partition", 2, 2)


class Members:
    """A job of pods, put one by one."""

    def __init__(self, division: Division) -> None:
        self.division = division
        self.gangs = Gangs()

    def put(
        self,
        name: str,
        *numbers: int,
        node: str = "",
        ending: bool = False,
        succeeded: bool = False,
    ) -> None:
        first, second = [*numbers, 0, 0][:2]
        membership = Membership(
            job=JOB,
            order=order_of(self.division.role, (first, second)),
            index="/".join(map(str, numbers)),
        )
        self.gangs.put(
            name,
            Member(name=name, membership=membership),
            bound=bool(node) or succeeded,
            succeeded=succeeded,
            ending=ending,
            now_s=0.0,
            node=node,
        )
        gang = self.gangs.jobs[JOB]
        gang.size = Size(count=9, least=1, divisions=(self.division,))

    def waiting(self, *followers: AbsentMember) -> dict[str, int]:
        """{UIDs of a unit of which no member has a node: how many others it needs}."""
        found = {f"{role} {number}": f for f in followers for _, role, number in [f]}
        units = read_units(self.gangs.jobs[JOB], found)
        return {" ".join(sorted(unit.uids)): unit.lacking for unit in units}


def test_replicas_are_told_apart_by_the_first_number() -> None:
    job = Members(HOSTS)
    job.put("a", 0, 0)
    job.put("b", 0, 1)
    job.put("c", 1, 1)

    assert job.waiting() == {"a b": 0, "c": 1}


def test_partitions_are_told_apart_by_the_index() -> None:
    job = Members(PAIRS)
    for index, name in enumerate("abcd"):
        job.put(name, index + 1)

    assert job.waiting() == {"a": 1, "b c": 0, "d": 1}


def test_a_member_joins_alone_if_another_of_its_unit_stays() -> None:
    job = Members(HOSTS)
    job.put("a", 0, 0, node="n1")
    job.put("b", 0, 1)
    job.put("c", 1, 0, succeeded=True)
    job.put("d", 1, 1)

    assert job.waiting() == {}


def test_a_member_that_succeeded_stays_though_it_is_deleted() -> None:
    job = Members(HOSTS)
    job.put("a", 0, 0, succeeded=True)
    job.put("b", 0, 1)
    job.put("c", 1, 0, node="n1")
    job.gangs.drop("a")

    assert job.waiting() == {}

    job.gangs.drop("c")  # or the job has begun again
    assert job.waiting() == {"b": 1}


def test_a_replica_of_which_a_pod_succeeded_is_made_again_whole() -> None:
    """Its controller makes the next one while the pod beside it still ends."""
    job = Members(HOSTS)
    job.put("head", 9, 9, node="n0")
    job.put("a", 0, 0, succeeded=True)
    job.put("b", 0, 1, node="n1")
    job.gangs.drop("a")
    job.put("b", 0, 1, node="n1", ending=True)
    job.put("c", 0, 0)
    job.put("d", 0, 1)
    assert job.waiting() == {"c": 1}

    job.put("b", 0, 1, succeeded=True, ending=True)
    assert job.waiting() == {"c d": 0}


def test_a_member_that_ends_is_no_sibling_and_its_successor_is_one_after_it() -> None:
    job = Members(HOSTS)
    job.put("a", 0, 0, node="n1", ending=True)
    job.put("b", 0, 0)
    job.put("c", 0, 1)
    assert job.waiting() == {"c": 1}

    job.gangs.drop("a")
    assert job.waiting() == {"b c": 0}


def test_any_members_without_numbers_make_a_replica() -> None:
    """KubeRay numbers them by default from 1.6 on."""
    job = Members(HOSTS)
    for name in "abc":
        job.put(name)
    assert job.waiting() == {"a b": 0, "c": 1}

    job.put("b", node="n1")
    assert job.waiting() == {"c": 1}

    job.put("d")
    assert job.waiting() == {"c d": 0}


def test_members_without_a_pod_count() -> None:
    job = Members(PAIRS)
    job.put("a", 0)

    followers = [AbsentMember(JOB, "w", (index, 0)) for index in (1, 2)]
    assert job.waiting(*followers) == {"a w (1, 0)": 0, "w (2, 0)": 1}


def test_who_waits_hears_for_how_many() -> None:
    job = Members(HOSTS)
    job.put("a", 0, 0)
    gang = job.gangs.jobs[JOB]
    known = UnitsOfJobs()
    text = "waits for 1 of the 2 pods of its replica"
    assert known.read(gang).why_lacking("a") == text

    job.put("b", 0, 1)
    assert known.read(gang).why_lacking("a") == ""
    units = read_units(gang, {})
    assert find_incomplete(units, ()) == set()
    assert find_incomplete(units, ("b",)) == {"a", "b"}


#: {pod: its numbers}; e and f are successors of a and b.
NUMBERS = {"a": (0, 0), "b": (0, 1), "c": (1, 0), "d": (1, 1), "e": (0, 0), "f": (0, 1)}
SHOWN: dict[str, dict[str, Any]] = {
    "waits": {},
    "is bound": {"node": "n1"},
    "ends": {"node": "n1", "ending": True},
    "is deleted unbound": {"ending": True},
    "succeeds": {"succeeded": True},
}


@pytest.mark.property
@given(
    is_indexed=st.booleans(),
    steps=st.lists(
        st.tuples(
            st.sampled_from(sorted(NUMBERS)),
            st.sampled_from([*SHOWN, "goes", "is let through"]),
        )
    ),
)
def test_units_are_read_again_when_something_changes(
    *, is_indexed: bool, steps: list[tuple[str, str]]
) -> None:
    job, known = Members(HOSTS), UnitsOfJobs()
    for name, what in steps:
        if what == "goes":
            job.gangs.drop(name)
        elif what == "is let through":
            permit.step(job.gangs, Bound(uid=name), 0.0, Limits())
        else:
            numbers = NUMBERS[name] if is_indexed else ()
            job.put(name, *numbers, **SHOWN[what])
        gang = job.gangs.jobs.get(JOB)
        if gang is not None:
            units = known.read(gang)
            assert units == read_waiting(gang)
            assert known.read(gang) is units


def test_what_a_scheduler_writes_on_a_pod_changes_no_unit() -> None:
    job, known = Members(HOSTS), UnitsOfJobs()
    job.put("a", 0, 0)
    units = known.read(job.gangs.jobs[JOB])

    job.put("a", 0, 0)

    assert known.read(job.gangs.jobs[JOB]) is units
