"""Say on an object what happened to it, so that `kubectl describe` shows it.

Recording never waits and never fails: an event is put into a bounded queue, and a task
of its own sends it, with a back-off of its own. Equal events are one event with a
count, as the API server's own components do it. When the queue is full the oldest
goes, and is counted.
"""

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from kube import objects
from kube.client import MERGE_PATCH, Client, object_path
from kube.errors import ApiError, ConflictError, KubeError, NotFoundError
from kube.objects import Node, Pod
from service import clock
from service.backoff import Backoff

log = logging.getLogger(__name__)

#: Events of a node (no namespace of its own) live where kubectl looks for them.
NODE_NAMESPACE = "default"
#: Of the largest burst that is told of in whole, at some 500 bytes each.
_PENDING_MOST = 4096
_KNOWN_MOST = 1024
#: The API server refuses longer ones.
_MESSAGE_CHARACTERS = 1024
#: Refusals that a second try would meet again: no such namespace, no right, too long.
_FINAL = frozenset({400, 403, 404, 405, 409, 413, 422})
#: Room for a dot and 16 hex digits in a name of at most 253 characters.
_NAME_CHARACTERS = 236


@dataclass(frozen=True, slots=True, kw_only=True)
class Regarding:
    """The object that an event is about."""

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""


def about_pod(pod: Pod) -> Regarding:
    """Return a reference to a pod.

    Args:
        pod: The pod.
    """
    meta = pod.metadata
    return Regarding(kind="Pod", name=meta.name, namespace=meta.namespace, uid=meta.uid)


def about_node(node: Node) -> Regarding:
    """Return a reference to a node.

    Args:
        node: The node. kubectl finds its events by UID or, as the kubelet writes
            them, by a UID that is the name.
    """
    meta = node.metadata
    return Regarding(kind="Node", name=meta.name, uid=meta.uid or meta.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fact:
    """What makes two events equal."""

    regarding: Regarding
    type: str
    reason: str
    message: str

    @property
    def namespace(self) -> str:
        return self.regarding.namespace or NODE_NAMESPACE


@dataclass(slots=True, kw_only=True)
class _Times:
    """When and how often a fact was recorded."""

    first_s: float
    last_s: float
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sent:
    """An event that the API server has."""

    name: str
    first_s: float
    count: int


class Recorder:
    """The events of one component that wait, and those that were sent."""

    def __init__(
        self,
        client: Client,
        *,
        component: str,
        host: str = "",
        wall_s: Callable[[], float] = clock.wall_s,
        backoff: Backoff | None = None,
        spacing_s: float = 0.0,
    ) -> None:
        """Have nothing to say yet.

        Args:
            client: An open client.
            component: Who speaks, such as `ascend-agent`.
            host: The node that it speaks from; empty for none.
            wall_s: Wall clock, for the times that people read.
            backoff: Pauses while the API server is away.
            spacing_s: Pause after each event, for who has a lot to say while the API
                server has better to do.
        """
        self._client = client
        self._source = {"component": component} | ({"host": host} if host else {})
        self._wall_s = wall_s
        self._backoff = backoff or Backoff()
        self._spacing_s = spacing_s
        self._pending: OrderedDict[_Fact, _Times] = OrderedDict()
        self._sent: OrderedDict[_Fact, _Sent] = OrderedDict()
        self._wake = asyncio.Event()
        #: Events that were lost: queue full, or refused by the API server.
        self.dropped = 0

    def record(
        self,
        regarding: Regarding,
        *,
        reason: str,
        message: str,
        type: str = "Normal",  # noqa: A002  # the event's own word for it
    ) -> None:
        """Note an event; returns at once.

        Args:
            regarding: The object that it is about.
            reason: One word in CamelCase.
            message: A sentence for a person; cut at 1024 characters.
            type: `Normal` or `Warning`.
        """
        fact = _Fact(
            regarding=regarding,
            type=type,
            reason=reason,
            message=message[:_MESSAGE_CHARACTERS],
        )
        now = self._wall_s()
        if waiting := self._pending.get(fact):
            waiting.last_s = now
            waiting.count += 1
        else:
            self._pending[fact] = _Times(first_s=now, last_s=now)
            if len(self._pending) > _PENDING_MOST:
                self._pending.popitem(last=False)
                self.dropped += 1
        self._wake.set()

    async def run(self) -> NoReturn:
        """Send what is recorded, until cancelled."""
        pause_s = 0.0
        while True:
            await asyncio.sleep(pause_s)
            await self._wake.wait()
            pause_s = await self.attempt()

    async def attempt(self) -> float:
        """Send the oldest event that waits, if any; return the pause after it."""
        if not self._pending:
            self._wake.clear()
            return 0.0
        fact, times = self._pending.popitem(last=False)
        try:
            await self._send(fact, times)
        except KubeError as error:
            return self._failed(fact, times, error)
        self._backoff.reset()
        return self._spacing_s

    def _failed(self, fact: _Fact, times: _Times, error: KubeError) -> float:
        if isinstance(error, ApiError) and error.status in _FINAL:
            self.dropped += times.count
            log.warning(
                "event refused", extra={"reason": fact.reason, "error": str(error)}
            )
            return 0.0
        newer = self._pending.get(fact)
        if newer:
            newer.first_s, newer.count = times.first_s, newer.count + times.count
        else:
            self._pending[fact] = times
        self._pending.move_to_end(fact, last=False)
        return self._backoff.next_s(error.retry_after_s)

    async def _send(self, fact: _Fact, times: _Times) -> None:
        known = self._sent.get(fact)
        if known:
            try:
                await self._count_up(fact, times, known)
            except NotFoundError:  # the API server forgets events after an hour
                self._sent.pop(fact, None)
            else:
                return
        await self._create(fact, times)

    async def _count_up(self, fact: _Fact, times: _Times, known: _Sent) -> None:
        count = known.count + times.count
        body = {"count": count, "lastTimestamp": clock.rfc3339(times.last_s)}
        await self._client.request(
            "PATCH",
            object_path("events", known.name, namespace=fact.namespace),
            body=objects.encode(body),
            content_type=MERGE_PATCH,
        )
        self._remember(fact, _Sent(name=known.name, first_s=known.first_s, count=count))

    async def _create(self, fact: _Fact, times: _Times) -> None:
        about = fact.regarding
        name = _event_name(fact, times.first_s)
        involved = {
            "apiVersion": "v1",
            "kind": about.kind,
            "name": about.name,
            "namespace": about.namespace,
            "uid": about.uid,
        }
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": fact.namespace},
            "involvedObject": {k: v for k, v in involved.items() if v},
            "type": fact.type,
            "reason": fact.reason,
            "message": fact.message,
            "source": self._source,
            "firstTimestamp": clock.rfc3339(times.first_s),
            "lastTimestamp": clock.rfc3339(times.last_s),
            "count": times.count,
        }
        path = object_path("events", "", namespace=fact.namespace)
        try:
            await self._client.request("POST", path, body=objects.encode(body))
        except ConflictError as error:
            # Our own first try, whose answer was lost. A terminating namespace
            # refuses with other words.
            if error.reason != "AlreadyExists":
                raise
        self._remember(fact, _Sent(name=name, first_s=times.first_s, count=times.count))

    def _remember(self, fact: _Fact, sent: _Sent) -> None:
        self._sent[fact] = sent
        self._sent.move_to_end(fact)
        if len(self._sent) > _KNOWN_MOST:
            self._sent.popitem(last=False)


def _event_name(fact: _Fact, first_s: float) -> str:
    """Return a name that no other event has, and a repeated POST has again."""
    told = f"{fact!r} {first_s!r}".encode()
    digest = hashlib.blake2b(told, digest_size=8).hexdigest()
    return f"{fact.regarding.name[:_NAME_CHARACTERS]}.{digest}"
