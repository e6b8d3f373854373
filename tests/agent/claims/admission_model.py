"""One pod on its way through the kubelet: how it goes, and what comes of it."""

from dataclasses import dataclass
from typing import Protocol

from scheduler_core.node import chips as chip_sets
from scheduler_core.wire.pods import NpuPod
from scheduler_core.wire.shapes import ContainerKind, ContainerNeed


class PluginError(Exception):
    """The plugin did not answer, or answered with an error."""


class Plugin(Protocol):
    """What the kubelet calls."""

    def prefer(
        self, available: tuple[str, ...], taken: tuple[str, ...], size: int
    ) -> tuple[str, ...]: ...

    def allocate(self, ids: tuple[str, ...]) -> tuple[tuple[str, int], ...]:
        """The pairs of id and chip that are mounted."""


@dataclass(frozen=True)
class Manner:
    """How the kubelet goes about one admission."""

    obeys: bool = True
    seed: int = 0
    rejects: bool = False  # after the last Allocate
    forgets: str = ""  # uid of a pod whose ids it takes for free


@dataclass
class Container:
    """What was mounted into one container."""

    kind: ContainerKind
    mounted: tuple[tuple[str, int], ...]  # id and chip
    alive: bool = True

    @property
    def mask(self) -> int:
        return chip_sets.mask_of({chip for _, chip in self.mounted})


@dataclass
class Admission:
    """One pod on its way."""

    pod: NpuPod
    manner: Manner
    position: int = 0
    asked: tuple[str, ...] = ()
    reusable: frozenset[str] = frozenset()

    @property
    def need(self) -> ContainerNeed:
        return self.pod.needs[self.position]
