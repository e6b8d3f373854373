"""History of one fault code on one chip, and how often the code has arrived. Pure.

A driver shows a fault code in two ways: it lists the codes of a chip, and it sends an
event when a fault begins. Each event is an arrival. An arrival of which only the list
tells counts too, because some drivers send no events. List and events are not
synchronised, so one arrival can be seen twice, the second time as an *echo*.
"""

from dataclasses import dataclass, replace
from math import inf

#: Longest time between the two sights of one arrival, in the driver's list of codes and
#: as an event. MindCluster waits one second for the list to follow an event
#: (`pkg/common/fault_code.go:1854`, at 22bb3d98). Unit: seconds.
ECHO_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Presence:
    """Fault code that a reading of the driver shows on a chip."""

    #: Events of its begin since it was last absent; 0 if only the list showed it.
    count: int = 0
    #: Begin of the fault. A fault that ended and began again has a later one. Unit:
    #: Unix milliseconds.
    since_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeHistory:
    """Presence of a fault code on one chip: now or gone, since when, and occurrences.

    All times but those in `presence` are in seconds of the loop clock.
    """

    #: As the latest reading showed it; None while the code is gone.
    presence: Presence | None = None
    #: Since when the code is present, or gone.
    since: float
    #: When the driver last showed it, by a reading of the chip's codes or by an event.
    shown_s: float = -inf
    #: Times of the occurrences that its frequency rule counts, oldest first. None is
    #: older than the window of the rule, and none came before a level was raised.
    occurrences_s: tuple[float, ...] = ()
    #: Since when no occurrence lasts; None while one does.
    quiet_s: float | None = None
    #: When the list showed an arrival that no event has reported.
    listed_s: float = -inf
    #: When an event last reported an arrival.
    reported_s: float = -inf

    @property
    def is_present(self) -> bool:
        """Whether the latest reading of the chip showed the code."""
        return self.presence is not None


def extend(
    history: CodeHistory,
    presence: Presence | None,
    now: float,
    *,
    is_read: bool = True,
) -> tuple[CodeHistory, int]:
    """Return the history after a reading, and the number of arrivals in that reading.

    Args:
        history: History before the reading.
        presence: The code in the reading; None if the chip does not have it.
        now: Loop time of the reading. Unit: seconds.
        is_read: Whether the chip's codes were read. If not, `presence` is that of an
            earlier reading, or of an event since then.
    """
    old = history.presence
    if presence is None:
        since = history.since if old is None else now
        return replace(history, presence=None, since=since), 0
    is_new = old is None or old.since_ms != presence.since_ms
    events = presence.count
    if old is not None and old.count <= presence.count:
        events -= old.count
    history = replace(
        history,
        presence=presence,
        since=now if is_new else history.since,
        shown_s=now if is_read or events else history.shown_s,
    )
    if events:
        is_echo = now - history.listed_s <= ECHO_S
        return replace(history, listed_s=-inf, reported_s=now), events - is_echo
    if old is None and now - history.reported_s > ECHO_S:
        return replace(history, listed_s=now), 1
    return history, 0
