"""What is kept of a pod: what is read of it, and once what many pods have in common.

The pods of a cluster come from a few templates, so most of what their objects say is
the same again and again; and most variables of their containers nobody here reads.
With 40,000 pods the extender needs a third less memory so.
"""

from collections.abc import Mapping
from typing import Generic, TypeVar

import msgspec
from msgspec.structs import replace

from kube.objects import Container, OwnerReference, Pod
from scheduler_core.wire.pods import VISIBLE_DEVICES

#: What kubectl notes for itself: the whole manifest, in an annotation.
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
#: Values that are remembered; beyond it a cluster has little in common.
_MOST = 10_000

T = TypeVar("T")


class _Once(Generic[T]):
    """Gives equal values as one. Protects that there are not too many."""

    def __init__(self, most: int) -> None:
        self._most = most
        #: {the value as JSON: the first that was like it}
        self._known: dict[bytes, T] = {}

    def of(self, value: T | None) -> T | None:
        if not value:
            return None
        if len(self._known) >= self._most:
            self._known.clear()  # what is in use stays in use, only not shared
        return self._known.setdefault(msgspec.json.encode(value), value)


class Kept:
    """Owner of what pods share."""

    def __init__(self, *, most: int = _MOST) -> None:
        """Know of nothing in common yet.

        Args:
            most: Values of each kind that are remembered.
        """
        self._labels: _Once[dict[str, str]] = _Once(most)
        self._owners: _Once[list[OwnerReference]] = _Once(most)
        self._containers: _Once[list[Container]] = _Once(most)

    def pod(self, pod: Pod) -> Pod:
        """The pod, as far as the extender reads it."""
        meta, spec = pod.metadata, pod.spec
        return replace(
            pod,
            metadata=replace(
                meta,
                labels=self._labels.of(meta.labels),
                annotations=_annotations(meta.annotations or {}),
                owner_references=self._owners.of(meta.owner_references),
            ),
            spec=replace(
                spec,
                containers=self._containers.of(_read(spec.containers)),
                init_containers=self._containers.of(_read(spec.init_containers)),
            ),
        )


def _annotations(said: Mapping[str, str]) -> dict[str, str] | None:
    return {key: said[key] for key in said if key != LAST_APPLIED} or None


def _read(containers: list[Container] | None) -> list[Container] | None:
    return containers and [_container(each) for each in containers]


def _container(container: Container) -> Container:
    if not container.env:
        return container
    env = [each for each in container.env if each.name == VISIBLE_DEVICES]
    return replace(container, env=env or None)
