"""Who watches what, and how each change reaches them.

A change is serialised once; each watch gets the same bytes. To a watch with a
selector an object that begins to match is ADDED and one that ceases to match is
DELETED, in the last state in which it matched.

Source: apiserver v0.36.3, `pkg/storage/cacher/`.
"""

import asyncio
import json
from collections.abc import Callable
from typing import TypeAlias

from sandbox.apiserver import statuses
from sandbox.apiserver.changes import Change, ChangeLog, CompactedError
from sandbox.apiserver.lists import Choice
from sandbox.apiserver.objects import Entry, Object, entry_of
from sandbox.apiserver.resources import Resource

#: Turns an object into the bytes of another form of it.
Draw: TypeAlias = Callable[[Entry], bytes]

# A watch that does not read is ended, as by the real server: its client lists again.
_PENDING_FRAMES = 10_000
_TOO_OLD = "The resourceVersion for the provided watch is too old."


def frame(kind: str, raw: bytes) -> bytes:
    """Return one event of a watch stream, with its line end."""
    return b'{"type":"%b","object":%b}\n' % (kind.encode(), raw)


def frame_of(kind: str, document: Object) -> bytes:
    """Return one event whose object is not stored."""
    return frame(kind, json.dumps(document, separators=(",", ":")).encode())


def bookmark(resource: Resource, revision: int, *, initial_end: bool = False) -> Entry:
    """Return the object that says: you have seen everything up to `revision`."""
    metadata: Object = {}
    if initial_end:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
    document = {
        "kind": resource.kind,
        "apiVersion": resource.api_version,
        "metadata": metadata,
    }
    return entry_of(document, revision)


class Frames:
    """The events that one change can be, each made when first needed."""

    def __init__(self, change: Change) -> None:
        self._change = change
        self._made: dict[str, bytes] = {}

    def event(self, choice: Choice, draw: Draw | None = None) -> bytes | None:
        """Return the event that this change is to who watches `choice`.

        Args:
            choice: What is watched.
            draw: Turns an object into another form.
        """
        change = self._change
        before, after = change.before, None if change.removed else change.after
        was = before is not None and choice.holds(before, change.key)
        is_now = after is not None and choice.holds(after, change.key)
        if is_now:
            return self._frame("MODIFIED" if was else "ADDED", change.after, draw)
        return self._frame("DELETED", None, draw) if was else None

    def _frame(self, kind: str, entry: Entry | None, draw: Draw | None) -> bytes:
        if draw is not None:
            return frame(kind, draw(entry or self._last_seen()))
        if kind not in self._made:
            self._made[kind] = frame(kind, (entry or self._last_seen()).raw)
        return self._made[kind]

    def _last_seen(self) -> Entry:
        change = self._change
        if change.removed or change.before is None:
            return change.after
        return entry_of(change.before.fresh(), change.revision)


class Watch:
    """One client's stream: what it has still to be sent."""

    def __init__(self, choice: Choice, begun: int, draw: Draw | None = None) -> None:
        """Start with nothing to send; what happened up to `begun` is known."""
        self.choice = choice
        self.draw = draw
        self.begun = begun
        self.ended = False
        self.stirred = asyncio.Event()
        self._pending: list[bytes] = []

    def add(self, entry: Entry) -> None:
        """Add an object that exists already to what is to be sent."""
        self.send(frame("ADDED", entry.raw if self.draw is None else self.draw(entry)))

    def mark(self, revision: int, *, initial_end: bool = False) -> None:
        """Add a bookmark to what is to be sent."""
        entry = bookmark(self.choice.resource, revision, initial_end=initial_end)
        raw = entry.raw if self.draw is None else self.draw(entry)
        self.send(frame("BOOKMARK", raw))

    def tell(self, frames: Frames) -> None:
        """Add what a change is to this watch to what is to be sent."""
        event = frames.event(self.choice, self.draw)
        if event is not None:
            self.send(event)

    def send(self, event: bytes) -> None:
        """Add an event to what is to be sent."""
        if len(self._pending) >= _PENDING_FRAMES:
            self.ended = True
        else:
            self._pending.append(event)
        self.stirred.set()

    def end(self) -> None:
        """Let the stream end after what is pending."""
        self.ended = True
        self.stirred.set()

    def take(self) -> bytes:
        """Return all that is pending, and forget it."""
        pending, self._pending = self._pending, []
        self.stirred.clear()
        return b"".join(pending)


class Hub:
    """Hands the changes of a log to all watches."""

    def __init__(self, log: ChangeLog) -> None:
        self._log = log
        self._delivered = log.revision
        self._watches: dict[Resource, set[Watch]] = {}

    @property
    def delivered(self) -> int:
        """The revision up to which every watch has been told."""
        return self._delivered

    @property
    def count(self) -> int:
        """How many watches are open."""
        return sum(len(watches) for watches in self._watches.values())

    def open(self, choice: Choice, *, after: int, draw: Draw | None = None) -> Watch:
        """Start a watch of what happens after a revision.

        When the log does not reach back so far, the watch holds one ERROR event
        with a 410 Status, and is ended: so does the real server.

        Args:
            choice: What is watched.
            after: The revision.
            draw: Turns each object into another form.
        """
        self.publish()
        watch = Watch(choice, self._log.revision, draw)
        try:
            missed = self._log.since(min(after, self._log.revision))
        except CompactedError:
            oldest = self._log.compacted
            watch.send(_gone(f"too old resource version: {after} ({oldest})"))
            watch.end()
            return watch
        for change in missed:
            if change.resource is choice.resource:
                watch.tell(Frames(change))
        self._watches.setdefault(choice.resource, set()).add(watch)
        return watch

    def close(self, watch: Watch) -> None:
        """Forget a watch whose client has gone."""
        self._watches.get(watch.choice.resource, set()).discard(watch)

    def publish(self) -> None:
        """Tell every watch what has happened since the last time."""
        changes = self._log.since(self._delivered)
        self._delivered = self._log.revision
        for change in changes:
            frames = Frames(change)
            for watch in self._watches.get(change.resource, ()):
                watch.tell(frames)

    def expire(self) -> None:
        """Forget the past; open watches end with 410, later ones start with it."""
        self.publish()
        self._log.compact()
        for watches in self._watches.values():
            for watch in watches:
                watch.send(_gone(_TOO_OLD))
                watch.end()


def _gone(message: str) -> bytes:
    return frame_of("ERROR", statuses.expired(message).document)
