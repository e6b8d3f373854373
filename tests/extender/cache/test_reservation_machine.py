"""All owners of reservations at once, in any order of what can happen.

The machine is every part that reserves chips, the scheduler, the API server and time:
it binds, plans, allocates as Volcano does, frees chips, keeps chips for members without
a pod and for successors of pods, hears of things late, and lets another extender take
over. Whatever it does: no chip is kept for two, each reservation has an owner that
answers for it and an end, and once nobody wants anything nothing is kept.
"""

from collections import defaultdict
from dataclasses import dataclass, replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from extender.cache import events
from extender.cache.reservations import (
    REVIEW_S,
    Beneficiary,
    NodeReservation,
    Owner,
    Reservation,
)
from extender.gang import events as gang_events
from extender.gang.membership import AbsentMember
from extender.planning import plan, plan_input
from extender.refusals import Refusal
from extender.scheduling import reserve
from extender.scheduling.reserve import Ownership
from scheduler_core.node import chips
from scheduler_core.placement.job_rules import Profile
from tests.support.caches import (
    all_reservations,
    cluster,
    node_states,
    reservations,
    resource_states,
    time_of,
)
from tests.support.clock import Time
from tests.support.examples import examples
from tests.support.watched import RESOURCE, claim, member, pod_update, report

NODES = ("n1", "n2", "n3")
#: pods that are jobs by themselves: {name: chips}
ALONE = {"a": 1, "b": 2, "c": 4, "d": 8}
#: {job: its pods}; each pod has four chips, its role is its job, its rank its place
JOBS = {"j": ("j0", "j1"), "k": ("k0", "k1", "k2")}
PODS = (*ALONE, *(name for names in JOBS.values() for name in names))
#: How long each owner keeps what it reserves.
LONGEST_S = {
    Owner.PLAN: REVIEW_S,
    Owner.BIND: 65.0,
    Owner.VOLCANO: 660.0,
    Owner.PREEMPTION: 380.0,
    Owner.RESCHEDULING: REVIEW_S,
}
#: Owners that keep chips before a bind is sent, and end them after their time.
WAITING = (Owner.PREEMPTION, Owner.RESCHEDULING)

#: under which pods of a job may have any number of chips
PER_POD = plan_input.TopologySnapshot(profile=Profile.PER_POD)

pods = st.sampled_from(PODS)
places = st.sampled_from(NODES)
owners = st.sampled_from((Owner.BIND, Owner.BIND, Owner.VOLCANO, *WAITING))


@dataclass(slots=True)
class Sent:
    """A bind that was sent, or will be for an allocation of Volcano."""

    reservation: Reservation
    #: whether its sender remembers it
    is_known: bool = True


class Owners(RuleBasedStateMachine):
    """The cache, and what each owner of a reservation remembers of it."""

    def __init__(self) -> None:
        super().__init__()
        self.time = Time()
        self.cache = cluster(nodes=NODES)
        #: {uid: node and annotations} as the API server has bound it
        self.bound: dict[str, events.PodUpdated] = {}
        #: what the watch has still to tell
        self.unheard: list[events.Change] = []
        #: {uid: bind that may still be carried out}
        self.sent: dict[str, Sent] = {}
        #: {pod or job: chips that are being freed for it}
        self.freeing: set[Beneficiary] = set()
        #: {(job, or UID of a pod that may have gone; node): chips kept for successors}
        self.moving: dict[tuple[Beneficiary, str], int] = {}
        self.absent: set[AbsentMember] = set()
        for name in PODS:
            self.step(self.seen(name))

    # -- what the cache is told ----------------------------------------------------

    def seen(self, name: str) -> events.PodUpdated:
        for job, names in JOBS.items():
            if name in names:
                found = member(name, job=job, size=len(names), count=4)
                assert found.member is not None
                rank = names.index(name)
                ranked = replace(found.member.membership, rank=rank)
                return replace(found, member=replace(found.member, membership=ranked))
        return pod_update(name, ALONE[name])

    def step(self, change: events.Change) -> bool:
        """Apply an event, and answer for what is due; false: chips are kept already."""
        before = all_reservations(self.cache)
        outcome = self.cache.step(change, self.time.now_s)
        if outcome.conflict is not None:
            assert all_reservations(self.cache) == before  # nothing is half done
            assert outcome.effects == ()
        for effect in outcome.effects:
            if isinstance(effect, events.ReservationEnded):
                ended = effect.reservation
                if effect.why is events.Ended.EXPIRED:
                    assert ended.owner in WAITING, ended
                if ended.is_of_move:
                    assert effect.why is events.Ended.EXPIRED, "it outlives its pods"
                    del self.moving[ended.kept_for, ended.node]
                elif ended.claim is not None:
                    self.sent.pop(str(ended.kept_for), None)
                else:
                    self.freeing.discard(ended.kept_for)
                    self.absent -= {ended.kept_for}
            elif isinstance(effect, events.ReservationDue):
                self.answer(effect.reservation)
        return outcome.conflict is None

    def answer(self, due: Reservation) -> None:
        """What the owner of a bind finds out at the end of its reservation."""
        uid = str(due.kept_for)
        assert due.owner in {Owner.BIND, Owner.VOLCANO}
        if uid in self.bound:
            return  # the watch will tell
        self.sent.pop(uid, None)
        self.step(events.BindVoided(uid=uid))

    def waits(self, name: str) -> bool:
        uid = f"uid-{name}"
        pod = self.cache.pods.get(uid)
        return pod is not None and not pod.node and uid not in self.bound

    # -- owners ----------------------------------------------------------------------

    @rule(name=pods, where=places, owner=owners)
    def choose(self, name: str, where: str, owner: Owner) -> None:
        """Bind, allocate, or let a pod take up what was freed for it."""
        uid, now_s = f"uid-{name}", self.time.now_s
        existing = reservations(self.cache).get(uid)
        if not self.waits(name):
            return
        if existing is not None and existing.is_sent and existing.owner is not owner:
            return
        job = next((job for job, names in JOBS.items() if name in names), None)
        if job is not None and (existing is None or owner in WAITING):
            return  # who is of a job is planned first
        made = reserve.choose_chips(
            self.cache,
            self.cache.pods[uid],
            where,
            ownership=Ownership(owner=owner, until_s=now_s + LONGEST_S[owner]),
            now_s=now_s,
            now_ns=self.time.now_ns(),
        )
        if isinstance(made, Refusal):
            return
        assert self.step(made.reservation)  # chosen chips are nobody's
        if owner not in WAITING:
            self.sent[uid] = Sent(made.reservation)
            if job is not None:
                self.step(gang_events.Allocated(uid=uid))

    @rule(job=st.sampled_from(sorted(JOBS)))
    def make_plan(self, job: str) -> None:
        gang = self.cache.gangs.get(f"Job of pods/default/{job}")
        if gang is None or gang.missing or gang.plan.places or not gang.unbound:
            return
        if any(self.cache.is_bind_open(uid) for uid in gang.unbound):
            return
        made = plan.plan(
            self.cache, gang, NODES, 0, PER_POD, until_s=self.time.now_s + REVIEW_S
        )
        if isinstance(made, Refusal):
            return
        assert self.step(events.JobReserved(job=gang.job, reservations=made))

    @rule(
        wanting=st.sampled_from((*ALONE, *JOBS)), where=places, mask=st.integers(1, 255)
    )
    def free_chips(self, wanting: str, where: str, mask: int) -> None:
        """Preemption begins to free chips that may be in use."""
        job = f"Job of pods/default/{wanting}"
        if wanting in ALONE and (
            not self.waits(wanting) or f"uid-{wanting}" in reservations(self.cache)
        ):
            return
        if wanting in JOBS and job not in self.cache.gangs:
            return
        wants = job if wanting in JOBS else f"uid-{wanting}"
        made = self.kept(wants, where, mask, Owner.PREEMPTION)
        if wants not in self.freeing and self.step(made):
            self.freeing.add(wants)

    @precondition(lambda self: self.freeing)
    @rule(data=st.data())
    def end_an_attempt(self, data: st.DataObject) -> None:
        wants = data.draw(st.sampled_from(sorted(map(str, self.freeing))))
        self.freeing.discard(wants)
        self.step(events.Released(kept_for=wants, owner=Owner.PREEMPTION))

    @rule(
        moving=st.sampled_from((*ALONE, *JOBS)), where=places, mask=st.integers(1, 255)
    )
    def keep_for_successors(self, moving: str, where: str, mask: int) -> None:
        """A job moves because of a fault, and its chips may be in use.

        A pod that is a job by itself runs then, so it has no reservation of its own.
        """
        job = f"Job of pods/default/{moving}"
        wants = job if moving in JOBS else f"uid-{moving}"
        if self.cache.reservation(wants) is not None:
            return
        if self.step(self.kept(wants, where, mask, Owner.RESCHEDULING)):
            self.moving[wants, where] = mask

    @precondition(lambda self: self.moving)
    @rule(data=st.data())
    def end_a_move(self, data: st.DataObject) -> None:
        wants = data.draw(st.sampled_from(sorted(str(w) for w, _ in self.moving)))
        self.moving = {key: m for key, m in self.moving.items() if key[0] != wants}
        self.step(events.Released(kept_for=wants, owner=Owner.RESCHEDULING))

    @rule(
        name=st.sampled_from(JOBS["j"] + JOBS["k"]), where=places, first=st.booleans()
    )
    def keep_for_who_is_to_come(self, name: str, where: str, *, first: bool) -> None:
        """Chips for the successor of a pod that has gone."""
        uid = f"uid-{name}"
        if uid in self.cache.pods:
            return
        role, number = self.place(name)
        job = f"Job of pods/default/{name[0]}"
        absent = AbsentMember(job, role, number)
        mask = 0b1111 if first else 0b11110000
        if absent not in self.absent and self.step(
            self.kept(absent, where, mask, Owner.PREEMPTION)
        ):
            self.absent.add(absent)

    def place(self, name: str) -> tuple[str, tuple[int, int]]:
        found = self.seen(name).member
        assert found is not None
        return found.membership.place

    def kept(
        self, wants: Beneficiary, where: str, mask: int, owner: Owner
    ) -> Reservation:
        return Reservation(
            kept_for=wants,
            owner=owner,
            node=where,
            resource=RESOURCE,
            chips=mask,
            until_s=self.time.now_s + LONGEST_S[owner],
        )

    @rule(job=st.sampled_from(sorted(JOBS)), nodes=st.frozensets(places, min_size=1))
    def keep_nodes(self, job: str, nodes: frozenset[str]) -> None:
        until_s = self.time.now_s + 100
        key = f"Job of pods/default/{job}"
        made = NodeReservation(
            job=key, resource=RESOURCE, priority=0, nodes=nodes, until_s=until_s
        )
        existing = self.cache.node_reservation(RESOURCE)
        self.step(made)
        assert self.cache.node_reservation(RESOURCE) == (existing or made)

    # -- the API server, its watch, time ---------------------------------------------

    @precondition(lambda self: self.sent)
    @rule(data=st.data(), is_done=st.booleans(), is_heard=st.booleans())
    def end_a_bind(self, data: st.DataObject, *, is_done: bool, is_heard: bool) -> None:
        uid = data.draw(st.sampled_from(sorted(self.sent)))
        sent = self.sent[uid].reservation
        if is_done:
            ids = chips.ids_of(sent.chips)
            texts = claim(ids, time_of(sent))
            seen = self.seen(uid.removeprefix("uid-"))
            pod = replace(seen.pod, node=sent.node, annotations=texts)
            self.bound[uid] = replace(seen, pod=pod)
            del self.sent[uid]
            self.unheard.append(self.bound[uid])
            if is_heard:
                self.hear()
        else:
            del self.sent[uid]
            self.step(events.BindVoided(uid=uid))

    @precondition(lambda self: self.unheard)
    @rule()
    def hear(self) -> None:
        unheard, self.unheard = self.unheard, []
        for change in unheard:
            self.step(change)

    @rule(name=pods)
    def delete(self, name: str) -> None:
        """A pod goes; what it had is free when that is heard."""
        uid = f"uid-{name}"
        if uid in self.sent:
            return  # what becomes of a bind under way is its sender's business
        self.hear()
        self.bound.pop(uid, None)
        self.step(events.PodDeleted(uid=uid))

    @rule(name=pods)
    def make_again(self, name: str) -> None:
        if f"uid-{name}" in self.cache.pods or f"uid-{name}" in self.bound:
            return
        self.step(self.seen(name))
        if name in ALONE:
            return
        absent = AbsentMember(f"Job of pods/default/{name[0]}", *self.place(name))
        if absent in self.absent:  # what was kept for it is its own now
            self.absent.discard(absent)
            assert self.cache.kept_for(absent) == ()
            assert self.cache.kept_for(f"uid-{name}")
            self.freeing.add(f"uid-{name}")

    @rule(seconds=st.sampled_from((1, 40, 70, 400, 700)))
    def pass_time(self, seconds: int) -> None:
        self.time.pass_s(seconds)
        for name in NODES:
            self.step(report(name, update_time=self.time.now_s))
        self.step(events.Ticked())

    @rule()
    def fail_over(self) -> None:
        """Another takes over once no bind is open: it knows what is bound, no more."""
        for uid in sorted(self.sent):
            del self.sent[uid]
        there = [uid for uid in self.cache.pods if uid not in self.bound]
        self.cache = cluster(nodes=NODES)
        for name in NODES:
            self.step(report(name, update_time=self.time.now_s))
        self.freeing.clear()
        self.moving.clear()
        self.absent.clear()
        self.unheard.clear()
        for uid in there:
            self.step(self.seen(uid.removeprefix("uid-")))
        for seen in self.bound.values():
            self.step(seen)

    # -- what always holds -------------------------------------------------------------

    @invariant()
    def no_chip_is_kept_for_two(self) -> None:
        taken: defaultdict[str, int] = defaultdict(int)
        for each in all_reservations(self.cache):
            assert not taken[each.node] & each.chips, each
            taken[each.node] |= each.chips

    @invariant()
    def who_is_bound_shares_with_nobody(self) -> None:
        given = dict(reservations(self.cache))
        for uid, seen in self.bound.items():
            mask = sum(1 << c for c in _ids(seen))
            for other, each in given.items():
                if other != uid and each.node == seen.pod.node:
                    assert not mask & each.chips, (uid, each)

    @invariant()
    def what_is_kept_is_not_free(self) -> None:
        for each in all_reservations(self.cache):
            assert not node_states(self.cache)[each.node].free & each.chips

    @invariant()
    def each_has_an_owner_that_answers_for_it(self) -> None:
        places = {
            u: n for g in self.cache.gangs.values() for u, n in g.plan.places.items()
        }
        for each in all_reservations(self.cache):
            assert each.until_s > self.time.now_s - 1
            assert each.until_s <= self.time.now_s + LONGEST_S[each.owner]
            uid = each.kept_for
            if each.owner is Owner.PLAN:
                assert places[str(uid)] == each.node
            elif each.is_of_move:
                assert self.moving[uid, each.node] == each.chips
            elif each.claim is None:
                assert uid in self.freeing or uid in self.absent, each
            elif each.owner not in WAITING:
                assert uid in self.sent or uid in self.bound, each
            if isinstance(uid, str) and not each.is_of_move:
                assert uid in self.cache.pods or uid in self.cache.gangs, each
        for uid, node in places.items():
            assert reservations(self.cache)[uid].node == node

    @invariant()
    def a_move_keeps_its_chips(self) -> None:
        kept = [each for each in all_reservations(self.cache) if each.is_of_move]
        assert {(each.kept_for, each.node) for each in kept} == self.moving.keys()
        assert self.cache.counts()["moving_jobs"] == len({w for w, _ in self.moving})

    @invariant()
    def a_pod_has_one_place(self) -> None:
        assigned = [r for r in all_reservations(self.cache) if r.claim is not None]
        assert len(assigned) == len(reservations(self.cache))
        by_node = [each for some in self.cache.reserved.values() for each in some]
        assert sorted(map(repr, by_node)) == sorted(
            map(repr, all_reservations(self.cache))
        )

    def teardown(self) -> None:
        """Nobody wants anything any more: soon nothing is kept."""
        self.hear()
        for _ in range(6):
            self.pass_time(700)
        assert all_reservations(self.cache) == []
        assert self.cache.node_reservation(RESOURCE) is None
        for state in resource_states(self.cache):
            owned = sum(tenant.chips for tenant in state.tenants.values())
            assert node_states(self.cache)[state.node_info.name].free == 255 & ~owned


def _ids(seen: events.PodUpdated) -> list[int]:
    named = seen.pod.annotations[RESOURCE].split(",")
    return [int(name.rpartition("-")[2]) for name in named]


@examples(20, pytest.param(60, marks=pytest.mark.long))
def test_each_chip_has_one_owner_and_none_is_kept_for_nobody(examples: int) -> None:
    run_state_machine_as_test(
        Owners, settings=settings(max_examples=examples, stateful_step_count=50)
    )
