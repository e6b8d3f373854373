"""Many short pods, and an owner who makes a new one for each that was rejected."""

import itertools
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import kubernetes.client
import urllib3.exceptions

from tests.e2e.cluster import Cluster
from tests.e2e.commands import until
from tests.e2e.faults import witness
from tests.e2e.faults.chronicle import Chronicle, Story

LABELS = {"part": "churn"}
_OUTAGES = (urllib3.exceptions.HTTPError, OSError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of short pod."""

    #: chips of each of its containers
    chips: tuple[int, ...]
    #: of a first container that ends before the others begin; 0 for none
    init_chips: int = 0
    life: str = "1"


#: As they come in turn.
SIMPLE = (Kind(chips=(1,)), Kind(chips=(1,)), Kind(chips=(2,)), Kind(chips=(1,)))


class Churn:
    """Keeps so many pods alive. Protects which of them are alive, and the count."""

    def __init__(
        self,
        cluster: Cluster,
        chronicle: Chronicle,
        namespace: str,
        *,
        at_once: int,
        kinds: Sequence[Kind] = SIMPLE,
        total: int | None = None,
    ) -> None:
        """Nothing is created until it is entered.

        Args:
            cluster: Where.
            chronicle: That follows the namespace.
            namespace: Whose pods are made.
            at_once: How many are alive at the same time.
            kinds: Made in turn.
            total: How many are to succeed; None: for ever.
        """
        self._core = cluster.core
        self._chronicle = chronicle
        self._namespace = namespace
        self._at_once = at_once
        self._kinds = itertools.cycle(kinds)
        self._numbers = itertools.count()
        self._left = total
        self._open = threading.Event()
        self._is_ending = threading.Event()
        self._news = threading.Event()
        self._alive: set[str] = set()
        self._over: list[Story] = []
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="churn")
        chronicle.told.append(self._told)

    def __enter__(self) -> Self:
        """Begin."""
        self._open.set()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Create no more; what is there stays."""
        self._is_ending.set()
        self._news.set()
        self._thread.join()

    def pause(self) -> None:
        """Create no more until `go_on`."""
        self._open.clear()

    def go_on(self) -> None:
        """Create again."""
        self._open.set()
        self._news.set()

    def stories(self) -> list[Story]:
        """Of all pods that we have made."""
        return [
            story
            for story in self._chronicle.stories()
            if story.pod["metadata"].get("labels", {}).get("part") == LABELS["part"]
        ]

    def succeeded_count(self) -> int:
        """How many have come to a good end."""
        return sum(story.phase == "Succeeded" for story in self.stories())

    def wait_succeeded(self, count: int, within_s: float) -> None:
        """Wait until so many more have come to a good end."""
        wanted = self.succeeded_count() + count
        until(
            lambda: self.succeeded_count() >= wanted,
            f"{count} more short pods ended well",
            within_s=within_s,
        )

    def wait_idle(self, within_s: float) -> None:
        """Wait until none of ours is left; `pause` before."""
        until(
            lambda: not self._alive and not self._over,
            lambda_text(self._alive),
            within_s=within_s,
        )

    def _told(self, story: Story) -> None:
        # In the chronicle's thread: what has to be done is done in ours.
        with self._lock:
            if story.is_over and story.name in self._alive:
                self._alive.discard(story.name)
                if not story.is_gone:
                    self._over.append(story)
                if self._left is not None and story.phase == "Succeeded":
                    self._left -= 1
                self._news.set()

    def _run(self) -> None:
        while not self._is_ending.is_set():
            self._news.clear()
            try:
                if not (self._clear() or self._create()):
                    self._news.wait(0.2)
            except _OUTAGES:
                time.sleep(0.3)
            except kubernetes.client.ApiException as error:
                if error.status < 500 and error.status != 429:
                    raise
                time.sleep(0.3)

    def _clear(self) -> bool:
        with self._lock:
            if not self._over:
                return False
            story = self._over[0]
        try:
            self._core.delete_namespaced_pod(
                story.name,
                self._namespace,
                grace_period_seconds=0,
                _request_timeout=5,
                _preload_content=False,
            )
        except kubernetes.client.ApiException as error:
            if error.status != 404:
                raise
        with self._lock:
            self._over.remove(story)
        return True

    def _create(self) -> bool:
        with self._lock:
            alive = len(self._alive)
        wanted = self._at_once if self._left is None else min(self._left, self._at_once)
        if not self._open.is_set() or alive >= wanted:
            return False
        name = f"churn-{next(self._numbers)}"
        with self._lock:
            self._alive.add(name)
        try:
            self._core.create_namespaced_pod(
                self._namespace,
                body(name, next(self._kinds)),
                _request_timeout=5,
                _preload_content=False,
            )
        except BaseException:
            # It may be there all the same; then the chronicle tells of it, and it is
            # nobody's: its end is waited for by whoever empties the namespace.
            with self._lock:
                self._alive.discard(name)
            raise
        return True


def body(name: str, kind: Kind) -> dict[str, Any]:
    """A pod of a kind."""
    containers = [
        witness.container(f"c{number}", chips, life=kind.life)
        for number, chips in enumerate(kind.chips)
    ]
    first = [witness.container("init", kind.init_chips, life="0.2")]
    rest: dict[str, Any] = {"initContainers": first} if kind.init_chips else {}
    return witness.pod(name, *containers, labels=LABELS, **rest)


def lambda_text(alive: set[str]) -> str:
    return f"short pods ended: {sorted(alive)}"
