"""A model of the agent around the pure ledger: what reconciler and plugin do.

Each effect is one step: journal written, answer given, patch sent, patch
acknowledged. The agent can die between any two of them; what is left then is
the journal, and what others know.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from agent.claims import annotations, confirm, occupancy, release, values
from agent.claims import ledger as ledgers
from agent.claims.annotations import Patch
from agent.claims.events import (
    AllocateAsked,
    AwaitClaim,
    AwaitLook,
    ChipsRead,
    Counted,
    Effect,
    Event,
    Granted,
    Identity,
    PassEnded,
    PodDeleted,
    PodUpdated,
    PreferenceAsked,
    Preferred,
    Refused,
    Registering,
    ResourcesRead,
)
from agent.claims.values import Hold, Ledger
from agent.journal import file
from scheduler_core.node import chips as chip_sets
from tests.agent.claims.admission_model import PluginError
from tests.agent.claims.cluster_model import NODE, PRODUCT, Cluster, chips_text
from tests.agent.claims.kubelet_model import Kubelet
from tests.agent.node import HOST_IP

_BOOT = "boot-1"


def read_again(holds: tuple[Hold, ...]) -> tuple[Hold, ...]:
    """What the next agent reads of holds that were written."""
    content = file.encode(holds, boot_id=_BOOT, node=NODE)
    return file.decode(content, boot_id=_BOOT, node=NODE)


class AgentDiedError(PluginError):
    """The agent died before it had answered."""


@dataclass(frozen=True)
class Reading:
    """A pod-resources request that has not been answered yet."""

    uid: str
    containers: dict[str, frozenset[str]] | None
    as_of: int
    mark: int
    kubelet: int  # which of the kubelet's lives answers


@dataclass
class Agent:
    """The agent's process, with its journal, which outlives it."""

    cluster: Cluster
    seen: Counter[str]
    unhealthy: Callable[[], int]  # mask; the driver's
    kubelet: Kubelet = field(init=False)
    ledger: Ledger = field(default_factory=lambda: Ledger(product=PRODUCT, node=NODE))
    journal: tuple[Hold, ...] = ()
    is_up: bool = False
    fuse: int | None = None  # effects until it dies
    batch: list[Patch] = field(default_factory=list)
    unsure: set[str] = field(default_factory=set)  # uids of pods patched in vain
    reading: Reading | None = None
    rechosen: set[int] = field(default_factory=set)  # sequences of holds
    chosen_since: int = 0  # mask: chosen again since the batch was made
    before_patch: Callable[[], None] = lambda: None
    after_patch: Callable[[], None] = lambda: None
    died_in_admission: bool = False
    _asked: bool = False  # a preference was asked for, its Allocate is to come
    looking: ChipsRead | None = None  # a look that has not been told yet
    last_look: ChipsRead = field(default_factory=lambda: ChipsRead(0, 0, began_s=-1.0))
    is_read: bool = True  # whether the driver looks when it is asked to
    heard_s: dict[int, float] = field(default_factory=dict)  # of chips: their pods' end
    _activity: int = 0
    now_s: float = 0.0  # each event comes a second after the one before
    _swap_patches: int = -1  # sent since an exchange began; -1: none under way

    # life and death

    def start(self) -> None:
        """Begin as the real one does: journal, driver, pods, resume, one pass."""
        self.is_up = True
        self.ledger = Ledger(product=PRODUCT, node=NODE)
        self.heard_s.clear()
        self.ledger = ledgers.restore(self.ledger, read_again(self.journal))
        self.look()
        self.cluster.watch.clear()
        for pod in self.cluster.pods.values():
            self.take(PodUpdated(pod))
        self.ledger = ledgers.resume(self.ledger, self.now_s)
        self.pass_(thorough=True)
        self.take(Registering(self.kubelet.lives))
        self.stream()

    def die(self) -> None:
        self.seen["crash"] += 1
        if self.is_in_a_swap():
            self.seen["crash in the middle of a swap"] += 1
        self.died_in_admission |= self.kubelet.admission is not None
        self.is_up = False
        self.fuse = None
        self.batch, self.reading, self.looking = [], None, None
        self.unsure.clear()
        self._asked, self._swap_patches = False, -1
        self.kubelet.healthy = frozenset()

    def is_in_a_swap(self) -> bool:
        """Whether some patches of an exchange are written and some are not."""
        return self.is_up and self._swap_patches > 0 and bool(self.wanted())

    def tick(self) -> None:
        """The place between two effects."""
        if self.fuse is None:
            return
        self.fuse -= 1
        if self.fuse < 0:
            self.die()
            raise AgentDiedError

    def survives(self, work: Callable[[], object]) -> None:
        """Do something that the agent may die of."""
        try:
            work()
        except AgentDiedError:
            return

    # events

    def take(self, event: Event) -> tuple[Effect, ...]:
        """Let the ledger take in an event; its holds go to the journal."""
        old, before = self.ledger, self.ledger.holds
        self.now_s += 1.0
        self.ledger, effects = ledgers.step(self.ledger, event, self.now_s)
        self._note_ends(old)
        for effect in effects:
            if isinstance(effect, Counted):
                self._count(effect.identity)
        if self.ledger.holds != before:
            self.tick()
            # what a reading or the next Allocate tells again is not written
            self.journal = tuple(
                replace(hold, reoffered=False, misses=0)
                for hold in self.ledger.holds.values()
            )
        self.tick()
        return effects

    def _count(self, identity: Identity) -> None:
        self.seen[identity] += 1
        if identity is Identity.CORRECTED:
            self._swap_patches = 0

    def deliver(self, count: int) -> None:
        """Take in the next watch events."""
        for _ in range(min(count, len(self.cluster.watch))):
            self.take(self.cluster.watch.popleft())
        if not self.cluster.watch:
            self.unsure.clear()

    def relist(self) -> None:
        """The watch begins anew: the differences are told, in no special order."""
        self.cluster.watch.clear()
        self.unsure.clear()
        for uid in sorted(self.ledger.pods.keys() - self.cluster.pods.keys()):
            self.take(PodDeleted(uid))
        for pod in tuple(self.cluster.pods.values()):
            if self.ledger.pods.get(pod.uid) != pod:
                self.take(PodUpdated(pod))

    def look(self) -> None:
        """The driver looks at the chips, and says at once what it saw."""
        self.begin_look()
        self.end_look()

    def begin_look(self) -> None:
        """The driver looks at the chips; what it sees is told later."""
        self.looking = ChipsRead(
            unhealthy=self.unhealthy(),
            busy=self.kubelet.busy(),
            began_s=self.now_s + 0.5,
        )

    def end_look(self) -> None:
        """What the driver saw is told."""
        look, self.looking = self.looking, None
        if look is not None:
            self.last_look = look
            self.take(look)

    def _note_ends(self, before: Ledger) -> None:
        """Remember of which chips it was heard that a pod with them has ended."""
        for uid in before.pods:
            if values.is_alive(before, uid) and not values.is_alive(self.ledger, uid):
                chips = chip_sets.ids_of(self.kubelet.given.get(uid, 0))
                self.heard_s.update(dict.fromkeys(chips, self.now_s))

    # what the kubelet asks

    def prefer(
        self, available: tuple[str, ...], taken: tuple[str, ...], size: int
    ) -> tuple[str, ...]:
        self._alive()
        self._asked = True
        self._activity += 1
        while True:
            (answer,) = self.take(PreferenceAsked(available, taken, size))
            assert isinstance(answer, Preferred)
            if answer.look_missing and self.is_read:
                self.seen["look awaited"] += 1
                self.look()
            elif answer.claim_missing and self.cluster.watch:
                self.deliver(1)
            else:
                return answer.kubelet_ids

    def allocate(self, ids: tuple[str, ...]) -> tuple[tuple[str, int], ...]:
        self._alive()
        self._activity += 1
        answer = self._decide(ids)
        self._activity += 1
        self._asked = False
        if isinstance(answer, Refused):
            self.seen["refused"] += 1
            raise PluginError(answer.text)
        hold = answer.hold
        left = chip_sets.mask_of(hold.chips) & self.kubelet.leftovers
        assert not left, f"{chips_text(left)} was given out with a process on it"
        if hold.sequence in self.rechosen:
            self.seen["rechosen chips"] += 1
        return tuple(zip(hold.kubelet_ids, hold.chips, strict=True))

    def _decide(self, ids: tuple[str, ...]) -> Granted | Refused:
        answer = self._ask(AllocateAsked(ids, last_call=False))
        if isinstance(answer, AwaitLook):
            self.seen["look awaited"] += 1
            if self.is_read:
                self.look()
                answer = self._ask(AllocateAsked(ids, last_call=False))
            else:
                answer = self._ask(AllocateAsked(ids, last_call=True))
        if isinstance(answer, AwaitClaim):
            self.seen["claim awaited"] += 1
            if self.is_read:
                self.look()
            for pod in tuple(self.kubelet.known.values()):  # the kubelet's own list
                self.take(PodUpdated(pod, by_kubelet=True))
            answer = self._ask(AllocateAsked(ids, last_call=True))
        assert isinstance(answer, Granted | Refused)
        return answer

    def _ask(self, asked: AllocateAsked) -> Effect:
        before = self.ledger.slots
        effects = self.take(asked)
        if Counted(Identity.RECHOSEN) in effects:
            self.rechosen.add(self.ledger.sequence)
            slot = self.ledger.slots[self.ledger.holds[self.ledger.sequence].slot]
            had = before[slot.uid].chips if slot.uid in before else 0
            self.chosen_since |= slot.chips & ~had
        return effects[0]

    def _alive(self) -> None:
        if not self.is_up:
            raise PluginError("no plugin is registered")

    def forget_preference(self) -> None:
        """A preference that no Allocate follows counts for a while only."""
        self._asked = False

    # what it asks the kubelet

    def stream(self) -> None:
        """Send the device list."""
        devices = occupancy.list_devices(self.ledger)
        self.kubelet.healthy = frozenset(name for name, healthy in devices if healthy)

    def pass_(self, *, thorough: bool, looks: bool = True) -> None:
        """One correction pass.

        Args:
            looks: Whether the driver is read during it.
        """
        mark = self._mark()
        self._read_each(thorough=thorough)
        in_use = None
        if release.needs_full_list(self.ledger) and mark >= 0:
            in_use = self.kubelet.list()
            self._read_each(thorough=False)
        if looks and self.is_read:
            self.look()
        self.take(PassEnded(quiet=self._is_quiet_since(mark), in_use=in_use))

    def _read_each(self, *, thorough: bool) -> None:
        for uid, _, name in confirm.pods_to_read(self.ledger, thorough=thorough):
            self._begin(uid, name)
            self.end_reading()

    def begin_reading(self, position: int) -> None:
        """Send a request whose answer will come later."""
        wanted = confirm.pods_to_read(self.ledger, thorough=True)
        if wanted:
            uid, _, name = wanted[position % len(wanted)]
            self._begin(uid, name)

    def _begin(self, uid: str, name: str) -> None:
        self.reading = Reading(
            uid=uid,
            containers=self.kubelet.resources(name),
            as_of=self.ledger.sequence,
            mark=self._mark(),
            kubelet=self.kubelet.lives,
        )

    def end_reading(self) -> None:
        reading, self.reading = self.reading, None
        if reading is not None:
            self.take(
                ResourcesRead(
                    uid=reading.uid,
                    containers=reading.containers,
                    as_of=reading.as_of,
                    until=self.ledger.sequence,
                    quiet=reading.kubelet == self.kubelet.lives
                    and self._is_quiet_since(reading.mark),
                    kubelet=reading.kubelet,
                )
            )

    def _mark(self) -> int:
        return -1 if self._asked else self._activity

    def _is_quiet_since(self, mark: int) -> bool:
        return mark == self._activity and not self._asked

    # what it writes

    def wanted(self) -> tuple[Patch, ...]:
        return annotations.plan_patches(
            self.ledger, host_ip=HOST_IP, unsure=self.unsure
        )

    def send(
        self, *, last: bool = False, lands: bool = True, told: bool = True
    ) -> bool:
        """Let one patch of the batch land; a new batch when there is none.

        All of a batch are on their way at once: much can happen before one lands.

        Returns:
            Whether there was one.
        """
        if not self.batch:
            self.batch, self.chosen_since = list(self.wanted()), 0
        if not self.batch:
            self._swap_patches = -1
            return False
        patch = self.batch.pop(-1 if last else 0)
        self.tick()
        self.unsure.add(patch.uid)
        if lands and self.cluster.is_up:
            self._land(patch, told=told)
        else:
            self.seen["patch failed"] += 1
            self.batch = []
        return True

    def _land(self, patch: Patch, *, told: bool) -> None:
        self.before_patch()
        pod = self.cluster.patch(patch.uid, patch.annotations)
        self.after_patch()
        if self._swap_patches >= 0:
            self._swap_patches += 1
        self.tick()
        if told:
            self.unsure.discard(patch.uid)
        if pod is not None and told:
            self.take(PodUpdated(pod))

    def publish(self) -> None:
        """Write the ConfigMap."""
        if self.cluster.is_up:
            self.cluster.affinity = annotations.make_affinity(self.ledger)
            self.cluster.unhealthy = self.ledger.unhealthy
            self.cluster.allocatable = len(self.kubelet.healthy)
