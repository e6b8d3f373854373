"""What the kubelet asks of a ledger and shows of its pods, in one word each."""

from agent.claims.events import (
    AllocateAsked,
    Counted,
    Effect,
    Granted,
    Identity,
    PassEnded,
    PreferenceAsked,
    Preferred,
    Refused,
    ResourcesRead,
)
from agent.claims.store import LedgerStore
from scheduler_core.wire.pods import RawContainer
from tests.agent.node import RESOURCE, ids


def init(name: str, count: int) -> RawContainer:
    """An ordinary init container."""
    return RawContainer(name, is_init=True, limits={RESOURCE: str(count)})


def app(name: str, count: int) -> RawContainer:
    """A container that stays."""
    return RawContainer(name, limits={RESOURCE: str(count)})


def allocate(now: LedgerStore, *chips: int) -> tuple[Effect, ...]:
    """The kubelet gives out these chips' ids, and nothing more will be learnt."""
    return now.apply(AllocateAsked(ids(*chips), last_call=True))


def mounts(now: LedgerStore, *chips: int) -> tuple[int, ...]:
    """The chips that it is answered with, for each id one."""
    (given,) = [e.hold.chips for e in allocate(now, *chips) if isinstance(e, Granted)]
    return given


def identity(now: LedgerStore, *chips: int) -> Identity:
    """How the pod that it is for was known."""
    (found,) = [e.identity for e in allocate(now, *chips) if isinstance(e, Counted)]
    return found


def refusal(now: LedgerStore, *chips: int) -> str:
    """Why it is refused."""
    (refused,) = allocate(now, *chips)
    assert isinstance(refused, Refused), refused
    return refused.text


def prefers(now: LedgerStore, available: tuple[str, ...], size: int) -> tuple[str, ...]:
    """The ids that it would like to see out of these."""
    (preferred,) = now.apply(PreferenceAsked(available, (), size))
    assert isinstance(preferred, Preferred)
    return preferred.kubelet_ids


def shows(
    now: LedgerStore,
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
    sequence = now.ledger.sequence if at is None else at
    now.apply(
        ResourcesRead(
            uid=f"uid-{name}",
            containers={c: frozenset(ids(*chips)) for c, chips in containers.items()},
            as_of=sequence,
            until=sequence,
            quiet=quiet,
        )
    )


def knows_not(now: LedgerStore, name: str, *, quiet: bool = True) -> None:
    """pod-resources does not know a pod."""
    sequence = now.ledger.sequence
    now.apply(
        ResourcesRead(
            uid=f"uid-{name}",
            containers=None,
            as_of=sequence,
            until=sequence,
            quiet=quiet,
        )
    )


def passes(now: LedgerStore, times: int = 1, *, in_use: tuple[int, ...] = ()) -> None:
    """So many quiet passes end, in which pod-resources lists these chips' ids."""
    for _ in range(times):
        listed = {("default", "somebody", "main"): frozenset(ids(*in_use))}
        now.apply(PassEnded(quiet=True, in_use=listed))
