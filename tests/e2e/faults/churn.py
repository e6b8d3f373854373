"""Many short pods, and an owner who makes a new one for each that was rejected."""

import itertools
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import kubernetes.client

from tests.e2e.commands import OUTAGES, is_outage, until
from tests.e2e.faults import witness
from tests.e2e.faults.chronicle import Chronicle, Story, in_words
from tests.e2e.namespaces import Namespace

LABELS = {"part": "churn"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of short pod."""

    #: chips of each of its containers
    chips: tuple[int, ...]
    #: of a first container that ends before the others begin; 0 for none
    init_chips: int = 0
    life: str = "1"
    #: whether it lives on until it is confirmed
    is_patient: bool = False


#: As they come in turn.
SIMPLE = (Kind(chips=(1,)), Kind(chips=(1,)), Kind(chips=(2,)), Kind(chips=(1,)))


class Churn:
    """Keeps so many pods alive. Protects which of them are alive, and the count."""

    def __init__(
        self,
        chronicle: Chronicle,
        namespace: Namespace,
        *,
        at_once: int,
        kinds: Sequence[Kind] = SIMPLE,
        total: int | None = None,
    ) -> None:
        """Nothing is created until it is entered.

        Args:
            chronicle: That follows the namespace.
            namespace: Whose pods are made.
            at_once: How many are alive at the same time.
            kinds: Made in turn.
            total: How many are to succeed; None: for ever.
        """
        self._core = namespace.cluster.core
        self._chronicle = chronicle
        self._namespace = namespace.name
        self._at_once = at_once
        self._kinds = itertools.cycle(kinds)
        self._numbers = itertools.count()
        self._left = total
        self._open = threading.Event()
        self._is_ending = threading.Event()
        self._news = threading.Event()
        self._alive: set[str] = set()
        self._over: list[Story] = []
        self._ended: set[str] = set()
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
        """Create no more until `go_on`; one that is being created is alive by now."""
        with self._lock:
            self._open.clear()

    def go_on(self) -> None:
        """Create again."""
        self._open.set()
        self._news.set()

    def stories(self) -> list[Story]:
        """Of all pods that we have made."""
        return [story for story in self._chronicle.stories() if _is_short(story)]

    def succeeded_count(self) -> int:
        """How many have come to a good end."""
        return sum(story.phase == "Succeeded" for story in self.stories())

    def wait_succeeded(self, count: int, within_s: float = 180) -> None:
        """Wait until so many more have come to a good end."""
        wanted = self.succeeded_count() + count
        until(
            lambda: self.succeeded_count() >= wanted,
            lambda: f"{count} more short pods ended well; {self._left_text()}",
            within_s=within_s,
        )

    def wait_idle(self) -> None:
        """Wait until none of ours is left; `pause` before."""
        until(
            lambda: not self._alive and not self._over and not self._going(),
            lambda: f"all short pods over; {self._left_text()}",
            within_s=180,
        )

    def _going(self) -> list[Story]:
        """Those that are not over, also those of whose making we heard nothing."""
        return [story for story in self.stories() if not story.is_over]

    def _left_text(self) -> str:
        words = "; ".join(in_words(story) for story in self._going())
        return f"alive: {sorted(self._alive)}, {words}"

    def _told(self, story: Story) -> None:
        # In the chronicle's thread: what has to be done is done in ours.
        if not story.is_over or not _is_short(story):
            return
        with self._lock:
            self._alive.discard(story.name)
            if story.uid in self._ended:
                return
            self._ended.add(story.uid)
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
            except OUTAGES:
                time.sleep(0.3)
            except kubernetes.client.ApiException as error:
                if not is_outage(error):
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
            left = self._at_once if self._left is None else self._left
            if not self._open.is_set() or len(self._alive) >= min(left, self._at_once):
                return False
            name = f"churn-{next(self._numbers)}"
            self._alive.add(name)
        try:
            self._core.create_namespaced_pod(
                self._namespace,
                body(name, next(self._kinds)),
                _request_timeout=5,
                _preload_content=False,
            )
        except BaseException:
            # It may be there all the same; then the chronicle tells of it.
            with self._lock:
                self._alive.discard(name)
            raise
        return True


def body(name: str, kind: Kind) -> dict[str, Any]:
    """A pod of a kind."""
    containers = [
        witness.container(
            f"c{number}", chips, life=kind.life, is_patient=kind.is_patient
        )
        for number, chips in enumerate(kind.chips)
    ]
    first = [witness.container("init", kind.init_chips, life="0.2")]
    rest: dict[str, Any] = {"initContainers": first} if kind.init_chips else {}
    return witness.pod(name, *containers, labels=LABELS, **rest)


def _is_short(story: Story) -> bool:
    labels = story.pod["metadata"].get("labels") or {}
    return bool(labels.get("part") == LABELS["part"])
