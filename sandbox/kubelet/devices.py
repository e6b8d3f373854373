"""Which device ids does the kubelet give to which container?

The device manager's tables and decisions, without any I/O: what has to be
asked of a plugin is yielded as a question, and the driver sends the answer.
Between question and answer the tables may change, as they do in the real one:
it holds no lock while it waits for a plugin, and a `List` of pod-resources in
that gap forgets ids that are being given out.

Follows cm/devicemanager/manager.go function by function, without NUMA
alignment, which the default policy of the topology manager does not use.
"""

import math
import random  # noqa: TID251  # the kubelet's order is random; ours has a seed
from collections.abc import Callable, Generator, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from kubelet_api.deviceplugin.v1beta1 import api_pb2
from sandbox.pods import Container, Pod
from scheduler_core.wire.shapes import ContainerKind

HEALTHY = "Healthy"
#: cm/devicemanager/types.go:125
STOP_GRACE_S = 300.0


class DeviceError(Exception):
    """The kubelet cannot give a container its devices."""


class KubeletPanicError(Exception):
    """The real kubelet would dereference nil here and die."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskPreference:
    """GetPreferredAllocation, if the plugin offers it."""

    resource: str
    available: tuple[str, ...]
    must_include: tuple[str, ...]
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AskAllocate:
    """Allocate, always for one container."""

    resource: str
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preferred:
    """Answer to `AskPreference`; empty where the plugin has no preference."""

    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocated:
    """Answer to `AskAllocate`."""

    responses: tuple[api_pb2.ContainerAllocateResponse, ...]


Question = AskPreference | AskAllocate
Answer = Preferred | Allocated
Procedure = Generator[Question, Answer, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What one container got of one resource."""

    ids: frozenset[str]
    response: api_pb2.ContainerAllocateResponse


@dataclass(slots=True, kw_only=True)
class DeviceTables:
    """Devices, endpoints and assignments of one kubelet.

    Protects: every id in an assignment is in `allocated`, except in the gaps
    in which the real kubelet loses it, too.
    """

    chance: random.Random
    #: false until the first list of pods has been admitted
    sources_ready: bool = False
    #: returns the uids of pods that are neither terminal nor gone
    active: Callable[[], AbstractSet[str]] = frozenset
    #: {(pod uid, container)} running when this kubelet started
    running_at_start: frozenset[tuple[str, str]] = frozenset()
    #: {resource: loop time at which its plugin's stream ended; None while connected},
    #: also of plugins that had registered before the kubelet was restarted
    endpoints: dict[str, float | None] = field(default_factory=dict)
    #: {resource: {id: health}}
    devices: dict[str, dict[str, str]] = field(default_factory=dict)
    healthy: dict[str, set[str]] = field(default_factory=dict)
    unhealthy: dict[str, set[str]] = field(default_factory=dict)
    allocated: dict[str, set[str]] = field(default_factory=dict)
    #: {(pod uid, container, resource): assignment}
    assignments: dict[tuple[str, str, str], Assignment] = field(default_factory=dict)
    #: (pod uid, {resource: ids of its finished init containers})
    reusable: tuple[str, dict[str, set[str]]] = ("", {})

    # -- plugins ---------------------------------------------------------

    def connected(self, resource: str) -> None:
        """Note that a plugin has registered for `resource`."""
        self.endpoints[resource] = None

    def disconnected(self, resource: str, now: float) -> None:
        """Mark every device of a plugin unhealthy whose stream has ended."""
        if resource not in self.endpoints:
            return
        healthy = self.healthy.get(resource, set())
        self.unhealthy.setdefault(resource, set()).update(healthy)
        if resource in self.healthy:
            self.healthy[resource] = set()
        self.endpoints[resource] = now

    def reported(self, resource: str, devices: Mapping[str, str]) -> None:
        """Take a plugin's complete list: {id: health}."""
        self.devices[resource] = dict(devices)
        self.healthy[resource] = {i for i, h in devices.items() if h == HEALTHY}
        self.unhealthy[resource] = set(devices) - self.healthy[resource]

    def capacity(self, now: float) -> tuple[dict[str, int], dict[str, int]]:
        """Return capacity and allocatable, and drop what has been gone too long."""
        for resource in set(self.healthy) | set(self.unhealthy):
            stopped = self.endpoints.get(resource, -math.inf)
            if stopped is not None and now - stopped > STOP_GRACE_S:
                for table in (self.endpoints, self.healthy, self.unhealthy):
                    table.pop(resource, None)
        allocatable = {name: len(ids) for name, ids in self.healthy.items()}
        capacity = {
            name: count + len(self.unhealthy.get(name, ()))
            for name, count in allocatable.items()
        }
        return capacity, allocatable

    # -- pods ------------------------------------------------------------

    def is_plugin_resource(self, resource: str) -> bool:
        """Whether a plugin serves the resource, or did so for some container."""
        return resource in self.healthy or resource in self.allocated

    def forget_inactive(self) -> None:
        """Free the ids of pods that have ended (manager.go:577)."""
        if not self.sources_ready:
            return
        active = self.active()
        ended = [key for key in self.assignments if key[0] not in active]
        if ended:
            for key in ended:
                del self.assignments[key]
            self.recount()

    def recount(self) -> None:
        """Make `allocated` what the assignments say, and nothing else."""
        allocated: dict[str, set[str]] = {}
        for (_, _, resource), assignment in self.assignments.items():
            allocated.setdefault(resource, set()).update(assignment.ids)
        self.allocated = allocated

    def assigned(self, uid: str, container: str) -> dict[str, Assignment]:
        """Return what a container has: {resource: assignment}."""
        return {
            resource: assignment
            for (owner, name, resource), assignment in self.assignments.items()
            if (owner, name) == (uid, container)
        }

    def allocate(self, pod: Pod, container: Container) -> Procedure:
        """Give a container its devices (manager.go:355, 840).

        Raises:
            DeviceError: it cannot have them.
            KubeletPanicError: an id left the plugin's list meanwhile.
        """
        if self.reusable[0] != pod.uid:
            self.reusable = (pod.uid, {})
        reusable = self.reusable[1]
        forgotten = False
        for resource, count in container.limits.items():
            if (container.name, resource) in pod.dra:
                continue
            if not self.is_plugin_resource(resource):
                continue
            if not forgotten:
                self.forget_inactive()
                forgotten = True
            key = (pod.uid, container.name, resource)
            yield from self._allocate(key, count, reusable.get(resource, set()))
        for resource, assignment in self.assigned(pod.uid, container.name).items():
            ids = reusable.setdefault(resource, set())
            if container.kind is ContainerKind.INIT:
                ids |= assignment.ids
            else:
                ids -= assignment.ids

    def _allocate(
        self, key: tuple[str, str, str], count: int, reusable: AbstractSet[str]
    ) -> Procedure:
        resource = key[2]
        ids = yield from self._choose(key, count, reusable)
        if not ids:
            return
        if resource not in self.endpoints:
            self.recount()
            raise DeviceError(f"unknown Device Plugin {resource}")
        try:
            answer = yield AskAllocate(resource=resource, ids=self._shuffled(ids))
        except DeviceError:
            self.recount()
            raise
        if not isinstance(answer, Allocated) or not answer.responses:
            raise DeviceError("no containers return in allocation response ")
        if not ids <= self.devices.get(resource, {}).keys():
            raise KubeletPanicError("invalid memory address or nil pointer dereference")
        self.assignments[key] = Assignment(ids=ids, response=answer.responses[0])

    def _choose(
        self, key: tuple[str, str, str], count: int, reusable: AbstractSet[str]
    ) -> Generator[Question, Answer, frozenset[str]]:
        resource = key[2]
        if not self._needs_more(key, count):
            return frozenset()
        got: set[str] = set()
        if self._take(resource, got, self._shuffled(reusable), count):
            return frozenset(got)
        available = self.healthy[resource] - self.allocated.get(resource, set())
        if len(available) < count - len(got):
            raise DeviceError(
                f"requested number of devices unavailable for {resource}. "
                f"Requested: {count - len(got)}, Available: {len(available)}"
            )
        answer = yield AskPreference(
            resource=resource,
            available=self._shuffled(available | got),
            must_include=self._shuffled(got),
            size=count,
        )
        preferred = answer.ids if isinstance(answer, Preferred) else ()
        liked = self._shuffled(available.intersection(preferred))
        if not self._take(resource, got, liked, count):
            self._take(resource, got, self._shuffled(available), count)
        return frozenset(got)

    def _needs_more(self, key: tuple[str, str, str], count: int) -> bool:
        """Decide whether ids have to be found for `key` (manager.go:598-660)."""
        uid, name, resource = key
        before = self.assignments.get(key)
        had: frozenset[str] = frozenset() if before is None else before.ids
        if before is not None and len(had) != count:
            raise DeviceError(
                f'pod "{uid}" container "{name}" changed request for resource '
                f'"{resource}" from {len(had)} to {count}'
            )
        if not self.sources_ready and key[:2] in self.running_at_start:
            return False
        healthy = self.healthy.get(resource)
        if healthy is None:
            raise DeviceError(f"cannot allocate unregistered device {resource}")
        if not healthy:
            raise DeviceError(
                "no healthy devices present; "
                f"cannot allocate unhealthy devices {resource}"
            )
        if not had <= healthy:
            raise DeviceError(
                "previously allocated devices are no longer healthy; "
                f"cannot allocate unhealthy devices {resource}"
            )
        return before is None and count > 0

    def _take(
        self, resource: str, got: set[str], candidates: Iterable[str], count: int
    ) -> bool:
        """Move candidates into `got` until it holds `count`; say whether it does."""
        allocated = self.allocated.setdefault(resource, set())
        for device in candidates:
            if len(got) == count:
                break
            got.add(device)
            allocated.add(device)
        return len(got) == count

    def _shuffled(self, ids: AbstractSet[str]) -> tuple[str, ...]:
        return tuple(self.chance.sample(sorted(ids), len(ids)))
