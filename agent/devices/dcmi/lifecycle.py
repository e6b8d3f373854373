"""Decide when a worker process is started and replaced, and which calls it leaves out.

One state machine for loading, a call that does not come back, an ended worker and
another load of the library. It is pure; `driver` carries out what `step` returns.

A worker is lost when it is STUCK or has ENDED. The first loss in a call is free: the
next worker makes this call again. From the second loss in a row on, later workers leave
the call out for a time that grows. A worker that loads the library, or looks at chips
for the first time, is not replaced because it is DUE.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from math import inf
from types import MappingProxyType

from agent.devices.dcmi.progress import Call

#: Calls that load and initialise the library, and the longest that these may take: on
#: some servers many seconds. Unit: seconds.
LOADING = frozenset({"dlopen", "dcmi_init"})
LOAD_S = 60.0
#: Longest silence between two calls, where the worker sleeps up to 2 s. Unit: seconds.
REST_S = 3.0
#: Longest pause of the agent itself that counts as silence of the worker. Unit:
#: seconds.
_LONGEST_STEP_S = 1.0
#: Lifetime of a worker after which its successor waits for nothing. Unit: seconds.
LIVED_WELL_S = 5.0
#: Longest pause between two workers: 0, 1, 2, 4 … seconds, and at most this.
MOST_PAUSE_S = 30.0
#: Calls of each look that decide whether a chip is in service.
_LOOKS = frozenset({"dcmi_get_device_errorcode_v2", "dcmi_get_device_health"})
#: One of these that was lost twice in a row is left out for this time: it is made once
#: more before its chip is unhealthy (`conditions.UNREAD_S`). Unit: seconds.
LEAVE_OUT_S = 8.0
#: The same for other calls, which cost no chip its service, and for a function that
#: hangs for more than two chips. Unit: seconds.
LEAVE_OUT_FACT_S = 60.0
MOST_ALIKE = 2
#: Each further time twice as long …
#: … and at most for this. Unit: seconds.
LEAVE_OUT_MOST_S = 3600.0
#: A call that was made again for so long, each minute at least, begins anew. Unit:
#: seconds.
FORGIVE_S = 120.0
#: Time after which libdcmi is loaded anew while it shows no chip, or not all of those
#: that are waited for: it may have made its list of cards when it was initialised.
#: Unit: seconds.
RELOAD_EACH_S = 30.0
#: While others are shown, the time is doubled with each time, and at most this.
RELOAD_MOST_S = 3600.0


class Phase(Enum):
    """What the worker process does, seen from the agent."""

    ABSENT = auto()  #: none runs
    LOADING = auto()  #: it has shown nothing since it has loaded the library
    PARTIAL = auto()  #: it does not show all chips
    WHOLE = auto()  #: it shows all chips that are expected


class Sign(Enum):
    """What is seen of a worker; `Showed` has one of the three with chips."""

    STARTED = auto()  #: it was started
    LOADS = auto()  #: it is within a call that loads the library
    WORKS = auto()  #: it gives signs of life
    NO_CHIP = auto()  #: it shows the present state of no chip
    SOME_CHIPS = auto()  #: it shows chips, and not all that are expected
    ALL_CHIPS = auto()  #: it shows all chips that are expected
    STUCK = auto()  #: it has given no sign of life for too long
    ENDED = auto()  #: it has ended, or talks nonsense
    DUE = auto()  #: another worker may show more chips


def _table() -> dict[tuple[Phase, Sign], Phase]:
    absent, loading, partial, whole = Phase
    rows = {
        absent: (loading, *(absent,) * 8),
        loading: (loading,) * 3 + (partial, partial, whole, absent, absent, loading),
        partial: (loading, loading, partial, partial, partial, whole, *(absent,) * 3),
        whole: (loading, loading, whole, partial, partial, whole, *(absent,) * 3),
    }
    return {
        (phase, sign): after
        for phase, row in rows.items()
        for sign, after in zip(Sign, row, strict=True)
    }


#: {(phase, sign): next phase}, for every pair.
TRANSITIONS: Mapping[tuple[Phase, Sign], Phase] = MappingProxyType(_table())


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """Event: a worker process was started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """Event: the worker's page was looked at."""

    #: as `Progress` has them
    beats: int
    call: Call | None
    #: how the worker has ended, like "was ended by SIGSEGV"; "" if it runs
    end_reason: str = ""
    #: whether a predecessor has ended that was stuck in a call left out since
    is_freed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Showed:
    """Event: a message of the worker came."""

    sign: Sign


@dataclass(frozen=True, slots=True, kw_only=True)
class Replace:
    """Effect: end the worker, and start another when `next_start_s` has come."""

    #: why the worker was lost; "" if the library is loaded anew
    problem: str = ""
    #: the call in which the worker was lost, unless it loaded the library
    call: Call | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Blame:
    """Count of workers lost in one call in a row, and until when it is left out."""

    times: int = 1
    #: how long it is left out; 0 after the first loss
    for_s: float = 0.0
    #: loop time; `inf` until a worker without the call has shown something
    until_s: float = inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifecycle:
    """State of the worker process and of the calls in which workers were lost."""

    #: longest duration of a call, and of loading; seconds
    call_s: float
    load_s: float = LOAD_S
    phase: Phase = Phase.ABSENT
    started_s: float = -inf
    #: loop time before which no worker is started
    next_start_s: float = -inf
    #: workers lost in a row that did not live well
    losses: int = 0
    #: why the last worker was lost
    problem: str = ""
    #: last sign of life, the silence since then, and the time of the last check
    beats: int = -1
    silent_s: float = 0.0
    checked_s: float = -inf
    #: loop time since which the worker has shown messages without all chips
    missing_since_s: float = inf
    #: whether its last message showed no chip
    is_blind: bool = True
    #: time after which the library is loaded anew while it shows some chips
    reload_each_s: float = RELOAD_EACH_S
    #: {call: blame} of the calls in which workers were lost
    blames: Mapping[Call, Blame] = field(default_factory=dict)

    def left_out(self, now: float) -> dict[Call, float]:
        """Return {call: seconds after its first look} that a new worker leaves out."""
        rest_s = {
            call: min(blame.for_s, blame.until_s - now)
            for call, blame in self.blames.items()
        }
        return {call: for_s for call, for_s in rest_s.items() if for_s > 0}


Event = Started | Checked | Showed


def step(
    state: Lifecycle, event: Event, now: float
) -> tuple[Lifecycle, tuple[Replace, ...]]:
    """Apply one event at loop time `now`; return the next state and its effects."""
    match event:
        case Started():
            began = replace(
                state, started_s=now, checked_s=now, beats=-1, missing_since_s=inf
            )
            return _enter(replace(began, silent_s=0.0), Sign.STARTED), ()
        case Showed(sign=sign):
            return _enter(_take_message(state, sign, now), sign), ()
        case Checked():
            checked = _take_check(state, event, now)
            sign, reason = _judge(checked, event, now)
            after = _enter(checked, sign)
            if state.phase is Phase.ABSENT or after.phase is not Phase.ABSENT:
                return after, ()
            if sign is Sign.DUE:
                doubled_s = min(RELOAD_MOST_S, 2 * state.reload_each_s)
                reload_s = state.reload_each_s if state.is_blind else doubled_s
                return replace(after, reload_each_s=reload_s), (Replace(),)
            return _lose(after, reason, event.call, now)


def _enter(state: Lifecycle, sign: Sign) -> Lifecycle:
    return replace(state, phase=TRANSITIONS[state.phase, sign])


def _take_message(state: Lifecycle, sign: Sign, now: float) -> Lifecycle:
    """Note what a message shows; from the first on, calls are left out for their time.

    A worker that shows all chips has no time of missing ones.
    """
    is_whole = sign is Sign.ALL_CHIPS
    return replace(
        state,
        missing_since_s=inf if is_whole else min(state.missing_since_s, now),
        is_blind=sign is Sign.NO_CHIP,
        reload_each_s=RELOAD_EACH_S if is_whole else state.reload_each_s,
        blames={
            call: replace(blame, until_s=min(blame.until_s, now + blame.for_s))
            for call, blame in state.blames.items()
        },
    )


def _take_check(state: Lifecycle, event: Checked, now: float) -> Lifecycle:
    """Add the time since the last check to the silence, if there was no sign of life.

    It counts as 1 s at most, because the agent itself may have paused.
    """
    step_s = min(now - state.checked_s, _LONGEST_STEP_S)
    silent_s = 0.0 if event.beats != state.beats else state.silent_s + step_s
    return replace(state, beats=event.beats, silent_s=silent_s, checked_s=now)


def _judge(state: Lifecycle, event: Checked, now: float) -> tuple[Sign, str]:
    """Return what a check shows; with the reason, if the worker is lost."""
    call = event.call
    if event.end_reason:
        where = f" in {call}" if call else ""
        return Sign.ENDED, f"the driver worker {event.end_reason}{where}"
    is_loading = call is not None and call.function in LOADING
    limit_s = state.call_s if call else max(state.call_s, REST_S)
    limit_s = state.load_s if is_loading else limit_s
    if state.silent_s >= limit_s:
        where = str(call) if call else "the driver worker"
        return Sign.STUCK, f"{where} has not come back for {limit_s:g} s"
    if is_loading:
        return Sign.LOADS, ""
    each_s = RELOAD_EACH_S if state.is_blind else state.reload_each_s
    is_due = event.is_freed or now - state.missing_since_s >= each_s
    return Sign.DUE if is_due else Sign.WORKS, ""


def _lose(
    state: Lifecycle, reason: str, call: Call | None, now: float
) -> tuple[Lifecycle, tuple[Replace, ...]]:
    """Blame the call in which a worker was lost, and set the pause before the next."""
    if call is not None and call.function in LOADING:
        call = None
    blames = {
        other: blame
        for other, blame in state.blames.items()
        if now - blame.until_s <= FORGIVE_S  # else it has come back all the while
    }
    if call is not None:
        blames[call] = _blame(call, blames)
        if blames[call].for_s >= LEAVE_OUT_FACT_S:
            blames |= _align(call, blames)
    # silence has taken its time already
    has_lived = now - state.started_s >= LIVED_WELL_S or state.silent_s >= state.call_s
    losses = 0 if has_lived else state.losses
    pause_s = min(MOST_PAUSE_S, 2.0 ** (losses - 1)) if losses else 0.0
    after = replace(
        state,
        blames=blames,
        losses=min(losses + 1, 10),
        next_start_s=now + pause_s,
        problem=reason,
    )
    return after, (Replace(problem=reason, call=call),)


def _align(call: Call, blames: Mapping[Call, Blame]) -> dict[Call, Blame]:
    """Return blames of those that wait like `call`: one function hangs for all chips.

    They are the calls of its function that are to be left out from the next look on.
    """
    return {
        other: replace(blame, for_s=max(blame.for_s, LEAVE_OUT_FACT_S))
        for other, blame in blames.items()
        if other.function == call.function and blame.for_s and blame.until_s == inf
    }


def _blame(call: Call, blames: Mapping[Call, Blame]) -> Blame:
    """Return the blame of a call in which another worker was lost.

    The first loss in a call that costs no chip its service is not free if a call of the
    same function or chip is left out: such a hang would cost twice as many workers.
    """
    others = [other for other, b in blames.items() if b.times > 1 and other != call]
    alike = sum(other.function == call.function for other in others)
    place = call.card, call.device
    is_look = call.function in _LOOKS
    is_free = is_look or not (
        alike or any((other.card, other.device) == place for other in others)
    )
    times = blames[call].times + 1 if call in blames else 1 if is_free else 2
    first_s = LEAVE_OUT_S if is_look and alike < MOST_ALIKE else LEAVE_OUT_FACT_S
    doubled_s = first_s * 2 ** min(times - 2, 10) if times > 1 else 0.0
    return Blame(times=times, for_s=min(LEAVE_OUT_MOST_S, doubled_s))
