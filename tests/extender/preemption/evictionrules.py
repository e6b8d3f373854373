"""Jobs and pods that push each other out: all that can happen to them.

A machine of hypothesis that is scheduler, people, budgets, kubelets and time at once:
it asks for places, sends binds and lets them end in every way, evicts and relabels
pods, lets evictions be refused, fail and take long, and has another extender take over.
"""

import asyncio
from collections import Counter

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
)

from extender.cache import decode, events
from extender.gang import membership
from extender.kube_scheduler.protocol import BindArgs
from extender.kube_scheduler.sent_binds import BindOutcome, Bound
from kube import objects
from kube.errors import InvalidError, KubeError, UnreachableError
from kube.pods import BIND_S
from tests.extender.preemption.evictionworld import (
    NODES,
    Api,
    Extender,
    Kind,
    Loop,
    Sent,
    Truth,
)
from tests.support.caches import nominations

PODS = {
    "a0": Kind(count=8, priority=0, job="a", size=2),
    "a1": Kind(count=8, priority=0, job="a", size=2),
    "b0": Kind(count=8, priority=5, job="b", size=2),
    "b1": Kind(count=8, priority=5, job="b", size=2),
    "c0": Kind(count=8, priority=10, job="c", size=3),
    "c1": Kind(count=8, priority=10, job="c", size=3),
    "c2": Kind(count=8, priority=10, job="c", size=3),
    "d": Kind(count=4, priority=0),
    "e": Kind(count=2, priority=0),
    "f": Kind(count=4, priority=10),
    "g": Kind(count=8, priority=20),
}
JOBS = {job: [name for name, kind in PODS.items() if kind.job == job] for job in "abc"}
#: who runs at first, and who comes then
FIRST = ("", "de", "ade", "ade", "be")
THEN = ("", "b", "c", "f", "g", "cg", "bf")
#: how often what happened, in all examples
happened: Counter[str] = Counter()

names = st.sampled_from(sorted(PODS))
lists = st.one_of(
    st.just(NODES),
    st.lists(st.sampled_from(NODES), unique=True, min_size=1).map(tuple),
)
#: how binds end
slowly = st.sampled_from(("", "", "done"))
ENDS = ("done", "done", "done", "done and cut", "cut", "refused")


class Pushing(RuleBasedStateMachine):
    """The rules; what always holds is looked at elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = Loop()
        self.truth = Truth()
        self.api = Api(self.truth, self.loop)
        #: what the watch of pods has still to tell
        self.unheard: list[events.Change] = []
        #: {name: pod as the watch has shown it last}
        self.shown: dict[str, objects.Pod] = {}
        self.is_deaf = False
        #: binds that nobody waits for, and that may yet be carried out
        self.late: list[Sent] = []
        #: {name: its bind call, and whether its caller has gone}
        self.calls: dict[str, asyncio.Task[BindOutcome]] = {}
        self.gone: set[str] = set()
        self.failovers = 0
        self.extender = Extender(self.api)

    @initialize(there=st.sampled_from(FIRST), then=st.sampled_from(THEN))
    def start(self, there: str, then: str) -> None:
        """Some run, and others want their places."""
        for some in (there, then):
            for name in [name for name in PODS if name[0] in some]:
                self.make(name)
            self.round()
            self.pass_time(25 if some is there else 1)

    # -- what is seen, and when -------------------------------------------------

    def show(self, *uids: str) -> None:
        """The watch shows what has changed, and which of these pods has gone."""
        there = {pod.metadata.uid for pod in self.truth.pods.values()}
        self.unheard += [events.PodDeleted(uid=uid) for uid in uids if uid not in there]
        for name, pod in self.truth.pods.items():
            if self.shown.get(name) is not pod:
                self.shown[name] = pod
                self.unheard.append(decode.pod_change(pod))
        if not self.is_deaf:
            self.hear()

    def hear(self) -> None:
        unheard, self.unheard = self.unheard, []
        self.extender.learn(*unheard)
        self.settle()

    def settle(self) -> None:
        self.loop.turn()
        for name, call in list(self.calls.items()):
            if call.done():
                del self.calls[name]
                self.gone.discard(name)
                is_bound = isinstance(call.result(), Bound)
                happened["bound" if is_bound else "bind refused"] += 1

    def remove(self, name: str) -> None:
        uid = self.truth.pods[name].metadata.uid
        self.truth.delete(name)
        self.show(uid)

    def end(self, name: str) -> None:
        uid = self.truth.pods[name].metadata.uid
        self.truth.end(name)
        self.show(uid)

    # -- the scheduler ----------------------------------------------------------------

    def idle(self) -> list[str]:
        """Names of the pods that a scheduler tries, the most important first."""
        found = [
            name
            for name, pod in self.truth.pods.items()
            if not pod.spec.node_name and name not in self.calls
        ]
        return sorted(found, key=lambda name: (-PODS[name].priority, name))

    @precondition(lambda self: self.idle())
    @rule(data=st.data(), offered=lists)
    def try_some(self, data: st.DataObject, offered: tuple[str, ...]) -> None:
        some = st.lists(st.sampled_from(self.idle()), unique=True, min_size=1)
        for name in data.draw(some):
            self.filter_and_bind(name, offered)

    def filter_and_bind(self, name: str, offered: tuple[str, ...] = NODES) -> None:
        pod = self.truth.pods[name]
        before = set(nominations(self.extender.cache))
        fitting = self.extender.filter_pod(pod, offered)
        if before - set(nominations(self.extender.cache)):
            happened["room taken by a " + ("job" if PODS[name].job else "pod")] += 1
        if fitting:
            args = BindArgs(
                namespace="default",
                name=name,
                uid=pod.metadata.uid,
                node=fitting[0],
            )
            call = self.extender.binder.bind(args, lambda: name not in self.gone)
            self.calls[name] = self.loop.create_task(call)
        self.settle()

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def give_a_call_up(self, data: st.DataObject) -> None:
        self.gone.add(data.draw(st.sampled_from(sorted(self.calls))))

    @precondition(lambda self: self.api.binds)
    @rule(data=st.data(), how=st.sampled_from(ENDS))
    def end_a_bind(self, data: st.DataObject, how: str) -> None:
        sent = data.draw(st.sampled_from(self.api.binds), label="bind")
        self.api.binds.remove(sent)
        self.finish(sent, how)

    def finish(self, sent: Sent, how: str) -> None:
        happened[f"bind {how}"] += 1
        error: KubeError | None = None
        if how == "refused":
            error = InvalidError(422)
        elif how == "cut":
            self.late.append(sent)
            error = UnreachableError("cut")
        else:
            error = self.carry_out(sent)
            if how == "done and cut":
                error = UnreachableError("cut")
        if not sent.answer.done():
            if error is None:
                sent.answer.set_result(None)
            else:
                sent.answer.set_exception(error)
        self.settle()

    def carry_out(self, sent: Sent) -> KubeError | None:
        try:
            self.truth.bind(sent.args, sent.annotations)
        except KubeError as error:
            happened["bind of a pod that went"] += 1
            return error
        self.show()
        return None

    @precondition(lambda self: self.late)
    @rule(data=st.data())
    def carry_a_bind_out_late(self, data: st.DataObject) -> None:
        sent = data.draw(st.sampled_from(self.late), label="bind")
        self.late.remove(sent)
        happened["bind carried out late"] += self.carry_out(sent) is None

    @rule(how=slowly)
    def round(self, how: str = "done") -> None:
        """What a scheduler does all the time, and a server that is slow or quick."""
        for name in self.idle():
            self.filter_and_bind(name)
        while how and self.api.binds:
            self.finish(self.api.binds.pop(0), how)

    @rule(seconds=st.sampled_from((1, 6)), over=st.sampled_from("abcdefg"), how=slowly)
    def go_on(self, seconds: int, over: str, how: str) -> None:
        """Somebody has done his work and begins anew, and places are looked for."""
        for name in [name for name in PODS if name.startswith(over)]:
            if self.truth.is_bound(name):
                self.end(name)
            self.make(name)
        self.pass_time(seconds)
        self.round(how)

    # -- people and controllers -----------------------------------------------------

    @rule(name=names)
    def make(self, name: str) -> None:
        if name not in self.truth.pods and name not in self.calls:
            self.truth.make(name, PODS[name])
            self.show()

    @precondition(lambda self: self.truth.pods)
    @rule(data=st.data())
    def evicted_by_others(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.truth.pods)))
        uid = self.truth.pods[name].metadata.uid
        cache = self.extender.cache
        gang = cache.gang_of(uid)
        if gang is not None:
            happened[f"evicted by others while its job is {gang.plan.phase}"] += 1
        if self.extender.preemptor.beneficiary(uid) in nominations(cache):
            happened["evicted by others while room is made for it"] += 1
        self.remove(name)

    @precondition(lambda self: self.idle())
    @rule(data=st.data(), job=st.sampled_from(["", "a", "b", "c"]))
    def relabel(self, data: st.DataObject, job: str) -> None:
        name = data.draw(st.sampled_from(self.idle()))
        nominated = nominations(self.extender.cache)
        uid = self.truth.pods[name].metadata.uid
        if self.extender.preemptor.beneficiary(uid) in nominated:
            happened["relabelled while room is made for it"] += 1
        size = str(len(JOBS[job])) if job else None
        self.truth.change(
            name, {membership.JOB: job or None, membership.JOB_SIZE: size}
        )
        self.show()

    def bound(self) -> list[str]:
        return sorted(filter(self.truth.is_bound, self.truth.pods))

    @precondition(lambda self: self.bound())
    @rule(data=st.data(), phase=st.sampled_from(("Succeeded", "Failed", "")))
    def stop(self, data: st.DataObject, phase: str) -> None:
        name = data.draw(st.sampled_from(self.bound()))
        if phase:
            self.truth.end(name, phase)
            self.show()
        else:
            self.end(name)

    @rule(name=names, how=st.sampled_from(("may go", "held", "failing")))
    def say(self, name: str, how: str) -> None:
        self.truth.held.discard(name)
        self.truth.failing.discard(name)
        if how == "held":
            self.truth.held.add(name)
        elif how == "failing":
            self.truth.failing.add(name)

    # -- the way between ----------------------------------------------------------

    @rule(is_slow=st.booleans())
    def answer_slowly(self, is_slow: bool) -> None:
        self.api.is_slow = is_slow
        if not is_slow:
            self.answer_all()

    @precondition(lambda self: self.api.evictions)
    @rule()
    def answer_one(self) -> None:
        asked = self.api.evictions.pop(0)
        if asked.answer.done():
            return
        outcome = self.api.answer(asked.victim, rehearse=asked.rehearse)
        happened[f"slow answer: {outcome}"] += 1
        asked.answer.set_result(outcome)
        self.settle()
        self.show(asked.victim.uid)

    def answer_all(self) -> None:
        while self.api.evictions:
            self.answer_one()

    @rule(is_deaf=st.booleans())
    def listen(self, is_deaf: bool) -> None:
        self.is_deaf = is_deaf
        if not is_deaf:
            self.hear()

    # -- time, and another extender ----------------------------------------------------

    @rule(seconds=st.sampled_from((1, 1, 6, 25, 65, 301)))
    def pass_time(self, seconds: int) -> None:
        self.loop.at.pass_s(seconds)
        for sent in [s for s in self.api.binds if self.loop.at.now_s - s.at_s > BIND_S]:
            self.api.binds.remove(sent)
            self.finish(sent, "cut")
        self.late = [s for s in self.late if self.loop.at.now_s - s.at_s < 60]
        self.move_on(seconds)
        for name in NODES:
            self.extender.learn(self.truth.report(name, self.loop.at.now_s))
        self.truth.releasing.clear()
        self.settle()
        for _ in range(2):
            uids = [pod.metadata.uid for pod in self.truth.pods.values()]
            self.loop.run_until_complete(self.extender.second())
            self.settle()
            self.show(*uids)

    def move_on(self, seconds: int) -> None:
        """What kubelets do meanwhile."""
        uids = [pod.metadata.uid for pod in self.truth.pods.values()]
        for name in self.bound():
            if self.truth.is_ending(name) and seconds > 5:
                self.truth.end(name)
            else:
                self.truth.serve(name)
        self.show(*uids)

    @precondition(lambda self: self.failovers < 2)
    @rule(data=st.data())
    def fail_over(self, data: st.DataObject) -> None:
        """Another takes over, when all that was sent has been done or never will be."""
        cache = self.extender.cache
        self.failovers += 1
        happened["failover while room is made"] += bool(nominations(cache))
        for sent in [*self.late, *self.api.binds]:
            is_done = data.draw(st.booleans(), label="done")
            if is_done:
                self.carry_out(sent)
            if not sent.answer.done():
                sent.answer.set_exception(UnreachableError("cut"))
        for asked in self.api.evictions:
            if not asked.rehearse and data.draw(st.booleans(), label="evicted"):
                self.api.answer(asked.victim, rehearse=False)
        self.late.clear()
        self.api.binds.clear()
        self.api.evictions.clear()
        self.loop.run_until_complete(self.extender.stop())
        self.loop.turn()
        for call in self.calls.values():
            assert call.done()
        self.calls.clear()
        self.gone.clear()
        self.unheard.clear()
        self.shown = dict(self.truth.pods)
        self.is_deaf = False
        self.extender = Extender(self.api)
