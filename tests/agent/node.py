"""A small node for tests of the agent: pods with claims, and a ledger of them."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from agent.claims import ledger as ledgers
from agent.claims.events import ChipsRead, Effect, PodUpdated
from agent.claims.store import LedgerStore
from agent.claims.values import Ledger
from scheduler_core.node import chips as chip_sets
from scheduler_core.products.table import ATLAS_800_TRAINING as PRODUCT
from scheduler_core.wire.pods import NpuPod, PodMeta, RawContainer, npu_pod

NODE = "node-1"
RESOURCE = PRODUCT.resource


def ids(*chips: int) -> tuple[str, ...]:
    """The device ids that these chips have as their own."""
    return tuple(f"Ascend910-{chip}" for chip in chips)


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
        containers or [RawContainer("main", limits={RESOURCE: str(len(chips))})],
        RESOURCE,
    )
    assert found is not None
    return found


async def nobody(_uids: Collection[str]) -> Mapping[str, tuple[int, ...]]:
    """No pod that has gone has left a process."""
    return {}


class Effects(list[Effect]):
    """Every effect of a ledger, in order."""


def current(*pods: NpuPod, effects: Effects | None = None) -> LedgerStore:
    """A ledger that has seen these pods."""
    seen = effects if effects is not None else Effects()
    now = LedgerStore(Ledger(product=PRODUCT, node=NODE), seen.append)
    for each in pods:
        now.apply(PodUpdated(each))
    return now


def restarted(before: LedgerStore, *pods: NpuPod) -> LedgerStore:
    """The ledger of the next agent, after driver, journal and pods were read."""
    now = current()
    now.apply(ChipsRead(unhealthy=before.ledger.unhealthy, busy=0))
    now.replace(ledgers.restore(now.ledger, before.ledger.holds.values()))
    for each in pods:
        now.apply(PodUpdated(each))
    now.replace(ledgers.resume(now.ledger))
    return now


def slots(now: LedgerStore) -> dict[str, tuple[int, ...]]:
    """{pod: the chips that it is to be served from}."""
    return {
        uid.removeprefix("uid-"): chip_sets.ids_of(slot.chips)
        for uid, slot in now.ledger.slots.items()
    }


def holds(now: LedgerStore) -> dict[int, tuple[str, str, tuple[int, ...]]]:
    """{sequence: whose it is (pod/container), whose slot it came from, its chips}."""
    return {
        sequence: (
            f"{hold.owner.pod}/{hold.owner.container}" if hold.owner else "",
            hold.slot.removeprefix("uid-"),
            hold.chips,
        )
        for sequence, hold in now.ledger.holds.items()
    }
