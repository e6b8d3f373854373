"""State machine of the leader election: which of several extenders may place pods.

    phase    event                                     effects and next phase
    -------  ----------------------------------------  ---------------------------------
    waiting  Ticked                                    ReadLease
    waiting  LeaseRead: no lease, no holder, or ours   WriteLease at once
    waiting  LeaseRead: another holder, which has not  WriteLease; then settling: binds
             renewed the lease in time                 of that holder may still arrive
    waiting  LeaseWritten                              settling; leading at once if no
                                                       earlier binds can arrive
    settling Ticked, earlier binds may still arrive,   WriteLease
             or our last write is over `stop_s` old
    settling Ticked, otherwise                         leading: WriteLease
    leading  Ticked                                    WriteLease
    leading  Ticked, no answer for too long            WriteLease, still leading; but
                                                       `why_not_leading` gives a reason
                                                       until a write succeeds
    any      WriteRefused: the lease has changed       ReadLease
    settling LeaseRead: only ours since our last read  WriteLease
    leading  or write; or deleted, and our last write
             is less than `stop_s` old
    settling LeaseRead, otherwise                      waiting
    leading  LeaseRead, otherwise                      waiting: placements not bound yet
                                                       are dropped

A holder may place and bind pods for `stop_s` after it has *sent* its last successful
write. Another extender takes the Lease after `lease_s` without a write; `lease_s` is
longer than `stop_s`. Each extender counts seconds on its own clock, so the clocks need
not agree on the time of day. The API server completes a bind at most `bind_s` after the
old holder sent it. The new holder waits for that time before it reads the cluster.

Pure: `step` returns the next state and the effects; `elector` carries them out.
"""

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import assert_never

from kube.objects import Lease, LeaseSpec
from kube.pods import BIND_S

#: Factor on the timeout of a bind: for the network and the last write of the server.
NETWORK_FACTOR = 1.2


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseConfig:
    """Identity of this extender in the Lease, and durations of the election."""

    #: unique among all extenders, also among restarts
    identity: str
    #: after this time without a write, any extender may take the lease
    lease_s: float = 15.0
    #: longest duration of a bind that was sent before the lease was lost
    bind_s: float = BIND_S * NETWORK_FACTOR

    @property
    def stop_s(self) -> float:
        """Seconds for which a write of the Lease lets its holder place and bind pods.

        They are counted from the moment at which the holder sends the write. Only a
        write that succeeds counts.
        """
        return self.lease_s * 2 / 3

    @property
    def retry_s(self) -> float:
        """Seconds between two ticks, each of which reads or writes the Lease."""
        return min(self.lease_s / 7, 2.0)


class Phase(StrEnum):
    """Phase of this extender in the election; logs show the value.

    WAITING extenders do not hold the Lease. A SETTLING one holds the Lease, and waits
    until the API server can no longer execute binds of an earlier holder. A LEADING one
    places and binds pods, except while its last write of the Lease is too old.
    """

    WAITING = "waiting"
    SETTLING = "settling"
    LEADING = "leading"


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """State of this extender in the election, and the Lease as last read or written."""

    phase: Phase = Phase.WAITING
    #: the lease as last read or written; None: it does not exist, or was never read
    lease: Lease | None = None
    #: time of the first read or write of `lease` in this version
    since_s: float = 0.0
    #: time at which all binds of earlier holders are over
    settled_s: float = 0.0
    #: time until which this extender may decide
    valid_s: float = float("-inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticked:
    """Event: `retry_s` have passed, so the Lease must be read or renewed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRead:
    """Event: this extender has read the Lease, or found that it does not exist."""

    #: None: it does not exist
    lease: Lease | None
    #: seconds since its holder acquired it, by the acquire time in the lease
    age_s: float = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseWritten:
    """Event: this extender has written the Lease, with itself as holder."""

    lease: Lease
    #: time at which the write was sent, by our clock
    sent_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteRefused:
    """Event: the API server refused a write, as the Lease has changed or is deleted."""


Event = Ticked | LeaseRead | LeaseWritten | WriteRefused


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLease:
    """Effect: read the Lease."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteLease:
    """Effect: write this extender into the Lease as its holder."""

    #: the lease to be replaced, if still in this version; None: create it
    over: Lease | None


Effect = ReadLease | WriteLease
_Next = tuple[State, tuple[Effect, ...]]


def step(state: State, event: Event, now_s: float, config: LeaseConfig) -> _Next:
    """Return the state of the election after an event, and the effects in order.

    Args:
        state: The state before the event.
        event: A tick, or the API server's answer to an effect.
        now_s: Time by this extender's clock, which only goes forwards.
        config: Identity of this extender, and durations of the election.
    """
    match event:
        case Ticked():
            return _on_tick(state, now_s)
        case WriteRefused():
            return state, (ReadLease(),)
        case LeaseWritten(lease=lease, sent_s=sent_s):
            return _on_written(state, lease, sent_s + config.stop_s, now_s)
        case LeaseRead(lease=lease) if state.phase is Phase.WAITING:
            return _on_read_while_waiting(state, lease, event.age_s, now_s, config)
        case LeaseRead(lease=lease):
            return _on_read_while_holding(state, lease, now_s, config.identity)
        case _:
            assert_never(event)


def why_not_leading(state: State, now_s: float) -> str | None:
    """Return why this extender may not place or bind pods now; None if it may."""
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
    """Return the identity of the Lease's holder; "" without a holder or a Lease."""
    return (lease.spec.holder_identity or "") if lease is not None else ""


def render_held(over: Lease | None, config: LeaseConfig, now: str) -> LeaseSpec:
    """Return a new spec for the Lease, with this extender as its holder.

    Args:
        over: The Lease to replace; None if it does not exist.
        config: Identity of this extender, and durations of the election.
        now: Renew time of the new spec; time of day, RFC 3339.
    """
    current = over.spec if over is not None else LeaseSpec()
    is_ours = current.holder_identity == config.identity
    return LeaseSpec(
        holder_identity=config.identity,
        lease_duration_seconds=math.ceil(config.lease_s),
        acquire_time=current.acquire_time if is_ours else now,
        renew_time=now,
        lease_transitions=_transitions_of(over) + (over is not None and not is_ours),
    )


def render_released(lease: Lease, now: str) -> LeaseSpec:
    """Return a new spec for the Lease, without a holder; for a leader that stops.

    Args:
        lease: The Lease to replace.
        now: Renew time of the new spec; time of day, RFC 3339.
    """
    return LeaseSpec(
        lease_duration_seconds=lease.spec.lease_duration_seconds,
        renew_time=now,
        lease_transitions=lease.spec.lease_transitions,
    )


def _on_tick(state: State, now_s: float) -> _Next:
    if state.phase is Phase.WAITING:
        return state, (ReadLease(),)
    renewal = WriteLease(over=state.lease)
    if state.phase is Phase.SETTLING and state.settled_s <= now_s < state.valid_s:
        return replace(state, phase=Phase.LEADING), (renewal,)
    return state, (renewal,)


def _on_written(state: State, lease: Lease, valid_s: float, now_s: float) -> _Next:
    next_state = replace(state, lease=lease, since_s=now_s, valid_s=valid_s)
    if state.phase is not Phase.WAITING:
        return next_state, ()
    if state.settled_s <= now_s < valid_s:
        return replace(next_state, phase=Phase.LEADING), ()
    return replace(next_state, phase=Phase.SETTLING), ()


def _on_read_while_waiting(
    state: State, lease: Lease | None, age_s: float, now_s: float, config: LeaseConfig
) -> _Next:
    """Return the state and effects after a WAITING extender has read the Lease.

    The Lease is written if it does not exist, has no holder, has expired, or names this
    extender as holder.
    """
    if lease is None and holder_of(state.lease) not in ("", config.identity):
        # Deleted while another extender holds it, which does not know yet.
        until_s = now_s + config.stop_s + config.bind_s
        state = replace(state, settled_s=max(state.settled_s, until_s))
    is_same = lease is not None and _version_of(lease) == _version_of(state.lease)
    state = replace(state, lease=lease, since_s=state.since_s if is_same else now_s)
    holder = holder_of(lease)
    if lease is None or not holder:
        return state, (WriteLease(over=lease),)
    if holder == config.identity:
        # A pod runs one extender at a time. The kernel has closed the connections of
        # our predecessor, and so the API server drops its requests. But the predecessor
        # may itself have been waiting for binds of an earlier holder.
        left_s = max(config.bind_s - age_s, 0.0)
        state = replace(state, settled_s=max(state.settled_s, now_s + left_s))
        return state, (WriteLease(over=lease),)
    lasts_s = max(float(lease.spec.lease_duration_seconds or 0), config.lease_s)
    if now_s < state.since_s + lasts_s:
        return state, ()
    return replace(state, settled_s=now_s + config.bind_s), (WriteLease(over=lease),)


def _on_read_while_holding(
    state: State, lease: Lease | None, now_s: float, identity: str
) -> _Next:
    """Return the state and effects after a SETTLING or LEADING extender read the Lease.

    The extender renews the Lease if it is the holder and nobody else was the holder
    since its last read or write. It writes a deleted Lease again if its last write is
    less than `stop_s` ago. In all other cases it becomes WAITING.
    """
    if lease is None:
        is_ours = (
            now_s < state.valid_s
        )  # later, another may have created and deleted it
    else:
        is_ours = holder_of(lease) == identity and _transitions_of(
            lease
        ) == _transitions_of(state.lease)
    if not is_ours:
        return State(lease=lease, since_s=now_s, settled_s=state.settled_s), ()
    return replace(state, lease=lease), (WriteLease(over=lease),)


def _version_of(lease: Lease | None) -> str:
    return lease.metadata.resource_version if lease is not None else ""


def _transitions_of(lease: Lease | None) -> int:
    return (lease.spec.lease_transitions or 0) if lease is not None else 0
