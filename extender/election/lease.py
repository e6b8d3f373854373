"""Which of several extenders decides: the holder of a lease, which changes hands so.

    phase    what happens                              what follows
    -------  ----------------------------------------  ---------------------------------
    waiting  Ticked                                    Read
    waiting  Found: none, a free one, our own          Write at once
    waiting  Found: another's, unchanged for its time  Write; binds of its holder may
                                                       still arrive, so Settle
    waiting  Written                                   settling
    settling Ticked, in time                           Write; once settled: Begin
    leading  Ticked                                    Write
    leading  Ticked, no answer for too long            stays, but `why_not` says no: it
                                                       may decide again if the very next
                                                       write finds the lease untouched
    any      Refused: somebody has written it          Read
    settling Found: another's                          waiting
    leading  Found: another's, or one that has been    waiting: End; what was decided
             in other hands                            and is not bound yet is void

A holder decides for `stop_s` after it has *sent* its last good write; another takes the
lease when it has seen no write for `lease_s`, which is longer. Both count seconds on
their own clocks, so that clocks need not agree on the time of day. What the old holder
sent at its last moment is done by the API server `bind_s` later at the latest; for that
time the new one waits, and reads the cluster only then.

Pure: `step` makes the next state and says what is to be done; `election` does it.
"""

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import assert_never

from kube.objects import Lease, LeaseSpec
from kube.pods import BIND_S

#: What the way of a bind to the API server adds, and its last write there.
_WAY = 1.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How long things last, in seconds, and who we are."""

    me: str
    #: unchanged for so long, a lease is anybody's
    lease_s: float = 15.0
    #: what a bind may take that was sent before the lease was lost
    bind_s: float = BIND_S * _WAY

    @property
    def stop_s(self) -> float:
        """So long after its last write a holder decides."""
        return self.lease_s * 2 / 3

    @property
    def retry_s(self) -> float:
        """From one write or read to the next."""
        return min(self.lease_s / 7, 2.0)


def terms(me: str, *, lease_s: float, bind_s: float) -> Terms:
    """The terms of an extender.

    Args:
        me: Its name, of no other ever.
        lease_s: How long a lease lasts that nobody writes.
        bind_s: What we give the API server for a bind.
    """
    return Terms(me=me, lease_s=lease_s, bind_s=bind_s * _WAY)


class Phase(StrEnum):
    """How far we are; the value is a label in metrics."""

    WAITING = "waiting"
    SETTLING = "settling"
    LEADING = "leading"


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What we know of the lease."""

    phase: Phase = Phase.WAITING
    #: as last read or written; None: there is none, or we have not looked
    lease: Lease | None = None
    #: since when it has been so, by our clock
    since_s: float = 0.0
    #: the binds of an earlier holder are over by then
    settled_s: float = 0.0
    #: so long we may decide
    valid_s: float = float("-inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticked:
    """It is time to look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The lease was read."""

    #: None: there is none
    lease: Lease | None
    #: how long ago it came into these hands, by the time that it bears itself
    age_s: float = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """We hold the lease."""

    lease: Lease
    #: when the write was sent
    sent_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Somebody else has written the lease, or removed it: look again."""


Event = Ticked | Found | Written | Refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """Read the lease."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """Put our name on the lease, if it is still as given; None: make it."""

    over: Lease | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """Read the cluster, then decide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """Forget all that was decided: somebody else may have decided since."""


Effect = Read | Write | Begin | End
_Next = tuple[State, tuple[Effect, ...]]


def step(state: State, event: Event, now_s: float, terms: Terms) -> _Next:
    """Let one thing happen.

    Args:
        state: What we know.
        event: What happened.
        now_s: Our own clock, which only goes forwards.
        terms: How long things last.

    Returns:
        What we know then, and what is to be done, in order.
    """
    match event:
        case Ticked():
            return _ticked(state, now_s)
        case Refused():
            return state, (Read(),)
        case Written(lease=lease, sent_s=sent_s):
            return _written(state, lease, sent_s + terms.stop_s, now_s)
        case Found(lease=lease) if state.phase is Phase.WAITING:
            return _found(state, lease, event.age_s, now_s, terms)
        case Found(lease=lease):
            return _checked(state, lease, now_s, terms.me)
        case _:
            assert_never(event)


def why_not(state: State, now_s: float) -> str | None:
    """Why we decide nothing now; None: we do."""
    if state.phase is Phase.WAITING:
        holder = holder_of(state.lease)
        return f"{holder} leads" if holder else "no extender leads yet"
    if state.phase is Phase.SETTLING:
        left_s = max(state.settled_s - now_s, 0)
        return f"binds of the extender that led before may arrive for {left_s:.0f} s"
    if now_s >= state.valid_s:
        return "the lease could not be renewed in time"
    return None


def holder_of(lease: Lease | None) -> str:
    """Who holds the lease; "" is nobody."""
    return (lease.spec.holder_identity or "") if lease is not None else ""


def taken(over: Lease | None, terms: Terms, now: str) -> LeaseSpec:
    """What to write: if it is ours as before but for the time, else as it becomes ours.

    Args:
        over: The lease as it is; None: there is none.
        terms: Who we are.
        now: The time of day, for people.
    """
    before = over.spec if over is not None else LeaseSpec()
    is_ours = before.holder_identity == terms.me
    return LeaseSpec(
        holder_identity=terms.me,
        lease_duration_seconds=math.ceil(terms.lease_s),
        acquire_time=before.acquire_time if is_ours else now,
        renew_time=now,
        lease_transitions=_terms_of(over) + (over is not None and not is_ours),
    )


def freed(lease: Lease, now: str) -> LeaseSpec:
    """What to write when it is given back.

    Args:
        lease: As it is.
        now: The time of day, for people.
    """
    return LeaseSpec(
        lease_duration_seconds=lease.spec.lease_duration_seconds,
        renew_time=now,
        lease_transitions=lease.spec.lease_transitions,
    )


def _ticked(state: State, now_s: float) -> _Next:
    if state.phase is Phase.WAITING:
        return state, (Read(),)
    renewal = Write(over=state.lease)
    if state.phase is Phase.SETTLING and state.settled_s <= now_s < state.valid_s:
        return replace(state, phase=Phase.LEADING), (Begin(), renewal)
    return state, (renewal,)


def _written(state: State, lease: Lease, valid_s: float, now_s: float) -> _Next:
    after = replace(state, lease=lease, since_s=now_s, valid_s=valid_s)
    if state.phase is not Phase.WAITING:
        return after, ()
    if state.settled_s <= now_s < valid_s:
        return replace(after, phase=Phase.LEADING), (Begin(),)
    return replace(after, phase=Phase.SETTLING), ()


def _found(
    state: State, lease: Lease | None, age_s: float, now_s: float, terms: Terms
) -> _Next:
    """Take the lease if it is anybody's, or our own."""
    if lease is None and holder_of(state.lease) not in ("", terms.me):
        # Removed under its holder, who does not know yet.
        until_s = now_s + terms.stop_s + terms.bind_s
        state = replace(state, settled_s=max(state.settled_s, until_s))
    is_same = lease is not None and _version(lease) == _version(state.lease)
    state = replace(state, lease=lease, since_s=state.since_s if is_same else now_s)
    holder = holder_of(lease)
    if lease is None or not holder:
        return state, (Write(over=lease),)
    if holder == terms.me:
        # One pod has one extender at a time, and the kernel has closed the connections
        # of the one before, with which the API server drops its requests. But it may
        # itself have been waiting for those of an earlier holder.
        left_s = max(terms.bind_s - age_s, 0.0)
        state = replace(state, settled_s=max(state.settled_s, now_s + left_s))
        return state, (Write(over=lease),)
    lasts_s = max(float(lease.spec.lease_duration_seconds or 0), terms.lease_s)
    if now_s < state.since_s + lasts_s:
        return state, ()
    return replace(state, settled_s=now_s + terms.bind_s), (Write(over=lease),)


def _checked(state: State, lease: Lease | None, now_s: float, me: str) -> _Next:
    """See in whose hands the lease is that we hold, or held."""
    if lease is None:
        is_ours = now_s < state.valid_s  # else it may have been made and removed again
    else:
        is_ours = holder_of(lease) == me and _terms_of(lease) == _terms_of(state.lease)
    if not is_ours:
        lost = State(lease=lease, since_s=now_s, settled_s=state.settled_s)
        return lost, (End(),) if state.phase is Phase.LEADING else ()
    return replace(state, lease=lease), (Write(over=lease),)


def _version(lease: Lease | None) -> str:
    return lease.metadata.resource_version if lease is not None else ""


def _terms_of(lease: Lease | None) -> int:
    """How often it has changed hands."""
    return (lease.spec.lease_transitions or 0) if lease is not None else 0
