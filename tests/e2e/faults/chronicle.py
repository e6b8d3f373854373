"""Everything that the API server ever said of the pods of a namespace."""

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Self

import kubernetes.client
import urllib3.exceptions

from tests.e2e.commands import OUTAGES, until
from tests.e2e.namespaces import Namespace
from tests.e2e.stages import CannotError

#: Of one watch; a new one begins after it, or sooner if the server goes away.
_WATCH_S = 30
_EVERY_S = 0.02


@dataclass(slots=True, kw_only=True)
class Story:
    """What is known of one pod, up to its end."""

    uid: str
    name: str
    #: as it was seen last, also after it is gone
    pod: dict[str, Any]
    is_gone: bool = False
    #: annotation of the moment in which it was seen bound
    bound_claim: str = ""
    #: monotonic time at which each phase was first seen
    phases: dict[str, float] = field(default_factory=dict)

    @property
    def phase(self) -> str:
        """Pending, Running, Succeeded or Failed."""
        return str(self.pod.get("status", {}).get("phase", "Pending"))

    @property
    def is_over(self) -> bool:
        """Whether it runs no more."""
        return self.is_gone or self.phase in {"Succeeded", "Failed"}

    @property
    def annotations(self) -> dict[str, str]:
        """As they were seen last."""
        found: dict[str, str] = self.pod["metadata"].get("annotations") or {}
        return found

    @property
    def rejection(self) -> str:
        """Why the kubelet rejected it; "" if it did not."""
        status = self.pod.get("status", {})
        if status.get("phase") != "Failed" or not status.get("reason"):
            return ""
        return f"{status['reason']}: {status.get('message', '')}"


class Chronicle:
    """Follows the pods of a namespace. Protects their stories."""

    def __init__(self, namespace: Namespace) -> None:
        """Nothing is followed until it is entered."""
        self._list = namespace.cluster.core.list_namespaced_pod
        self._namespace = namespace.name
        self._stories: dict[str, Story] = {}
        self._lock = threading.Lock()
        self._is_ending = threading.Event()
        self._listed = threading.Event()
        self._version = ""
        #: monotonic time at which a pod last came, went on or went
        self.moved_at = time.monotonic()
        self._thread = threading.Thread(target=self._follow, name="chronicle")
        #: told each story that has changed; called in our thread
        self.told: list[Callable[[Story], None]] = []

    def __enter__(self) -> Self:
        """Follow."""
        self._thread.start()
        if not self._listed.wait(60):
            raise CannotError(f"the pods of {self._namespace} cannot be listed")
        return self

    def __exit__(self, *_: object) -> None:
        """Stop following."""
        self._is_ending.set()
        self._thread.join()

    def stories(self) -> list[Story]:
        """All of them, in the order in which they were first seen."""
        with self._lock:
            return list(self._stories.values())

    def named(self, name: str) -> list[Story]:
        """All pods that ever had a name."""
        return [story for story in self.stories() if story.name == name]

    def wait(
        self, told: Callable[[Story], bool], name: str, within_s: float = 120
    ) -> Story:
        """Wait until something is true of the pod of that name, be it not seen yet.

        Those that have gone already are other pods; while one still goes, and another
        is to come under its name, use `wait_uid`.
        """
        before = {story.uid for story in self.named(name) if story.is_gone}
        return self._wait(
            lambda story: story.name == name and story.uid not in before,
            told,
            f"pod {name}",
            within_s,
        )

    def wait_uid(
        self, told: Callable[[Story], bool], uid: str, within_s: float = 120
    ) -> Story:
        """Wait until something is true of this one pod, be it not seen yet."""
        return self._wait(
            lambda story: story.uid == uid, told, f"pod with UID {uid}", within_s
        )

    def _wait(
        self,
        is_meant: Callable[[Story], bool],
        told: Callable[[Story], bool],
        what: str,
        within_s: float,
    ) -> Story:
        seen: list[Story] = []

        def is_told() -> bool:
            seen[:] = [story for story in self.stories() if is_meant(story)][:1]
            return bool(seen) and told(seen[0])

        until(
            is_told,
            lambda: f"{what}; it is {in_words(seen[0]) if seen else 'never seen'}",
            within_s=within_s,
            every_s=_EVERY_S,
        )
        return seen[0]

    def _follow(self) -> None:
        while not self._is_ending.is_set():
            try:
                if not self._version:
                    self._take_list()
                    self._listed.set()
                # From where the last one ended: a pod that came and went between two
                # lists would be missed.
                for event in self._events(self._version):
                    self._take(event["object"], is_gone=event["type"] == "DELETED")
                    self._version = event["object"]["metadata"]["resourceVersion"]
            except kubernetes.client.ApiException:
                self._version = ""  # most likely it is too long ago
                self._is_ending.wait(0.3)
            except OUTAGES:
                self._is_ending.wait(0.3)

    def _take_list(self) -> None:
        answer = self._list(self._namespace, _preload_content=False, _request_timeout=5)
        document = json.loads(answer.data)
        uids = set()
        for pod in document["items"]:
            uids.add(pod["metadata"]["uid"])
            self._take(pod, is_gone=False)
        for story in self.stories():
            if story.uid not in uids and not story.is_gone:
                self._take(story.pod, is_gone=True)
        self._version = str(document["metadata"]["resourceVersion"])

    def _events(self, version: str) -> Iterator[dict[str, Any]]:
        answer = self._list(
            self._namespace,
            watch=True,
            resource_version=version,
            timeout_seconds=_WATCH_S,
            _preload_content=False,
            # It may have lost its server; a new one goes on where it ended.
            _request_timeout=(5, 1),
        )
        with contextlib.closing(answer):
            rest = b""
            begun = time.monotonic()
            while time.monotonic() < begun + _WATCH_S and not self._is_ending.is_set():
                try:
                    chunk = answer.read1(1 << 20)
                except urllib3.exceptions.ReadTimeoutError:
                    return
                if not chunk:
                    return
                *whole, rest = (rest + chunk).split(b"\n")
                for line in whole:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        raise kubernetes.client.ApiException(reason=event["object"])
                    yield event

    def _take(self, pod: dict[str, Any], *, is_gone: bool) -> None:
        uid = pod["metadata"]["uid"]
        with self._lock:
            story = self._stories.get(uid)
            before = None if story is None else _standing(story.pod, story.is_gone)
            if before != _standing(pod, is_gone):
                self.moved_at = time.monotonic()
            if story is None:
                story = Story(uid=uid, name=pod["metadata"]["name"], pod=pod)
                self._stories[uid] = story
            story.pod, story.is_gone = pod, is_gone
            story.phases.setdefault(story.phase, time.monotonic())
            if pod["spec"].get("nodeName") and not story.bound_claim:
                story.bound_claim = story.annotations.get("huawei.com/Ascend910", "")
        for told in self.told:
            told(story)


def _standing(pod: dict[str, Any], is_gone: bool) -> tuple[object, ...]:
    """What scheduler, kubelet and users change of a pod, and our agent does not."""
    status = pod.get("status", {})
    return (
        is_gone,
        pod["metadata"].get("deletionTimestamp"),
        pod["spec"].get("nodeName"),
        status.get("phase"),
        status.get("initContainerStatuses"),
        status.get("containerStatuses"),
    )


def in_words(story: Story) -> str:
    """Everything of it that matters to whoever reads of a failure."""
    return (
        f"{story.name}, {'gone, ' if story.is_gone else ''}{story.phase}, "
        f"rejection {story.rejection!r}, annotations {story.annotations}, "
        f"status {story.pod.get('status')}"
    )
