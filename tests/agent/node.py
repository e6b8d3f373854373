"""A small node for tests of the agent: pods with claims, and a ledger of them."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from agent.claims import ledger as ledgers
from agent.claims import occupancy
from agent.claims.annotations import make_affinity, plan_patches
from agent.claims.events import (
    AllocateAsked,
    ChipsRead,
    Counted,
    Effect,
    Granted,
    Identity,
    Noted,
    PassEnded,
    PodDeleted,
    PodUpdated,
    PreferenceAsked,
    Preferred,
    Refused,
    ResourcesRead,
)
from agent.claims.store import LedgerStore
from agent.claims.values import Ledger
from scheduler_core.node import chips as chip_sets
from scheduler_core.products.columns import Product
from scheduler_core.products.table import ATLAS_800_TRAINING as PRODUCT
from scheduler_core.wire.deviceinfo import Affinity
from scheduler_core.wire.pods import NpuPod, PodMeta, RawContainer, npu_pod

NODE = "node-1"
HOST_IP = "10.0.0.1"
RESOURCE = PRODUCT.resource


def ids(*chips: int) -> tuple[str, ...]:
    """The device ids that these chips have as their own."""
    return tuple(f"Ascend910-{chip}" for chip in chips)


EVERY_ID = ids(*range(8))


def init(name: str, count: int) -> RawContainer:
    """An ordinary init container."""
    return RawContainer(name, is_init=True, limits={RESOURCE: str(count)})


def app(name: str, count: int) -> RawContainer:
    """A container that stays."""
    return RawContainer(name, limits={RESOURCE: str(count)})


def staged(prepare: int, main: int) -> list[RawContainer]:
    """An init container `prepare`, and `main` after it, with so many chips."""
    return [init("prepare", prepare), app("main", main)]


def pod(  # noqa: PLR0913  # the parts of a pod
    name: str,
    chips: Iterable[int],
    predicate_time: int = 1,
    *,
    phase: str = "Pending",
    admitted: bool = True,
    uid: str = "",
    annotations: dict[str, str] | None = None,
    containers: Sequence[RawContainer] = (),
) -> NpuPod:
    """A pod whose claim names these chips; one container asks for them all.

    The kubelet has said that it is its own, as it does after the last Allocate.
    """
    chips = tuple(chips)
    claim = {RESOURCE: ",".join(ids(*chips)), "predicate-time": str(predicate_time)}
    found = npu_pod(
        PodMeta(
            uid=uid or f"uid-{name}",
            namespace="default",
            name=name,
            node=NODE,
            phase=phase,
            admitted=admitted,
            annotations={**claim, **(annotations or {})},
        ),
        containers or [app("main", len(chips))],
        RESOURCE,
    )
    assert found is not None
    return found


def pair(
    name: str, chips: Iterable[int], predicate_time: int = 1, **more: Any
) -> NpuPod:
    """A pod of two containers, `one` and `two`, with a chip each."""
    both = [app("one", 1), app("two", 1)]
    return pod(name, chips, predicate_time, containers=both, **more)


def unlike(name: str, chips: Iterable[int], predicate_time: int) -> NpuPod:
    """A pod for which other chips may be right."""
    policy = {"huawei.com/schedule_policy": "chip4-node8"}
    return pod(name, chips, predicate_time, annotations=policy)


def reading(made: NpuPod) -> NpuPod:
    """The same pod, with ASCEND_VISIBLE_DEVICES from its annotation."""
    return replace(made, shape=replace(made.shape, reads_annotation=True))


async def nobody(_uids: Collection[str]) -> Mapping[str, tuple[int, ...]]:
    """No pod that has gone has left a process."""
    return {}


class NodeLedger(LedgerStore):
    """The ledger of one node, told and asked in one word each."""

    def __init__(self, product: Product = PRODUCT, *, standalone: bool = False) -> None:
        #: every effect of the ledger, in order
        self.effects: list[Effect] = []
        #: identity of the kubelet that answers: another one after it has restarted
        self.kubelet: object = "first"
        #: seconds; each event comes a second after the one before
        self.now_s = 0.0
        ledger = Ledger(
            product=product, node=NODE, standalone=standalone, kubelet=self.kubelet
        )
        super().__init__(ledger, self.effects.append, loop_s=self._tick)

    def _tick(self) -> float:
        self.now_s += 1.0
        return self.now_s

    # what the API server and the driver show

    def update(self, *pods: NpuPod, by_kubelet: bool = False) -> None:
        for each in pods:
            self.apply(PodUpdated(each, by_kubelet=by_kubelet))

    def becomes(self, name: str, phase: str) -> None:
        """The API server shows a pod in another phase."""
        self.update(replace(self.ledger.pods[f"uid-{name}"], phase=phase))

    def delete(self, name: str) -> None:
        self.apply(PodDeleted(f"uid-{name}"))

    def read_chips(
        self,
        *,
        unhealthy: int = 0,
        busy: int = 0,
        began_s: float | None = None,
        unread: int = 0,
    ) -> None:
        """The driver says which chips are broken, and which have processes: masks.

        Args:
            began_s: When this look began; None: after all that has happened.
            unread: Chips that it could not read.
        """
        began_s = self.now_s + 0.5 if began_s is None else began_s
        self.apply(
            ChipsRead(unhealthy=unhealthy, busy=busy, began_s=began_s, unread=unread)
        )

    def looks_again(self) -> None:
        """The driver is read again, and shows what it has shown."""
        self.read_chips(unhealthy=self.ledger.unhealthy, busy=self.ledger.busy)

    # what the kubelet asks

    def allocate(self, *chips: int) -> tuple[Effect, ...]:
        """The kubelet gives out these chips' ids, and nothing more will be learnt."""
        return self.apply(AllocateAsked(ids(*chips), last_call=True))

    def mounts(self, *chips: int) -> tuple[int, ...]:
        """The chips that it is answered with, for each id one."""
        effects = self.allocate(*chips)
        (given,) = [e.hold.chips for e in effects if isinstance(e, Granted)]
        return given

    def mounts_singly(self, *chips: int) -> list[tuple[int, ...]]:
        """The chips that Allocates of one id each are answered with, in turn."""
        return [self.mounts(chip) for chip in chips]

    def mounts_for(self, name: str, *chips: int) -> tuple[int, ...]:
        """As `mounts`; then pod-resources shows the ids for a pod's container main."""
        given = self.mounts(*chips)
        self.shows(name, main=chips)
        return given

    def identity(self, *chips: int) -> Identity:
        """How the pod that an Allocate is for was known."""
        effects = self.allocate(*chips)
        (found,) = [e.identity for e in effects if isinstance(e, Counted)]
        return found

    def refusal(self, *chips: int) -> str:
        """Why an Allocate is refused."""
        (refused,) = self.allocate(*chips)
        assert isinstance(refused, Refused), refused
        return refused.text

    def steers(
        self, available: tuple[str, ...], size: int, must: tuple[str, ...] = ()
    ) -> Preferred:
        """The answer to the question which of these ids it would like to see."""
        (preferred,) = self.apply(PreferenceAsked(available, must, size))
        assert isinstance(preferred, Preferred)
        return preferred

    def prefers(self, available: tuple[str, ...], size: int) -> tuple[str, ...]:
        """The ids that it would like to see out of these."""
        return self.steers(available, size).kubelet_ids

    # what pod-resources shows

    def shows(
        self,
        name: str,
        *,
        at: int | None = None,
        quiet: bool = True,
        **containers: tuple[int, ...],
    ) -> None:
        """pod-resources shows these chips' ids for the containers of a pod.

        Args:
            at: Number of the last hold when it was read; None: now.
        """
        shown = {c: frozenset(ids(*chips)) for c, chips in containers.items()}
        self._read(name, shown, at=at, quiet=quiet)

    def knows_not(self, name: str, *, quiet: bool = True) -> None:
        """pod-resources does not know a pod."""
        self._read(name, None, at=None, quiet=quiet)

    def _read(
        self,
        name: str,
        containers: dict[str, frozenset[str]] | None,
        *,
        at: int | None,
        quiet: bool,
    ) -> None:
        sequence = self.ledger.sequence if at is None else at
        self.apply(
            ResourcesRead(
                uid=f"uid-{name}",
                containers=containers,
                as_of=sequence,
                until=sequence,
                quiet=quiet,
                kubelet=self.kubelet,
            )
        )

    def passes(
        self, times: int = 1, *, in_use: tuple[int, ...] = (), looks: bool = True
    ) -> None:
        """So many quiet passes end, in which pod-resources lists these chips' ids.

        Args:
            looks: Whether the driver is read again before each of them.
        """
        for _ in range(times):
            if looks:
                self.looks_again()
            listed = {("default", "somebody", "main"): frozenset(ids(*in_use))}
            self.apply(PassEnded(quiet=True, in_use=listed))

    # what it knows

    @property
    def affinity(self) -> Affinity:
        """What the ConfigMap says of it."""
        return make_affinity(self.ledger)

    def written(self) -> dict[str, dict[str, str]]:
        """{pod: the annotations that may be set now}."""
        found = plan_patches(self.ledger, host_ip=HOST_IP)
        return {patch.name: dict(patch.annotations) for patch in found}

    def unhealthy_ids(self) -> tuple[str, ...]:
        """The ids that the kubelet is told not to give out."""
        listed = occupancy.list_devices(self.ledger)
        return tuple(name for name, is_healthy in listed if not is_healthy)

    def notes(self) -> list[Noted]:
        """What people were told so far."""
        return [effect for effect in self.effects if isinstance(effect, Noted)]

    def slots(self) -> dict[str, tuple[int, ...]]:
        """{pod: the chips that it is to be served from}."""
        return {
            uid.removeprefix("uid-"): chip_sets.ids_of(slot.chips)
            for uid, slot in self.ledger.slots.items()
        }

    def holds(self) -> dict[int, tuple[str, str, tuple[int, ...]]]:
        """{sequence: whose it is (pod/container), whose slot it came from, chips}."""
        return {
            sequence: (
                f"{hold.owner.pod}/{hold.owner.container}" if hold.owner else "",
                hold.slot.removeprefix("uid-"),
                hold.chips,
            )
            for sequence, hold in self.ledger.holds.items()
        }

    def owners(self) -> dict[int, str]:
        """{sequence of a hold: whose it is (pod/container)}."""
        return {sequence: owner for sequence, (owner, _, _) in self.holds().items()}

    def uids_of_owners(self) -> dict[int, str]:
        """{sequence of a hold: uid of the pod that was found to have it}."""
        return {
            sequence: hold.owner.uid if hold.owner else ""
            for sequence, hold in self.ledger.holds.items()
        }


def current(*pods: NpuPod) -> NodeLedger:
    """A ledger that has seen these pods."""
    now = NodeLedger()
    now.update(*pods)
    return now


def running(*pods: NpuPod) -> NodeLedger:
    """A node where pods of one container run, with the chips of their claims."""
    now = current()
    for each in pods:
        now.update(replace(each, phase="Running"))
        chips = chip_sets.ids_of(now.ledger.slots[each.uid].chips)
        assert now.mounts_for(each.name, *chips) == chips
    return now


def lost(*pods: NpuPod) -> NodeLedger:
    """The same, once the kubelet has lost what devices they have."""
    now = running(*pods)
    for each in pods:
        now.shows(each.name, main=())
    return now


def standalone_node(*pods: NpuPod, product: Product = PRODUCT) -> NodeLedger:
    """A ledger without a scheduler of ours that has seen these pods, and no claims."""
    now = NodeLedger(product, standalone=True)
    now.update(*(replace(each, annotations={}) for each in pods))
    return now


def restarted(before: NodeLedger, *pods: NpuPod) -> NodeLedger:
    """The ledger of the next agent, after driver, journal and pods were read."""
    now = current()
    now.read_chips(unhealthy=before.ledger.unhealthy)
    now.replace(ledgers.restore(now.ledger, before.ledger.holds.values()))
    now.update(*pods)
    now.replace(ledgers.resume(now.ledger, now.now_s))
    return now


TRAIN = pod("train", [0])


def confirmed() -> NodeLedger:
    """A node where a pod is known to hold chip 0."""
    now = current(TRAIN)
    now.mounts_for("train", 0)
    return now


def rejected(*pods: NpuPod) -> NodeLedger:
    """A node where the pod of an Allocate was rejected after it."""
    now = current(TRAIN, *pods)
    now.mounts(0)
    now.update(replace(TRAIN, phase="Failed"))
    return now
