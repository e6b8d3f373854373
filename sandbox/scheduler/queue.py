"""Which pod is tried next, and when is a failed one tried again?

kube-scheduler's three places: active, backing off, unschedulable. An event in
the cluster moves unschedulable pods on; their back-off still holds.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum, auto

from sandbox.pods import Pod

#: backend/queue/scheduling_queue.go:61-83
_MAX_BACKOFF_S = 10.0
_UNSCHEDULABLE_S = 300.0


class Place(Enum):
    """Where a pod waits."""

    ACTIVE = auto()
    BACKOFF = auto()
    UNSCHEDULABLE = auto()
    IN_FLIGHT = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One pod that has no node."""

    pod: Pod
    serial: int
    place: Place
    attempts: int = 0
    #: loop time of the last failure
    failed_at: float = 0.0
    #: how many cluster events there had been when it was taken
    events: int = 0


class SchedulingQueue:
    """The pods without a node.

    Protects: a pod is in one place, and a cluster event during its attempt is
    not lost on it.
    """

    def __init__(self, backoff_s: float) -> None:
        """Start empty.

        Args:
            backoff_s: Pause after the first failure; doubles up to 10 s.
        """
        self._backoff_s = backoff_s
        self._entries: dict[str, Entry] = {}
        self._serial = 0
        self._events = 0

    def put(self, pod: Pod) -> bool:
        """Take a pod, or its newer version; say whether it can be tried.

        A known pod keeps its place unless its specification, labels or
        annotations have changed: its own conditions are no reason to try again.
        """
        entry = self._entries.get(pod.uid)
        if entry is None:
            self._serial += 1
            new = Entry(pod=pod, serial=self._serial, place=Place.ACTIVE)
            self._entries[pod.uid] = new
            return True
        changed = _essence(pod) != _essence(entry.pod)
        place = entry.place
        if changed and place is Place.UNSCHEDULABLE:
            place = Place.BACKOFF
        self._entries[pod.uid] = replace(entry, pod=pod, place=place)
        return changed

    def drop(self, uid: str) -> None:
        """Forget a pod: it has a node, or is gone."""
        self._entries.pop(uid, None)

    def take(self, now: float) -> Pod | None:
        """Return the pod to try now: by priority, then by age; None: none is due."""
        self._flush(now)
        due = [e for e in self._entries.values() if e.place is Place.ACTIVE]
        if not due:
            return None
        entry = min(due, key=lambda e: (-_priority(e.pod), e.serial))
        self._entries[entry.pod.uid] = replace(
            entry,
            place=Place.IN_FLIGHT,
            attempts=entry.attempts + 1,
            events=self._events,
        )
        return entry.pod

    def failed(self, uid: str, now: float, *, unschedulable: bool) -> None:
        """Put a pod back whose attempt has failed.

        Args:
            uid: The pod; one that has been dropped meanwhile stays out.
            now: Loop time.
            unschedulable: Whether no node took it. Otherwise something went
                wrong, and it is tried again without waiting for an event.
        """
        entry = self._entries.get(uid)
        if entry is None:
            return
        waits = unschedulable and entry.events == self._events
        place = Place.UNSCHEDULABLE if waits else Place.BACKOFF
        self._entries[uid] = replace(entry, place=place, failed_at=now)

    def move(self) -> None:
        """Give every unschedulable pod another chance: the cluster has changed."""
        self._events += 1
        for uid, entry in self._entries.items():
            if entry.place is Place.UNSCHEDULABLE:
                self._entries[uid] = replace(entry, place=Place.BACKOFF)

    def next_due(self) -> float | None:
        """Return the loop time at which a waiting pod can be tried; None: never."""
        return min(self._dues(), default=None)

    def places(self) -> dict[str, Place]:
        """Return where each pod waits: {uid: place}."""
        return {uid: entry.place for uid, entry in self._entries.items()}

    def _dues(self) -> Iterator[float]:
        for entry in self._entries.values():
            if entry.place is Place.BACKOFF:
                yield entry.failed_at + self._pause(entry)
            elif entry.place is Place.UNSCHEDULABLE:
                yield entry.failed_at + _UNSCHEDULABLE_S

    def _flush(self, now: float) -> None:
        for uid, entry in self._entries.items():
            waited = now - entry.failed_at
            backed_off = entry.place is Place.BACKOFF and waited >= self._pause(entry)
            stale = entry.place is Place.UNSCHEDULABLE and waited >= _UNSCHEDULABLE_S
            if backed_off or stale:
                self._entries[uid] = replace(entry, place=Place.ACTIVE)

    def _pause(self, entry: Entry) -> float:
        doublings = min(max(entry.attempts - 1, 0), 16)
        return float(min(self._backoff_s * 2**doublings, _MAX_BACKOFF_S))


def _priority(pod: Pod) -> int:
    return int(pod.source["spec"].get("priority") or 0)


def _essence(pod: Pod) -> tuple[object, ...]:
    meta = pod.source["metadata"]
    return pod.source["spec"], meta.get("labels"), meta.get("annotations"), pod.deleting
