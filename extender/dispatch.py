"""Apply events to the cache, and pass their effects to the parts of the extender."""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import assert_never

from extender.cache import events
from extender.cache.cache import Cache
from extender.cache.events import Change, Effect
from extender.cache.reservations import Conflict, Owner
from extender.clocks import Clock
from extender.gang import events as gang_events

#: Applies an event. Returns why chips were not reserved; None for any other event.
Apply = Callable[[Change], Conflict | None]
#: Carries out an effect, or passes it to the part of the extender that does.
CarryOut = Callable[[Effect], None]


class Dispatcher:
    """Effects that are not carried out yet, in the order in which they arose.

    An effect may cause further events. Their effects are carried out after it.
    """

    def __init__(self, cache: Cache, clock: Clock) -> None:
        """Start: effects have no consequence until `connect` is called.

        Args:
            cache: Nothing else may call its `step`.
        """
        self._cache = cache
        self._clock = clock
        #: carries out one effect
        self._carry_out: CarryOut = ignore
        #: empty after each event; after an error the next event carries the rest out
        self._effects: deque[Effect] = deque()
        self._is_busy = False

    def connect(self, carry_out: CarryOut) -> None:
        """Let this function carry out all effects from now on."""
        self._carry_out = carry_out

    def apply(self, change: Change) -> Conflict | None:
        """Apply an event to the cache, and carry out its effects.

        During the carrying-out of another effect, those of this event only join the
        queue.
        """
        now_s = self._clock.now_s()
        self._cache.see_clock(self._clock.wall_s() - now_s)
        outcome = self._cache.step(change, now_s)
        self._effects.extend(outcome.effects)
        if self._effects and not self._is_busy:
            self._is_busy = True
            try:
                while self._effects:
                    self._carry_out(self._effects.popleft())
            finally:
                self._is_busy = False
        return outcome.conflict


def ignore(_effect: Effect) -> None:
    """Carry out nothing, for a part that does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Router:
    """Which part of the extender carries out which effect."""

    permits: CarryOut
    job_calls: CarryOut
    waker: CarryOut
    #: {owner of reservations: the part that decides over them}
    owners: Mapping[Owner, CarryOut]
    announcer: CarryOut = ignore
    rescheduler: CarryOut = ignore

    def carry_out(self, effect: Effect) -> None:
        """Pass an effect to the part that carries it out."""
        match effect:
            case gang_events.WakeScheduler() | events.NodesImproved():
                self.waker(effect)
            case gang_events.ReleaseBinds() | gang_events.RefuseBind():
                self.permits(effect)
            case (
                gang_events.EmitEvent()
                | gang_events.EvictMembers()
                | gang_events.ReadSize()
            ):
                self.job_calls(effect)
            case gang_events.Unreserve():
                self.owners[Owner.PLAN](effect)
                self.rescheduler(effect)
            case events.ReservationEnded() | events.ReservationDue():
                self.owners[effect.reservation.owner](effect)
                self.rescheduler(effect)
            case events.ReportJudged() | events.ClockJudged():
                self.announcer(effect)
            case events.FaultsChanged() | events.PlaceCleared():
                self.rescheduler(effect)
            case _:
                assert_never(effect)
