"""Kubernetes events about pods and nodes, which `kubectl describe` shows.

Recording never waits and never fails: it puts an event into a bounded queue. A separate
task sends the events, with its own back-off. Equal events become one event with a
count, as in Kubernetes' components. A full queue drops its oldest event and counts it.
"""

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from kube.client import Client, object_path, send_patch
from kube.errors import ApiError, ConflictError, KubeError, NotFoundError
from kube.objects import encode
from service import clock
from service.backoff import Backoff

log = logging.getLogger(__name__)

#: Namespace of nodes' events; kubectl looks for them there.
NODE_NAMESPACE = "default"
#: Largest number of queued events, at some 500 bytes each.
_MAX_PENDING = 4096
_MAX_POSTED = 1024
#: The API server refuses longer messages.
_MESSAGE_CHARACTERS = 1024
#: Statuses that a second try would get again: no namespace, no right, too long.
_FINAL_STATUSES = frozenset({400, 403, 404, 405, 409, 413, 422})
#: Room for a dot and 16 hex digits in a name of at most 253 characters.
_NAME_CHARACTERS = 236


@dataclass(frozen=True, slots=True, kw_only=True)
class Regarding:
    """Reference to the object of an event."""

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _EventKey:
    """Fields that make two events equal."""

    regarding: Regarding
    type: str
    reason: str
    message: str

    @property
    def namespace(self) -> str:
        return self.regarding.namespace or NODE_NAMESPACE


@dataclass(slots=True, kw_only=True)
class _Occurrences:
    """Times and number of occurrences of an event that are not sent yet."""

    first_s: float
    last_s: float
    count: int = 1


class Recorder:
    """Queue of one component's events, and the events that it has sent."""

    def __init__(  # noqa: PLR0913  # tests set the clock and the pauses
        self,
        client: Client,
        *,
        component: str,
        host: str = "",
        wall_s: Callable[[], float] = clock.wall_s,
        backoff: Backoff | None = None,
        spacing_s: float = 0.0,
        count_dropped: Callable[[int], None] | None = None,
        on_outcome: Callable[[KubeError | None], None] | None = None,
    ) -> None:
        """Start with an empty queue.

        Args:
            client: An open client.
            component: Source of the events, such as `ascend-agent`.
            host: Node of the source; empty for none.
            wall_s: Wall clock, for the times of events.
            backoff: Pauses while the API server cannot be reached.
            spacing_s: Pause after each event; seconds. Above 0 where bursts of events
                must not delay other requests.
            count_dropped: Called with the number of events that were dropped: the queue
                was full, or the API server refused them. None: no call.
            on_outcome: Called with the error of each request that will be sent again,
                and with None after each other. None: no call.
        """
        self._client = client
        self._source = {"component": component} | ({"host": host} if host else {})
        self._wall_s = wall_s
        self._backoff = backoff or Backoff()
        self._spacing_s = spacing_s
        self._pending: OrderedDict[_EventKey, _Occurrences] = OrderedDict()
        #: {event that the API server has: (its name, its count)}
        self._posted_events: OrderedDict[_EventKey, tuple[str, int]] = OrderedDict()
        self._wake = asyncio.Event()
        self._count_dropped = count_dropped or _ignore
        self._on_outcome = on_outcome or _ignore

    def record(
        self,
        regarding: Regarding,
        *,
        reason: str,
        message: str,
        type: str = "Normal",  # noqa: A002  # the event's own word for it
    ) -> None:
        """Queue an event; return at once.

        Args:
            regarding: Object of the event.
            reason: One word in CamelCase.
            message: A sentence for people; cut at 1024 characters.
            type: `Normal` or `Warning`.
        """
        key = _EventKey(
            regarding=regarding,
            type=type,
            reason=reason,
            message=message[:_MESSAGE_CHARACTERS],
        )
        now = self._wall_s()
        if pending_occurrences := self._pending.get(key):
            pending_occurrences.last_s = now
            pending_occurrences.count += 1
        else:
            self._pending[key] = _Occurrences(first_s=now, last_s=now)
            if len(self._pending) > _MAX_PENDING:
                self._pending.popitem(last=False)
                self._count_dropped(1)
        self._wake.set()

    async def run(self) -> NoReturn:
        """Send queued events until cancelled."""
        pause_s = 0.0
        while True:
            await asyncio.sleep(pause_s)
            await self._wake.wait()
            pause_s = await self.attempt()

    async def attempt(self) -> float:
        """Send the oldest queued event, if any; return the pause after it (seconds)."""
        if not self._pending:
            self._wake.clear()
            return 0.0
        key, occurrences = self._pending.popitem(last=False)
        try:
            await self._send(key, occurrences)
        except KubeError as error:
            return self._handle_failure(key, occurrences, error)
        self._on_outcome(None)
        self._backoff.reset()
        return self._spacing_s

    def _handle_failure(
        self, key: _EventKey, occurrences: _Occurrences, error: KubeError
    ) -> float:
        if isinstance(error, ApiError) and error.status in _FINAL_STATUSES:
            self._on_outcome(None)
            self._count_dropped(occurrences.count)
            log.warning(
                "event refused", extra={"reason": key.reason, "error": str(error)}
            )
            return 0.0
        self._on_outcome(error)
        newer_occurrences = self._pending.get(key)
        if newer_occurrences:
            newer_occurrences.first_s = occurrences.first_s
            newer_occurrences.count += occurrences.count
        else:
            self._pending[key] = occurrences
        self._pending.move_to_end(key, last=False)
        return self._backoff.next_s(error.retry_after_s)

    async def _send(self, key: _EventKey, occurrences: _Occurrences) -> None:
        posted_event = self._posted_events.get(key)
        if posted_event:
            try:
                await self._count_up(key, occurrences, *posted_event)
            except NotFoundError:  # the API server deletes events after an hour
                self._posted_events.pop(key, None)
            else:
                return
        await self._create(key, occurrences)

    async def _count_up(
        self, key: _EventKey, occurrences: _Occurrences, name: str, posted_count: int
    ) -> None:
        count = posted_count + occurrences.count
        body = {"count": count, "lastTimestamp": clock.rfc3339(occurrences.last_s)}
        path = object_path("events", name, namespace=key.namespace)
        await send_patch(self._client, path, body)
        self._remember(key, name, count)

    async def _create(self, key: _EventKey, occurrences: _Occurrences) -> None:
        regarding = key.regarding
        name = _event_name(key, occurrences.first_s)
        involved_object = {
            "apiVersion": "v1",
            "kind": regarding.kind,
            "name": regarding.name,
            "namespace": regarding.namespace,
            "uid": regarding.uid,
        }
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": key.namespace},
            "involvedObject": {k: v for k, v in involved_object.items() if v},
            "type": key.type,
            "reason": key.reason,
            "message": key.message,
            "source": self._source,
            "firstTimestamp": clock.rfc3339(occurrences.first_s),
            "lastTimestamp": clock.rfc3339(occurrences.last_s),
            "count": occurrences.count,
        }
        path = object_path("events", "", namespace=key.namespace)
        try:
            await self._client.request("POST", path, body=encode(body))
        except ConflictError as error:
            # The event exists: the answer to an earlier try was lost. A terminating
            # namespace refuses with another reason.
            if error.reason != "AlreadyExists":
                raise
        self._remember(key, name, occurrences.count)

    def _remember(self, key: _EventKey, name: str, count: int) -> None:
        self._posted_events[key] = name, count
        self._posted_events.move_to_end(key)
        if len(self._posted_events) > _MAX_POSTED:
            self._posted_events.popitem(last=False)


def _ignore(_value: object) -> None:
    """Count and tell nothing."""


def _event_name(key: _EventKey, first_s: float) -> str:
    """Return a unique name that is the same for a repeated POST of the event."""
    text = f"{key!r} {first_s!r}".encode()
    digest = hashlib.blake2b(text, digest_size=8).hexdigest()
    # what stands before a dot ends with a letter or a digit
    return f"{key.regarding.name[:_NAME_CHARACTERS].rstrip('-.')}.{digest}"
