"""Kept places in any order of what can happen to the pods of their job.

A job has four pods of eight chips: two controllers that each number two pods, or one
ReplicaSet whose pods get ranks at bind. Any of them are to leave. They are asked or
not, end at once or slowly, and their processes may outlive them. Successors come early,
late, or are not the last. What was kept is what successors get, no number and no rank
is had twice, and no place is taken for over whose pod has not ended.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from extender.gang.generations import Generation
from extender.rescheduling.moves import Bound, KeptPlace
from tests.extender.looped import Looped
from tests.extender.rescheduling.jobs import JOB, of_job
from tests.support.caches import annotated, cluster, reservations
from tests.support.clock import Time
from tests.support.examples import examples
from tests.support.extender import World
from tests.support.watched import ALL, RESOURCE, gone, report

NODES = tuple(f"n{number}" for number in range(1, 7))
LINES = ("leader", "leader", "workers", "workers")
RANK = "hccl/rankIndex"
members = st.integers(0, 3)


@dataclass(slots=True, kw_only=True)
class Pod:
    name: str
    #: which of the four it is; None of a ReplicaSet until it is bound
    number: int | None
    node: str = ""
    is_ending: bool = False


class Places(Looped):
    """One job, its pods, and the places that are kept once some of them are to go."""

    def __init__(self) -> None:
        super().__init__()
        self.time = Time()
        self.pods: dict[str, Pod] = {}
        self.made = 0
        #: {node: since when processes of an ended pod have its chips}
        self.stuck_s: dict[str, float] = {}
        #: {UID of a pod that leaves: its place}
        self.places: dict[str, KeptPlace] = {}
        self.lost: set[str] = set()
        self.is_numbered = True
        self.read = 0
        self.world = World(cluster(nodes=NODES), time=self.time, moves=True)

    def run(self, act: Callable[..., object], *values: object) -> None:
        async def acted() -> None:
            act(*values)

        self.loop.run_until_complete(acted())

    # -- pods --------------------------------------------------------------------------

    def event(self, pod: Pod) -> Any:
        """What the watch shows of a pod."""
        has_rank = not self.is_numbered and bool(pod.node)
        rank = pod.number if has_rank else None
        found = of_job(pod.name, pod.node, ALL, size=4, rank=rank)
        assert found.member is not None
        membership, member = found.member.membership, found.member
        if self.is_numbered:
            assert pod.number is not None
            line, number = LINES[pod.number], pod.number % 2
            membership = replace(
                membership,
                order=(9, "", number, 0),
                index=str(number),
                generation=Generation(f"uid-{line}", f"Job.batch/{line}"),
            )
        else:
            member = replace(member, owner_kind="ReplicaSet")
        member = replace(member, membership=membership)
        return replace(
            found, member=member, pod=replace(found.pod, deleting=pod.is_ending)
        )

    def show(self, pod: Pod) -> None:
        self.run(self.world.learn, self.event(pod))

    def make(self, number: int | None, node: str = "") -> None:
        self.made += 1
        pod = Pod(name=f"p{self.made:03}", number=number, node=node)
        self.pods[f"uid-{pod.name}"] = pod
        self.show(pod)

    def waiting(self) -> list[Pod]:
        return [pod for pod in self.pods.values() if not pod.node]

    def leaving(self) -> Iterator[tuple[str, Pod]]:
        """Pods that are to go and have not ended."""
        return ((u, self.pods[u]) for u in self.places if u in self.pods)

    @initialize(is_numbered=st.booleans())
    def begin(self, *, is_numbered: bool) -> None:
        self.is_numbered = is_numbered
        for number in range(4):
            self.make(number, NODES[number])

    # -- what happens ------------------------------------------------------------------

    @precondition(lambda self: not self.places)
    @rule(chosen=st.sets(members, min_size=1), away=st.integers(1, 2))
    def are_to_go(self, chosen: set[int], away: int) -> None:
        """Some lose their nodes, the others are to come back to theirs."""
        spare = list(NODES[4:])
        for uid, pod in self.pods.items():
            if pod.number in chosen:
                assert pod.number is not None
                is_moved = away > 0 and bool(spare)
                away -= 1
                line = f"Job.batch/{LINES[pod.number]}" if self.is_numbered else ""
                index = pod.number % 2 if self.is_numbered else pod.number
                self.places[uid] = KeptPlace(
                    uid=uid,
                    name=pod.name,
                    namespace="default",
                    slot=("", (index, 0)),
                    line=line,
                    resource=RESOURCE,
                    node=spare.pop() if is_moved else pod.node,
                    chips=255,
                    home=pod.node,
                    annotations={} if self.is_numbered else {RANK: str(pod.number)},
                )
        self.run(self.world.returns.keep, JOB, list(self.places.values()))

    @rule(number=members)
    def is_deleted(self, number: int) -> None:
        for _, pod in list(self.leaving()):
            if pod.number == number:
                pod.is_ending = True
                self.show(pod)

    @rule(number=members, is_stuck=st.booleans())
    def is_gone(self, number: int, *, is_stuck: bool) -> None:
        for uid, pod in list(self.leaving()):
            if pod.number == number and pod.is_ending:
                del self.pods[uid]
                self.run(self.world.learn, *gone(pod.name))
                if is_stuck:
                    self.stuck_s[pod.node] = self.time.now_s
                self.reports()

    @rule()
    def processes_end(self) -> None:
        self.stuck_s.clear()
        self.reports()

    def reports(self) -> None:
        for name in NODES:
            held = ALL if name in self.stuck_s else ()
            said = report(name, held=held, update_time=self.time.now_s)
            self.run(self.world.learn, said)

    @rule(number=members)
    def is_made_again(self, number: int) -> None:
        """Its controller makes a pod as soon as the one before is being deleted."""
        if self.is_numbered:
            alike = [pod for pod in self.pods.values() if pod.number == number]
            if all(pod.is_ending for pod in alike):
                self.make(number)
        elif sum(not pod.is_ending for pod in self.pods.values()) < 4:
            self.make(None)

    @rule(number=st.integers(0, 5))
    def is_asked_about(self, number: int) -> None:
        waiting = self.waiting()
        if waiting:
            pod = waiting[number % len(waiting)]
            self.run(self.world.filter, pod.name, NODES)

    @rule()
    def are_bound(self) -> None:
        """All that have a plan."""
        for uid, reservation in list(reservations(self.world.cache).items()):
            pod = self.pods[uid]
            if not self.is_numbered:
                pod.number = int(annotated(reservation)[RANK])
            pod.node = reservation.node
            self.show(pod)

    @rule(seconds=st.sampled_from([1, 1, 5, 31]))
    def passes(self, seconds: int) -> None:
        for _ in range(seconds):
            self.run(self.world.pass_s)
            self.learn_ends()
        self.reports()

    def learn_ends(self) -> None:
        for end in self.world.reported[self.read :]:
            place = self.places[end.uid]
            assert end.uid not in self.pods, "its pod has not ended"
            if isinstance(end, Bound):
                assert end.node == place.node
                heir = self.pods[end.successor]
                before = next(p for u, p in self.begun if u == end.uid)
                assert heir.number == before
            else:
                self.lost.add(end.uid)
                since_s = self.stuck_s[place.node]
                assert self.time.now_s - since_s >= 60
        self.read = len(self.world.reported)

    @property
    def begun(self) -> list[tuple[str, int]]:
        return [(f"uid-p{number + 1:03}", number) for number in range(4)]

    # -- what always holds -------------------------------------------------------------

    @invariant()
    def no_number_is_had_twice(self) -> None:
        numbers = [pod.number for pod in self.pods.values() if pod.node]
        for uid, reservation in reservations(self.world.cache).items():
            if not self.pods[uid].node:
                rank = annotated(reservation).get(RANK)
                numbers.append(self.pods[uid].number if rank is None else int(rank))
        assert max(Counter(numbers).values(), default=1) == 1

    @invariant()
    def no_chip_is_had_twice(self) -> None:
        nodes = [pod.node for pod in self.pods.values() if pod.node]
        planned = reservations(self.world.cache).items()
        nodes += [r.node for uid, r in planned if not self.pods[uid].node]
        assert len({*nodes}) == len(nodes)

    # -- the end -----------------------------------------------------------------------

    def come_to_rest(self) -> None:
        """All that were to go have gone: each successor comes to its place."""
        if not self.pods:
            return
        self.stuck_s.clear()
        for _, pod in list(self.leaving()):
            pod.is_ending = True
            self.show(pod)
        for number in range(4):
            self.is_gone(number, is_stuck=False)
        for _ in range(6):
            self.all_come_again()
        nodes = {pod.number: pod.node for pod in self.pods.values()}
        assert nodes.keys() == {0, 1, 2, 3}
        for uid, number in self.begun:
            if uid in self.places and uid not in self.lost:
                assert nodes[number] == self.places[uid].node

    def all_come_again(self) -> None:
        for number in range(4):
            self.is_made_again(number)
        for number in range(4):
            self.is_asked_about(number)
        self.are_bound()
        self.passes(1)
        self.time.pass_s(30)


@examples(20, pytest.param(400, marks=pytest.mark.long))
def test_successors_get_what_was_kept_and_no_number_is_had_twice(examples: int) -> None:
    run_state_machine_as_test(
        Places,
        settings=settings(max_examples=examples, stateful_step_count=40, deadline=None),
    )
