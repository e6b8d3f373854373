"""No chip is ever promised twice, in whatever order things happen and are heard of."""

import dataclasses
import functools
import operator
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from extender.cache import events
from extender.cache.reservations import Reservation
from extender.scheduling.reserve import Choice
from scheduler_core.node import chips
from scheduler_core.wire import annotations
from scheduler_core.wire.pods import NpuPod
from tests.support.caches import (
    apply,
    choose,
    cluster,
    empty,
    node_states,
    reservations,
    time_of,
)
from tests.support.clock import NOW_NS
from tests.support.examples import examples
from tests.support.watched import ALL, RESOURCE, claim, pod, report, served

NODES = ("n1", "n2")
#: mostly on the first, so that it fills
WHERE = st.sampled_from(("n1", "n1", "n1", "n2"))


def mask_of(spec: NpuPod) -> int:
    """The chips that a pod's annotations name, read without any code of ours."""
    named = ",".join(
        spec.annotations.get(key, "") for key in (RESOURCE, annotations.ASCEND_REAL)
    )
    ids = {int(name.rpartition("-")[2]) for name in named.split(",") if name}
    return sum(1 << chip for chip in ids)


def is_waiting(spec: NpuPod) -> bool:
    """Whether it is bound and no Allocate has served it."""
    return bool(spec.node) and spec.phase == "Pending"


@dataclass(slots=True)
class Truth:
    """What the API server has."""

    #: {uid: pod}
    pods: dict[str, NpuPod] = field(default_factory=dict)
    #: what its watch has still to tell
    unheard: list[events.Change] = field(default_factory=list)

    def put(self, spec: NpuPod) -> None:
        self.pods[spec.uid] = spec
        self.unheard.append(events.PodUpdated(pod=spec))

    def delete(self, uid: str) -> None:
        del self.pods[uid]
        self.unheard.append(events.PodDeleted(uid=uid))

    def claims(self, where: str) -> dict[str, int]:
        """{uid: mask} of the living pods of a node."""
        return {
            uid: mask_of(spec)
            for uid, spec in self.pods.items()
            if spec.node == where and spec.phase in ("Pending", "Running")
        }

    def taken(self, where: str) -> int:
        """The mask of them all."""
        return functools.reduce(operator.or_, self.claims(where).values(), 0)


class Promises(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.truth = Truth()
        self.cache = empty()
        #: {uid: a bind call that the API server has not executed (yet)}
        self.calls: dict[str, Reservation] = {}
        #: of them, those that nobody waits for any more
        self.open: set[str] = set()
        #: {node: the agent's reports that are still to be heard}
        self.reports: dict[str, list[events.ReportUpdated]] = {n: [] for n in NODES}
        self.last_heard: events.Change | None = None
        self.times: dict[str, list[int]] = {n: [] for n in NODES}
        self.made = 0

    @initialize(self_maintain=st.booleans())
    def start(self, *, self_maintain: bool) -> None:
        self.cache = cluster(nodes=NODES, self_maintain=self_maintain)

    def hear(self, change: events.Change) -> None:
        apply(self.cache, change)

    def pick(
        self, data: st.DataObject, keep: Callable[[NpuPod], bool]
    ) -> NpuPod | None:
        found = sorted(uid for uid, spec in self.truth.pods.items() if keep(spec))
        return self.truth.pods[data.draw(st.sampled_from(found))] if found else None

    @rule(count=st.sampled_from((1, 1, 2, 2, 2, 4)), where=WHERE, heard=st.booleans())
    def arrive(self, *, count: int, where: str, heard: bool) -> None:
        """A pod is made, and bound at once or when its event has been heard."""
        self.made += 1
        name = f"p{self.made}"
        self.truth.put(pod(name, count, uid=name))
        if heard:
            self.hear_of_pods(len(self.truth.unheard))
        self.call(self.truth.pods[name], where, 0)

    @precondition(lambda self: any(not s.node for s in self.truth.pods.values()))
    @rule(data=st.data(), where=WHERE, skew_ns=st.integers(-9, 9))
    def try_again(self, data: st.DataObject, where: str, skew_ns: int) -> None:
        spec = self.pick(data, lambda spec: not spec.node)
        if spec is not None and (spec.uid not in self.calls or spec.uid in self.open):
            self.call(spec, where, skew_ns)

    def call(self, spec: NpuPod, where: str, skew_ns: int) -> None:
        before = reservations(self.cache).get(spec.uid)
        made = choose(self.cache, spec, where, now_ns=NOW_NS + skew_ns)
        if not isinstance(made, Choice):
            return
        if before is None:
            self.times[where].append(time_of(made.reservation))
        self.hear(made.reservation)
        self.calls[spec.uid] = made.reservation
        self.open.discard(spec.uid)

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def execute(self, data: st.DataObject) -> None:
        """The API server executes a call, in time or long after."""
        spec = self.pick(data, lambda spec: spec.uid in self.calls)
        if spec is None:
            return
        reservation = self.calls.pop(spec.uid)
        self.open.discard(spec.uid)
        ids = chips.ids_of(reservation.chips)
        written = claim(ids, time_of(reservation))
        self.truth.put(
            dataclasses.replace(spec, node=reservation.node, annotations=written)
        )

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        """Nobody waits for the answer any more; the call may still be executed."""
        spec = self.pick(data, lambda spec: spec.uid in self.calls)
        if spec is not None:
            self.open.add(spec.uid)

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def refuse(self, data: st.DataObject) -> None:
        """The API server refuses a call, or has certainly not executed it."""
        spec = self.pick(data, lambda spec: spec.uid in self.calls)
        if spec is not None:
            del self.calls[spec.uid]
            self.open.discard(spec.uid)
            self.hear(events.BindVoided(uid=spec.uid))

    def is_anyone_waiting(self) -> bool:
        return any(is_waiting(spec) for spec in self.truth.pods.values())

    @precondition(lambda self: self.is_anyone_waiting())
    @rule(data=st.data())
    def serve(self, data: st.DataObject) -> None:
        spec = self.pick(data, is_waiting)
        if spec is None:
            return
        ids = chips.ids_of(mask_of(spec))
        self.truth.put(
            dataclasses.replace(spec, phase="Running", annotations=served(ids))
        )
        self.publish(spec.node)

    @precondition(lambda self: self.is_anyone_waiting())
    @rule(data=st.data())
    def swap(self, data: st.DataObject) -> None:
        """Two equal pods get each other's chips, in the agent's order of writing."""
        one = self.pick(data, is_waiting)
        if one is None:
            return
        other = self.pick(
            data,
            lambda spec: (
                is_waiting(spec) and (spec.node, spec.total) == (one.node, one.total)
            ),
        )
        if other is None or other is one:
            return
        for spec, its in ((one, other), (other, one)):
            real = {annotations.ASCEND_REAL: its.annotations[RESOURCE]}
            mounted = dict(spec.annotations) | real
            self.truth.put(dataclasses.replace(spec, annotations=mounted))
        for spec, its in ((one, other), (other, one)):
            new = dict(its.annotations)
            new[annotations.ASCEND_REAL] = new[RESOURCE]
            self.truth.put(dataclasses.replace(spec, annotations=new))

    @rule(data=st.data(), phase=st.sampled_from(("Failed", "Succeeded")))
    def end(self, data: st.DataObject, phase: str) -> None:
        spec = self.pick(data, lambda spec: bool(spec.node))
        if spec is not None:
            self.truth.put(dataclasses.replace(spec, phase=phase))
            self.publish(spec.node)

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        spec = self.pick(data, lambda _: True)
        if spec is None:
            return
        self.truth.delete(spec.uid)
        if self.calls.pop(spec.uid, None):  # 404: it is gone
            self.open.discard(spec.uid)
            self.hear(events.BindVoided(uid=spec.uid))

    @rule(where=st.sampled_from(NODES))
    def publish(self, where: str) -> None:
        """The agent lists what is free as it sees it now."""
        available = [chip for chip in ALL if not self.truth.taken(where) >> chip & 1]
        self.reports[where].append(report(where, there=available))

    @precondition(lambda self: self.truth.unheard)
    @rule(most=st.integers(1, 5))
    def hear_of_pods(self, most: int) -> None:
        for _ in range(min(most, len(self.truth.unheard))):
            self.last_heard = self.truth.unheard.pop(0)
            self.hear(self.last_heard)

    @precondition(lambda self: self.last_heard)
    @rule()
    def hear_it_again(self) -> None:
        assert self.last_heard is not None
        self.hear(self.last_heard)

    @rule(where=st.sampled_from(NODES))
    def hear_of_a_report(self, where: str) -> None:
        if self.reports[where]:
            self.hear(self.reports[where].pop(0))

    @invariant()
    def no_chip_has_two_owners(self) -> None:
        for where in NODES:
            owned = self.truth.claims(where)
            for uid, reservation in reservations(self.cache).items():
                spec = self.truth.pods.get(uid)
                if spec is not None and not spec.node and reservation.node == where:
                    owned[uid] = reservation.chips
            seen = 0
            for uid, mask in sorted(owned.items()):
                assert not seen & mask, f"{uid} on {where}: {owned}"
                seen |= mask

    @invariant()
    def times_grow(self) -> None:
        for times in self.times.values():
            assert times == sorted(set(times))

    def teardown(self) -> None:
        """Once everything is heard and settled, cache and truth agree."""
        for uid in list(self.calls):
            self.hear(events.BindVoided(uid=uid))
        for change in self.truth.unheard:
            self.hear(change)
        for where, waiting in self.reports.items():
            for found in waiting:
                self.hear(found)
            state = node_states(self.cache).get(where)
            if state is None:
                continue
            assert not state.free & self.truth.taken(where)
        assert reservations(self.cache) == {}


@pytest.mark.property
@examples(50, pytest.param(200, marks=pytest.mark.long))
def test_a_promise_is_kept_until_its_pod_has_its_chips(examples: int) -> None:
    run_state_machine_as_test(
        Promises, settings=settings(max_examples=examples, stateful_step_count=40)
    )
