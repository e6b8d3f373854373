"""The world around one node's ledger, and what must be true in it.

`World` connects the models of API server, scheduler, kubelet and agent, checks
the invariants that hold at every moment, and can let everything come to rest
and check that what is mounted, annotated and known agree.
"""

from collections import Counter
from dataclasses import replace

from agent.claims import occupancy, values
from agent.claims.events import Identity
from agent.claims.values import Hold
from scheduler_core.node import chips as chip_sets
from scheduler_core.wire import annotations as keys
from scheduler_core.wire import shapes
from scheduler_core.wire.pods import NpuPod
from scheduler_core.wire.shapes import ContainerKind
from tests.agent.claims.admission_model import Manner
from tests.agent.claims.agent_model import Agent
from tests.agent.claims.cluster_model import (
    PRODUCT,
    Cluster,
    annotated,
    chips_text,
)
from tests.agent.claims.kubelet_model import Kubelet
from tests.agent.node import EVERY_ID

#: Passes after which everything must have come to rest.
ENOUGH_PASSES = 12


class World:
    """One node and all that it depends on."""

    def __init__(self, seen: Counter[str]) -> None:
        self.seen = seen
        self.broken = 0  # mask
        self.cluster = Cluster(seen=seen)
        self.agent = Agent(
            cluster=self.cluster, seen=seen, unhealthy=lambda: self.broken
        )
        self.kubelet = Kubelet(cluster=self.cluster, plugin=self.agent, seen=seen)
        self.agent.kubelet = self.kubelet
        self.agent.before_patch = self._before_patch
        self.agent.after_patch = self._after_patch
        self._covered = 0
        self.has_failed = False
        self.is_plain = True  # since the last rest: only binds and admissions
        self.fresh: list[str] = []  # uids bound since the last rest
        self.agent.start()
        self.agent.publish()

    # coverage while the agent writes

    def _wanted_by_living(self) -> int:
        """Chips that pods have got or are still to get, as far as it was told.

        What a pod has that no watch has shown yet is held, and told to the
        scheduler as such; which claim it came with nobody can know.
        """
        mask = 0
        known = self.cluster.pods.keys() & self.agent.ledger.pods.keys()
        for uid in self.kubelet.running.keys() & known:
            mask |= self.kubelet.mounted_by(uid)
        for uid, slot in self.agent.ledger.slots.items():
            pod = self.cluster.pods.get(uid)
            has_all = uid in self.kubelet.running
            if pod is not None and not pod.terminal and not has_all:
                mask |= slot.chips
        return mask

    def _before_patch(self) -> None:
        """Note what this patch may not uncover.

        What was chosen again while it was on its way could have been chosen where
        nobody claims it: like all that is chosen again it is told as held, and
        claimed when its own patch lands, which no patch made after it uncovers.
        """
        wanted = self._wanted_by_living() & ~self.agent.chosen_since
        self._covered = self.cluster.annotated() & wanted

    def _after_patch(self) -> None:
        living = {pod.uid for pod in self.cluster.living()}
        known = self.agent.ledger.pods.values()
        # of pods that have ended, which no watch has told yet
        unheard = chip_sets.union(
            annotated(pod) for pod in known if pod.uid not in living
        )
        lost = self._covered & ~self.cluster.annotated() & ~unheard
        self.has_failed |= bool(lost)
        assert not lost, f"a patch left {chips_text(lost)} claimed by nobody"

    # at every moment

    def check(self) -> None:
        self.has_failed = True  # unless all that follows holds
        self._check_one_owner()
        self._check_slots()
        if self.agent.is_up:
            self._check_devices()
            self._check_evidence()
        held = chip_sets.union(hold.mask for hold in self._held_now())
        # what a pod reads it has, whatever we know
        held |= chip_sets.union(annotated(pod) for pod in self._readers())
        loose = self.kubelet.mounted() & ~held
        assert not loose, f"{chips_text(loose)} is mounted and not held"
        self.is_plain &= not self.agent.died_in_admission
        if self.is_plain:
            assert not self.seen["refused"], "refused without a reason"
            assert not self.seen[Identity.RECHOSEN], "chosen again without a reason"
        self.has_failed = False

    def _readers(self) -> list[NpuPod]:
        """The pods that mount what their annotation says, not what was answered.

        Once one is known to hold something, the ledger knows what that is.
        """
        pods = (*self.cluster.living(), *self.kubelet.running.values())
        known = {hold.owner.uid for hold in self._held_now() if hold.owner is not None}
        return [
            pod for pod in pods if pod.shape.reads_annotation and pod.uid not in known
        ]

    def _held_now(self) -> tuple[Hold, ...]:
        if not self.agent.is_up:
            return self.agent.journal
        return tuple(self.agent.ledger.holds.values())

    def _check_one_owner(self) -> None:
        by_pod: dict[str, int] = {}
        lasting: dict[str, int] = {}
        for (uid, _), container in self.kubelet.lasting().items():
            by_pod[uid] = by_pod.get(uid, 0) | container.mask
            before = lasting.get(uid, 0)
            assert not before & container.mask, f"two containers of {uid} share a chip"
            if container.kind is not ContainerKind.INIT:
                lasting[uid] = before | container.mask
        taken = 0
        for uid, mask in by_pod.items():
            assert not taken & mask, f"{uid} has a chip that is another pod's"
            taken |= mask

    def _check_slots(self) -> None:
        for slot in self.agent.ledger.slots.values():
            if slot.predicate_time == keys.SERVED:
                continue  # made from what a pod was known to hold
            wanted = shapes.total(slot.shape.needs)
            assert slot.chips.bit_count() == wanted or values.is_fresh(slot), slot

    def _check_devices(self) -> None:
        ledger = self.agent.ledger
        told = dict(occupancy.list_devices(ledger))
        assert tuple(told) == EVERY_ID
        readers = {pod.uid for pod in self._readers()}
        for (uid, _), container in self.kubelet.lasting().items():
            for kubelet_id, chip in container.mounted:
                if ledger.unhealthy >> chip & 1 and uid not in readers:
                    assert not told[kubelet_id], f"{kubelet_id} hides a broken chip"
        bad = ledger.unhealthy | values.releasing_chips(ledger)
        behind: dict[str, int] = {}
        for hold in ledger.holds.values():
            for kubelet_id, chip in zip(hold.kubelet_ids, hold.chips, strict=False):
                behind[kubelet_id] = behind.get(kubelet_id, 0) | 1 << chip
        for kubelet_id, mask in behind.items():
            assert told[kubelet_id] is not bool(mask & bad), kubelet_id

    def _check_evidence(self) -> None:
        """No chip is kept from all by a look of before its pod's end was heard of."""
        look = self.agent.last_look
        for chip in chip_sets.ids_of(values.releasing_chips(self.agent.ledger)):
            assert look.busy >> chip & 1, f"chip {chip} has no process"
            heard_s = self.agent.heard_s.get(chip, -1.0)
            assert look.began_s > heard_s, f"chip {chip} was not looked at since"

    # to rest

    def rest(self) -> None:
        """Let everything come to rest, then check that all agree."""
        self.cluster.is_up = True
        self.agent.fuse = None
        self.agent.is_read = True
        if not self.agent.is_up:
            self.agent.start()
        for uid in tuple(self.kubelet.running):
            self.kubelet.report(uid)
        while self.kubelet.admission is not None:
            self.kubelet.advance()
        self.agent.forget_preference()
        self._remove_deleted()
        self._settle()
        for pod in self.kubelet.waiting():
            self._serve(pod)
        self._settle()
        self._start_again()
        holds = self.agent.ledger.holds.values()
        without = self._without_devices()
        if not without and all(hold.owner is not None for hold in holds):
            self._check_pods()
        # else somebody unknown may run on chips: what claims them must stay
        self._delete(without)
        self._check_pods()
        self._check_rest()
        self.seen["rest"] += 1
        self.is_plain, self.fresh = True, []
        self.agent.died_in_admission = False
        self.seen["refused"] = self.seen[Identity.RECHOSEN] = 0

    def _start_again(self) -> None:
        for key, container in tuple(self.kubelet.containers.items()):
            if not container.alive and key[0] in self.kubelet.known:
                self.is_plain = False
                self.kubelet.restart_container(key, Manner())
                self._settle()

    def _remove_deleted(self) -> None:
        for pod in tuple(self.cluster.pods.values()):
            if pod.deleting:
                self.kubelet.terminate(pod.uid, leftover=False)

    def _without_devices(self) -> list[str]:
        """The pods of which the events say that they are to be deleted."""
        ledger = self.agent.ledger
        lost = {h.owner.uid for h in ledger.holds.values() if h.lost and h.owner}
        without = sorted((ledger.bare | lost) & self.cluster.pods.keys())
        for uid in without:
            assert self.kubelet.lacks_devices(uid), f"{uid} has all its devices"
        return without

    def _delete(self, uids: list[str]) -> None:
        """People do what the events say."""
        for uid in uids:
            self.is_plain = False
            self.kubelet.terminate(uid, leftover=False)
        self._settle()

    def _serve(self, pod: NpuPod) -> None:
        self.kubelet.begin(pod, Manner())
        while self.kubelet.admission is not None:
            self.kubelet.advance()
        self.check()

    def _settle(self) -> None:
        for uid in sorted(self.kubelet.admitted - self.kubelet.ended):
            if uid in self.cluster.pods and uid not in self.kubelet.running:
                self.kubelet.start(uid)
            self.kubelet.report(uid)
        for _ in range(ENOUGH_PASSES):
            before = self.agent.ledger
            self.kubelet.sync()
            self.agent.deliver(len(self.cluster.watch))
            self.agent.pass_(thorough=True)
            self._write_all()
            self.agent.stream()
            self.agent.publish()
            self.check()
            if self.agent.ledger == before and not self.cluster.watch:
                return
        raise AssertionError("it does not come to rest")

    def _write_all(self) -> None:
        for _ in range(50):
            if not self.agent.send():
                return
            self.check()
        raise AssertionError("there is always something to write")

    def _check_rest(self) -> None:
        ledger, kubelet = self.agent.ledger, self.kubelet
        held = values.held_chips(ledger)
        leaked = 0
        for hold in ledger.holds.values():
            if hold.owner is not None and self._is_ambiguous(hold.owner.uid):
                continue
            if not hold.mask & kubelet.busy():  # it ends as a whole
                leaked |= hold.mask & ~kubelet.mounted()
        assert not leaked, f"{chips_text(leaked)} is held for nobody"
        usable = (
            ~held
            & ~ledger.unhealthy
            & ~values.releasing_chips(ledger)
            & PRODUCT.all_chips
        )
        kubelet.free_ended()
        in_use = {i for ids in kubelet.devices.values() for i in ids}
        if not self._has_strange_ids():
            assert len(kubelet.healthy - in_use) == usable.bit_count(), (
                "capacity is lost"
            )
        self._check_plain()

    def _has_strange_ids(self) -> bool:
        """Whether an id is behind two containers, lost, or held after its end."""
        ledger, kubelet = self.agent.ledger, self.kubelet
        given = sorted(i for ids in kubelet.devices.values() for i in ids)
        held = sorted({i for hold in ledger.holds.values() for i in hold.kubelet_ids})
        return given != held

    def _check_pods(self) -> None:
        for uid in sorted(self.kubelet.running.keys() & self.cluster.pods.keys()):
            # of a pod that nobody scheduled nothing is promised but one owner
            is_promised = uid in self.cluster.bound
            if is_promised and not self._is_ambiguous(uid):
                self._check_pod(self.cluster.pods[uid])

    def _is_ambiguous(self, uid: str) -> bool:
        """Whether somebody unknown was given an id that a pod is known to have.

        The kubelet gave it twice: which of the two holds is whose nobody can tell.
        """
        ledger = self.agent.ledger
        mine = {
            i for hold in values.holds_of_pod(ledger, uid) for i in hold.kubelet_ids
        }
        return uid in ledger.bare or any(
            hold.owner is None and not mine.isdisjoint(hold.kubelet_ids)
            for hold in ledger.holds.values()
        )

    def _check_pod(self, pod: NpuPod) -> None:
        made = [c for key, c in self.kubelet.containers.items() if key[0] == pod.uid]
        if not all(container.mounted for container in made):
            return  # one could not come again
        mounted = self.kubelet.mounted_by(pod.uid)
        ids = {kubelet_id for each in made for kubelet_id, _ in each.mounted}
        chips = chip_sets.ids_of(mounted)
        expected = {
            PRODUCT.resource: keys.render_chips(chips, PRODUCT),
            keys.ASCEND_REAL: keys.render_chips(chips, PRODUCT, lexicographic=True),
            keys.KLT_DEV: ",".join(sorted(ids)),
            keys.PREDICATE_TIME: str(keys.SERVED),
        }
        told = {key: pod.annotations.get(key) for key in expected}
        assert told == expected, pod.uid
        self.seen["pod checked at rest"] += 1

    def _check_plain(self) -> None:
        """Nothing but binds and admissions: the very sets that bind chose."""
        if not self.is_plain or not self.kubelet.ended.isdisjoint(self.fresh):
            return
        chosen = sorted(self.cluster.bound[uid] for uid in self.fresh)
        got = sorted(self.kubelet.mounted_by(uid) for uid in self.fresh)
        assert got == chosen
        self.seen["plain rest"] += bool(self.fresh)

    # what people do

    def force_delete(self, uid: str) -> None:
        """Remove a pod from the API server; what runs goes on running."""
        self.cluster.remove(uid)
        admission = self.kubelet.admission
        is_busy = admission is not None and admission.pod.uid == uid
        if uid not in self.kubelet.running and not is_busy:
            self.kubelet.reap(uid)

    def delete(self, uid: str) -> None:
        """Delete with a grace period: the kubelet has to end it first."""
        pod = self.cluster.pods[uid]
        self.cluster.put(replace(pod, deleting=True))
