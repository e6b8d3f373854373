"""List-watch of one collection that delivers every change, deletions included.

Other clients' watches hang on dead connections, loop on 410, or miss deletions during a
break. `ListWatch` works as follows.

1. It lists in pages without resourceVersion, so that no list is older than the cache.
   It compares the list with the cache. Objects that are not listed are delivered as
   `Deleted`, changed ones as `Upserted`; then comes `Synced`.
2. It watches from the list's version, with bookmarks. The server ends each watch after
   a random time of 5 to 10 minutes. A stream that is silent for 70 s is closed
   (bookmarks come each minute).
3. After a broken stream, an overload or a server error it watches from the last
   version. After 410, an ERROR event, or ten such errors in a row it lists again.
4. Between failures it pauses: jittered, 1 s to 30 s, Retry-After respected. The pauses
   start with 1 s again after a watch that delivered a change or lasted 10 s. They do so
   after the first 410, too, because only a working server sends it. If a 410 comes
   soon after a list, a watch from its version is tried each 4 to 5 s, and the next list
   waits for the end of the pause: lists are costly. `retry_now` ends a pause;
   `disconnected_s` says for how long no watch has been open.
5. It delivers no event twice and none older than the cache: versions rise (KEP-5504
   lets clients compare them). An older list is accepted only after a minute. By then no
   server lags, so etcd was restored from a backup.
6. `compare` compares the cache with the server, and `relist_now` repairs differences. A
   lost event shows in nothing else.
"""

import asyncio
import logging
import random  # noqa: TID251  # jitter must differ between nodes; tests pass their own
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, NoReturn, TypeAlias, TypeVar

from kube import drift
from kube.client import Client
from kube.errors import (
    ApiError,
    GoneError,
    KubeError,
    MalformedError,
    SilentError,
    StaleError,
    api_error,
)
from kube.framing import LineSplitter
from kube.objects import MetadataOnly, WatchEvent, decode
from kube.pager import PAGE_SIZE, HasMeta, Listing
from kube.store import Collection, Difference, is_older
from service import clock
from service.backoff import Backoff

log = logging.getLogger(__name__)

#: Longest silence; bookmarks come each minute, so more means a dead connection.
IDLE_S = 70.0
#: A watch ends after half of this to all of it; seconds.
LONGEST_S = 600
#: Longest pause between failures; seconds.
PAUSE_S = 30.0
#: Longest pause after a 410, in seconds: the server works, so it is watched again soon.
EXPIRED_PAUSE_S = 5.0
#: Duration after which a watch counts as successful.
STEADY_S = 10.0
#: Time for which an older list is refused, as one of a lagging server.
STALE_S = 60.0
#: Statuses after which no list follows: it is costly, and would be refused, too.
_REFUSAL_STATUSES = frozenset({401, 403, 429})
#: Statuses after which a list follows only if `_MAX_SERVER_ERRORS` come in a row (2 to
#: 3 minutes): the version may be their cause.
_SERVER_ERROR_STATUSES = frozenset({500, 502, 503, 504})
_MAX_SERVER_ERRORS = 10
#: Errors after which a successful watch is followed by the next one without a pause:
#: the server works (a quiet cluster may have no bookmark to send), and the clients of a
#: fleet do not get them at the same moment.
_IMMEDIATE_RETRY_ERRORS = (GoneError, SilentError)

T = TypeVar("T", bound=HasMeta)
T_co = TypeVar("T_co", bound=HasMeta, covariant=True)


@dataclass(frozen=True, slots=True)
class Synced:
    """Whole list that has been delivered; later changes are newer than its version."""

    resource_version: str


@dataclass(frozen=True, slots=True)
class Upserted(Generic[T_co]):
    """Object that is new or has changed."""

    obj: T_co


@dataclass(frozen=True, slots=True)
class Deleted(Generic[T_co]):
    """Object that was deleted; `obj` is its last known state."""

    obj: T_co


Change: TypeAlias = Synced | Upserted[T] | Deleted[T]


class ListWatch(Generic[T]):
    """Reflector of one collection.

    Owns the cached objects by UID. Their source of truth is the API server. After a
    broken watch, the next list repairs the cache.
    """

    def __init__(  # noqa: PLR0913  # tests set the times and the jitter
        self,
        client: Client,
        path: str,
        kind: type[T],
        *,
        params: Mapping[str, str] | None = None,
        idle_s: float = IDLE_S,
        page_size: int = PAGE_SIZE,
        longest_s: int = LONGEST_S,
        pause_s: float = PAUSE_S,
        transform: Callable[[T], T] | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """Start with an empty cache; `run` fills it.

        Args:
            client: An open client.
            path: Collection, such as `/api/v1/pods`.
            kind: Struct of its objects.
            params: fieldSelector and labelSelector; None for the whole collection.
            idle_s: Longest silence of a watch; seconds.
            page_size: Objects per page of a list.
            longest_s: Longest duration of a watch; seconds.
            pause_s: Longest pause between failures; seconds.
            transform: Trims each object before it is cached; None keeps it whole.
            rng: Source of the jitter.
        """
        self._client = client
        self._path = path
        self._params = dict(params or {})
        self._idle_s = idle_s
        self._longest_s = longest_s
        self._rng = rng or random.Random()  # noqa: S311  # jitter, not a secret
        self._backoff = Backoff(rng=self._rng, cap_s=pause_s)
        self._listing = Listing(
            client,
            path,
            kind,
            params=self._params,
            page_size=page_size,
            transform=transform,
        )
        self._versions = self._listing.versions_only()
        #: Delivered objects, and the version to watch from.
        self._collection: Collection[T] = Collection()
        #: Loop time of the first of several stale lists in a row; None without one.
        self._stale_since: float | None = None
        #: Whether a 410 came after the last successful watch.
        self._has_expired = False
        #: Loop time of the end of the pause after a 410: until then no list follows.
        self._list_at_s = float("-inf")
        #: Number of server errors in a row.
        self._server_errors = 0
        #: Loop times of the last two lists; a third soon after them has to wait.
        self._listed_at_s: deque[float] = deque(maxlen=2)
        self._watching_since: float | None = None
        #: Loop time when the last watch ended; None before the first and during one.
        self._disconnected_since: float | None = None
        #: Part of the pause that the server asked for; seconds.
        self._retry_after_s = 0.0
        #: Timeout of the open watch, rescheduled to end it; None without a watch.
        self._watch_timeout: asyncio.Timeout | None = None
        #: Set to end the current pause.
        self._retry_requested = asyncio.Event()
        #: Whether a whole list has been delivered.
        self.synced = False
        #: Loop time of the last bytes of list or watch, bookmarks included.
        self.last_event_s = float("-inf")
        #: Number of changes that watches delivered.
        self.event_count = 0
        #: Called when a watch has ended.
        self._count_restart: Callable[[], None] = _ignore_restart
        #: Called with the error of list or watch, and with None once a watch is open.
        self._on_outcome: Callable[[KubeError | None], None] = _ignore_outcome
        #: Number of lists that began.
        self.relists = 0

    def count_restarts(self, count: Callable[[], None]) -> None:
        """Call `count` when a watch has ended, from now on and in place of others."""
        self._count_restart = count

    def tell_outcomes(self, on_outcome: Callable[[KubeError | None], None]) -> None:
        """Call `on_outcome` after each failure, and with None once a watch is open.

        A 410 is neither: the API server answers, and a list follows.
        """
        self._on_outcome = on_outcome

    def objects(self) -> tuple[T, ...]:
        """Return the cached objects: those that have been delivered."""
        return tuple(self._collection)

    def get(self, uid: str) -> T | None:
        """Return the cached object of that UID; None if there is none."""
        return self._collection.get(uid)

    def disconnected_s(self) -> float:
        """Return for how long no watch has been open; 0 before the first (seconds)."""
        since = self._disconnected_since
        return 0.0 if since is None else asyncio.get_running_loop().time() - since

    def retry_now(self) -> None:
        """End the current pause, for a caller that needs the latest state.

        Does nothing while a watch is open. Each call skips one pause at most, and never
        the part that the server asked for (Retry-After).
        """
        if self._watch_timeout is None:
            self._retry_requested.set()

    async def compare(self) -> list[Difference] | None:
        """Return objects whose cached version is wrong; None if undecided now.

        Raises:
            KubeError: The server refused or garbled the list.
        """
        if not self.synced or self._disconnected_since is not None:
            return None
        return await drift.find_differences(self._collection, self._versions)

    def relist_now(self) -> None:
        """End the watch and list again, because the cache is wrong."""
        self._collection.version, self._list_at_s = "", float("-inf")
        if self._watch_timeout is not None:
            self._watch_timeout.reschedule(asyncio.get_running_loop().time())

    async def run(self, deliver: Callable[[Change[T]], None]) -> NoReturn:
        """Follow the collection until cancelled.

        Args:
            deliver: Called with each change on the event loop; must not block.
        """
        while True:
            pause_s = await self.attempt(deliver)
            await asyncio.sleep(self._retry_after_s)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s - self._retry_after_s):
                    await self._retry_requested.wait()
                    self._list_at_s = float("-inf")
            self._retry_requested.clear()

    async def attempt(self, deliver: Callable[[Change[T]], None]) -> float:
        """List if due, watch until the watch ends; return the pause after it (seconds).

        Args:
            deliver: Called with each change.
        """
        failure: KubeError | None = None
        count_before = self.event_count
        self._watching_since = None
        self._retry_after_s = 0.0
        try:
            await self.step(deliver)
        except KubeError as error:
            failure = error
        has_worked = self.event_count > count_before or self._is_steady()
        has_worked = has_worked and not self._is_listing_much()
        has_expired = isinstance(failure, GoneError)
        if failure is not None and not has_expired:
            self._on_outcome(failure)
        if has_worked or (has_expired and not self._has_expired):
            self._backoff.reset()
        self._has_expired = not has_worked and (has_expired or self._has_expired)
        if has_worked and (
            failure is None or isinstance(failure, _IMMEDIATE_RETRY_ERRORS)
        ):
            return 0.0
        retry_after_s = failure.retry_after_s if failure else 0.0
        pause_s = self._next_pause_s(retry_after_s, has_expired=has_expired)
        self._retry_after_s = min(retry_after_s, pause_s)
        log.warning(
            "watch interrupted",
            extra={"path": self._path, "reason": str(failure), "pause_s": pause_s},
        )
        return pause_s

    def _next_pause_s(self, retry_after_s: float, *, has_expired: bool) -> float:
        """Return the pause after a failure; seconds.

        Args:
            retry_after_s: Least pause that the server asks for; seconds.
            has_expired: Whether the failure is a 410.
        """
        pause_s = self._until_list_s() if has_expired else 0.0
        if not pause_s:
            pause_s = self._backoff.next_s(retry_after_s)
            now = asyncio.get_running_loop().time()
            self._list_at_s = now + pause_s if has_expired else float("-inf")
        if not has_expired:
            return pause_s
        longest_s = self._rng.uniform(0.8, 1.0) * EXPIRED_PAUSE_S
        return max(min(pause_s, longest_s), retry_after_s)

    def _until_list_s(self) -> float:
        """Return for how long an expired version is not replaced by a list; seconds."""
        left_s = self._list_at_s - asyncio.get_running_loop().time()
        return left_s if left_s > clock.EARLY_S else 0.0

    async def step(self, deliver: Callable[[Change[T]], None]) -> None:
        """List if there is no version to watch from, then watch once.

        Args:
            deliver: Called with each change.

        Raises:
            KubeError: List or watch failed; the next step continues from the cache.
        """
        if not self._collection.version and self._until_list_s():
            self._collection.version = self._collection.newest
        if not self._collection.version:
            await self._relist(deliver)
        try:
            await self._watch(deliver)
        except (ApiError, MalformedError) as error:
            # The server would refuse or garble the same again: list first.
            if not self._may_go_on(error):
                self._collection.version = ""
            raise
        finally:
            self._count_restart()

    def _may_go_on(self, error: KubeError) -> bool:
        """Return whether the next watch may start from the same version."""
        status = error.status if isinstance(error, ApiError) else 0
        self._server_errors += status in _SERVER_ERROR_STATUSES
        is_patient = (
            status in _SERVER_ERROR_STATUSES
            and self._server_errors < _MAX_SERVER_ERRORS
        )
        return status in _REFUSAL_STATUSES or is_patient

    def _is_listing_much(self) -> bool:
        """Return whether a third list is due within `STEADY_S` of two others."""
        now = asyncio.get_running_loop().time()
        is_third = len(self._listed_at_s) == self._listed_at_s.maxlen
        is_due = not self._collection.version
        return is_due and is_third and now - self._listed_at_s[0] < STEADY_S

    async def _relist(self, deliver: Callable[[Change[T]], None]) -> None:
        """List, and deliver the differences from the cache."""
        self.relists += 1
        self._server_errors = 0
        listed_objects, version = await self._listing.read()
        self._check_age(version)
        self._listed_at_s.append(asyncio.get_running_loop().time())
        deleted_objects, upserted_objects = self._collection.replace(
            listed_objects, version
        )
        # Deletions first: a new object may have the name of a deleted one.
        for obj in deleted_objects:
            deliver(Deleted(obj))
        for obj in upserted_objects:
            deliver(Upserted(obj))
        self.synced = True
        self.last_event_s = asyncio.get_running_loop().time()
        deliver(Synced(version))

    def _check_age(self, version: str) -> None:
        """Refuse a list that is older than the cache, for `STALE_S`."""
        newest = self._collection.newest
        if not is_older(version, newest):
            self._stale_since = None
            return
        now = asyncio.get_running_loop().time()
        if self._stale_since is None:
            self._stale_since = now
        if now - self._stale_since < STALE_S:
            raise StaleError(
                f"LIST {self._path}: expected version {newest} or newer, "
                f"found {version}"
            )

    async def _watch(self, deliver: Callable[[Change[T]], None]) -> None:
        """Watch until the server ends the watch; deliver its changes."""
        params = self._params | {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._collection.version,
            "timeoutSeconds": str(
                self._rng.randint(self._longest_s // 2, self._longest_s)
            ),
        }
        lines = LineSplitter()
        loop = asyncio.get_running_loop()
        disconnected_since = self._disconnected_since
        async with self._client.stream(self._path, params=params) as stream:
            if not self._collection.version:
                return  # a list is due; an event would set the version to watch from
            self._watching_since = loop.time()
            self._disconnected_since = None
            self._retry_requested.clear()
            self._server_errors = 0
            self._on_outcome(None)
            try:
                async with asyncio.timeout(None) as self._watch_timeout:
                    while chunk := await stream.read(self._idle_s):
                        for line in lines.feed(chunk):
                            self._deliver_line(line, deliver)
                        self.last_event_s = loop.time()
                        disconnected_since = None
            except TimeoutError:
                self._collection.version = ""
            except ApiError:
                # The stream had only a refusal, so no watch was open.
                self._disconnected_since = disconnected_since
                raise
            finally:
                self._watch_timeout = None
                if self._disconnected_since is None:
                    self._disconnected_since = loop.time()

    def _deliver_line(self, line: bytes, deliver: Callable[[Change[T]], None]) -> None:
        """Decode one line of a watch, update the cache, and deliver the change."""
        event = decode(line, WatchEvent, self._path)
        match event.type:
            case "BOOKMARK":
                mark = decode(event.object, MetadataOnly, self._path)
                self._collection.advance(mark)
            case "ADDED" | "MODIFIED":
                obj = self._listing.decode_object(event.object)
                if self._collection.put(obj):
                    self.event_count += 1
                    deliver(Upserted(obj))
            case "DELETED":
                obj = self._listing.decode_object(event.object)
                if self._collection.drop(obj):
                    self.event_count += 1
                    deliver(Deleted(obj))
            case "ERROR":
                self._collection.version = ""
                raise api_error(
                    0, bytes(event.object), request_line=f"WATCH {self._path}"
                )
            case _:
                problem = f"expected a type of event, found {event.type[:40]!r}"
                raise MalformedError(f"WATCH {self._path}: {problem}")

    def _is_steady(self) -> bool:
        now = asyncio.get_running_loop().time()
        return (
            self._watching_since is not None and now - self._watching_since >= STEADY_S
        )


def _ignore_restart() -> None:
    """Count nothing."""


def _ignore_outcome(_error: KubeError | None) -> None:
    """Tell nothing of how requests went."""
