"""What is there, and what changes: list once, watch, and never miss a deletion.

Other clients' watches hang on dead connections, loop on 410 or lose what vanished
while they were away. This one:

1. lists in pages, consistently (no resourceVersion, so that what we list is never
   older than what we knew), and compares with what it knew: what vanished is
   delivered as `Deleted`, what changed as `Upserted`, then `Synced`;
2. watches from there with bookmarks, asks the server to end the watch after a random
   time (5 to 10 minutes), and gives up on a stream that is silent for 70 s
   (bookmarks come each minute);
3. goes on from the last version after a cut, an overload or an error of the server's
   own; lists again after 410, an ERROR event, or ten such errors in a row;
4. waits between failures: jittered, 1 s to 30 s, Retry-After respected; the wait
   starts anew once a watch has brought something or has lived a while, and after
   the first 410, which only a server that works can say; whoever needs what would
   be seen may end the wait (`hurry`); it says for how long it has seen nothing
   (`lost_s`);
5. takes nothing twice and nothing older than what it knew: versions rise (KEP-5504
   lets clients compare them). A list that is older is believed after a minute only:
   then etcd was restored from a backup, and no server lags;
6. on request compares what it knows with what is there (`compare`), and lists again
   where that differs (`renew`): an event that never came shows in nothing else.
"""

import asyncio
import logging
import random  # noqa: TID251  # jitter must differ between nodes; tests pass their own
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, NoReturn, TypeAlias, TypeVar

import msgspec

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
from kube.objects import OnlyMeta, WatchEvent
from kube.pager import PAGE_SIZE, HasMeta, Listing, decoded
from kube.store import Collection, Difference, is_older
from service.backoff import Backoff

log = logging.getLogger(__name__)

#: The server's bookmarks come each minute, so more silence is a dead connection.
IDLE_S = 70.0
#: A watch ends after half of this to all of it. Unit: seconds.
LONGEST_S = 600
#: Of a fleet whose API server is away nobody asks more often. Unit: seconds.
PAUSE_S = 30.0
#: A watch that lived as long as this has worked.
STEADY_S = 10.0
#: So long an older list is taken for a server that lags.
STALE_S = 60.0
#: No reason to list: a list is the dearest of requests, and is refused as well.
_NOT_NOW = frozenset({401, 403, 429})
#: Nor is this, but so many in a row, two to three minutes, may be the version's fault.
_IN_TROUBLE = frozenset({500, 502, 503, 504})
_TROUBLES_MOST = 10
#: Ends of a working watch that call for the next one at once: the server is not to
#: blame (a quiet cluster may have no bookmark to send), and no fleet does it in step.
_AT_ONCE = (GoneError, SilentError)

_EVENTS = msgspec.json.Decoder(WatchEvent)
_ANY_OBJECT = msgspec.json.Decoder(OnlyMeta)


T = TypeVar("T", bound=HasMeta)
T_co = TypeVar("T_co", bound=HasMeta, covariant=True)


@dataclass(frozen=True, slots=True)
class Synced:
    """A whole list has been delivered; what comes next is newer than this version."""

    resource_version: str


@dataclass(frozen=True, slots=True)
class Upserted(Generic[T_co]):
    """An object is new or has changed."""

    obj: T_co


@dataclass(frozen=True, slots=True)
class Deleted(Generic[T_co]):
    """An object is gone; `obj` is the last that was seen of it."""

    obj: T_co


Change: TypeAlias = Synced | Upserted[T] | Deleted[T]


class ListWatch(Generic[T]):
    """One collection, followed.

    Owns the last known objects by UID. Their source of truth is the API server; the
    list that follows a lost watch repairs them.
    """

    def __init__(  # noqa: PLR0913  # tests shorten the times and fix the chance
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
        keep: Callable[[T], T] | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """Know nothing yet.

        Args:
            client: An open client.
            path: The collection, such as `/api/v1/pods`.
            kind: The struct that its objects decode to.
            params: fieldSelector and labelSelector, where only a part is wanted.
            idle_s: How long a silent watch is believed; seconds.
            page_size: Objects per page of a list.
            longest_s: The most that one watch lasts; seconds.
            pause_s: The longest pause between failures; seconds.
            keep: Makes of each object what is kept of it; None: all.
            rng: The source of chance for jitter.
        """
        self._client = client
        self._path = path
        self._params = dict(params or {})
        self._idle_s = idle_s
        self._longest_s = longest_s
        self._rng = rng or random.Random()  # noqa: S311  # jitter, not a secret
        self._backoff = Backoff(rng=self._rng, cap_s=pause_s)
        self._listing = Listing(
            client, path, kind, params=self._params, page_size=page_size, keep=keep
        )
        self._stamps = self._listing.of_stamps()
        #: What has been delivered, and from where to go on.
        self._collection: Collection[T] = Collection()
        #: Loop time of the first of the stale lists in a row.
        self._stale_since: float | None = None
        #: 410 has come since a watch last worked.
        self._has_expired = False
        #: Watches in a row that the server was in too much trouble for.
        self._troubles = 0
        #: Loop times of the last lists: two of them may follow each other at once.
        self._listed: deque[float] = deque(maxlen=2)
        self._watching_since: float | None = None
        #: Loop time since when no watch is open; None while one is.
        self._lost_since: float | None = None
        #: Of the pause, what the server has asked for; seconds.
        self._asked_s = 0.0
        #: The watch that is open: whoever reschedules it ends it.
        self._open: asyncio.Timeout | None = None
        #: Somebody needs what the next attempt would learn.
        self._hurried = asyncio.Event()
        #: Whether a whole list has ever been delivered.
        self.synced = False
        #: Loop time of the last sign of life, bookmarks included.
        self.last_event_s = float("-inf")
        #: Changes delivered from watches, lists not counted.
        self.event_count = 0
        #: Watches that ended, for whatever reason; lists that began.
        self.restarts = 0
        self.relists = 0

    def known(self) -> tuple[T, ...]:
        """Return what is there, as far as has been delivered."""
        return tuple(self._collection)

    def get(self, uid: str) -> T | None:
        """Return the object of that UID, as far as has been delivered."""
        return self._collection.get(uid)

    def lost_s(self) -> float:
        """For how long no watch has been open, after the first; seconds."""
        since = self._lost_since
        return 0.0 if since is None else asyncio.get_running_loop().time() - since

    def hurry(self) -> None:
        """Try again at once: somebody waits for what has not been seen.

        Nothing while a watch is open; one pause at most is skipped for each call, and
        none that the server has asked for.
        """
        if self._open is None:
            self._hurried.set()

    async def compare(self) -> list[Difference] | None:
        """Return what is known otherwise than it is; None: it cannot be told now.

        Raises:
            KubeError: The server refused or garbled the list.
        """
        if not self.synced or self._lost_since is not None:
            return None
        return await drift.differences(self._collection, self._stamps)

    def renew(self) -> None:
        """List again, now: what is known is not to be relied on."""
        self._collection.version = ""
        if self._open is not None:
            self._open.reschedule(asyncio.get_running_loop().time())

    async def run(self, deliver: Callable[[Change[T]], None]) -> NoReturn:
        """Follow the collection until cancelled.

        Args:
            deliver: Takes each change; called on the loop, must not block.
        """
        while True:
            pause_s = await self.attempt(deliver)
            await asyncio.sleep(self._asked_s)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s - self._asked_s):
                    await self._hurried.wait()
            self._hurried.clear()

    async def attempt(self, deliver: Callable[[Change[T]], None]) -> float:
        """List if due, watch until the watch ends; return the pause before the next.

        Args:
            deliver: Takes each change.
        """
        failure: KubeError | None = None
        before = self.event_count
        self._watching_since = None
        self._asked_s = 0.0
        try:
            await self.step(deliver)
        except KubeError as error:
            failure = error
        worked = self.event_count > before or self._steady()
        worked = worked and not self._is_listing_much()
        expired = isinstance(failure, GoneError)
        if worked or (expired and not self._has_expired):
            self._backoff.reset()
        self._has_expired = not worked and (expired or self._has_expired)
        if worked and (failure is None or isinstance(failure, _AT_ONCE)):
            return 0.0
        asked_s = failure.retry_after_s if failure else 0.0
        pause_s = self._backoff.next_s(asked_s)
        self._asked_s = min(asked_s, pause_s)
        log.warning(
            "watch interrupted",
            extra={"path": self._path, "reason": str(failure), "pause_s": pause_s},
        )
        return pause_s

    async def step(self, deliver: Callable[[Change[T]], None]) -> None:
        """List when there is no version to go on from; then watch once.

        Args:
            deliver: Takes each change.

        Raises:
            KubeError: List or watch failed; the next step goes on from what is known.
        """
        if not self._collection.version:
            await self._relist(deliver)
        try:
            await self._watch(deliver)
        except (ApiError, MalformedError) as error:
            # What the server refuses or garbles from here it will again: start afresh.
            if not self._may_go_on(error):
                self._collection.version = ""
            raise
        finally:
            self.restarts += 1

    def _may_go_on(self, error: KubeError) -> bool:
        """Say whether the version is not to blame for the end of a watch."""
        status = error.status if isinstance(error, ApiError) else 0
        self._troubles += status in _IN_TROUBLE
        is_patient = status in _IN_TROUBLE and self._troubles < _TROUBLES_MOST
        return status in _NOT_NOW or is_patient

    def _is_listing_much(self) -> bool:
        """Say whether a list is due, again, shortly after two others."""
        now = asyncio.get_running_loop().time()
        is_third = len(self._listed) == self._listed.maxlen
        is_due = not self._collection.version
        return is_due and is_third and now - self._listed[0] < STEADY_S

    async def _relist(self, deliver: Callable[[Change[T]], None]) -> None:
        """Deliver the difference between what is there and what was known."""
        self.relists += 1
        self._troubles = 0
        found, version = await self._listing.read()
        self._check_age(version)
        self._listed.append(asyncio.get_running_loop().time())
        gone, changed = self._collection.replace(found, version)
        # Deletions first: a name may have been taken by a new object meanwhile.
        for obj in gone:
            deliver(Deleted(obj))
        for obj in changed:
            deliver(Upserted(obj))
        self.synced = True
        self.last_event_s = asyncio.get_running_loop().time()
        deliver(Synced(version))

    def _check_age(self, version: str) -> None:
        """Refuse a list that is older than what we knew, for a while."""
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
        """Deliver what one watch brings, until the server ends it."""
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
        lost_since = self._lost_since
        async with self._client.stream(self._path, params=params) as stream:
            if not self._collection.version:
                return  # to be listed again: what comes here would be gone on from
            self._watching_since = loop.time()
            self._lost_since = None
            self._hurried.clear()
            self._troubles = 0
            try:
                async with asyncio.timeout(None) as self._open:
                    while chunk := await stream.read(self._idle_s):
                        for line in lines.feed(chunk):
                            self._take(line, deliver)
                        self.last_event_s = loop.time()
                        lost_since = None
            except TimeoutError:
                self._collection.version = ""
            except ApiError:
                # A stream that brings nothing but a refusal has shown nothing.
                self._lost_since = lost_since
                raise
            finally:
                self._open = None
                if self._lost_since is None:
                    self._lost_since = loop.time()

    def _take(self, line: bytes, deliver: Callable[[Change[T]], None]) -> None:
        """Deliver one line of a watch."""
        event = decoded(line, _EVENTS, self._path)
        match event.type:
            case "BOOKMARK":
                mark = decoded(event.object, _ANY_OBJECT, self._path)
                self._collection.advance(mark)
            case "ADDED" | "MODIFIED":
                obj = self._listing.obj(event.object)
                if self._collection.put(obj):
                    self.event_count += 1
                    deliver(Upserted(obj))
            case "DELETED":
                obj = self._listing.obj(event.object)
                if self._collection.drop(obj):
                    self.event_count += 1
                    deliver(Deleted(obj))
            case "ERROR":
                self._collection.version = ""
                raise api_error(0, bytes(event.object), what=f"WATCH {self._path}")
            case _:
                found = f"expected a type of event, found {event.type[:40]!r}"
                raise MalformedError(f"WATCH {self._path}: {found}")

    def _steady(self) -> bool:
        now = asyncio.get_running_loop().time()
        return (
            self._watching_since is not None and now - self._watching_since >= STEADY_S
        )
