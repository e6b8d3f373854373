"""CPU, memory and pod places: requested by pods, and still available on nodes.

A node has as many pod places as it may have pods: `pods` in the Node's allocatable.
Each pod uses one place.

The extender plans all pods of a job at once, several of them perhaps on one node. It
must therefore check that their requests fit together. kube-scheduler checks only one
pod at a time.

The request of a pod is the larger of two amounts, plus the overhead of the pod. The
first amount is the sum of all app containers and sidecars. The second is the largest
sum of an init container and the sidecars before it. What the pod requests as a whole
(`spec.resources`) takes the place of this, for CPU and memory separately.
"""

from collections.abc import Collection, Iterable, KeysView, Mapping
from functools import lru_cache
from typing import NamedTuple

from kube.objects import Container, Pod, Quantity
from scheduler_core.wire import quantities
from scheduler_core.wire.quantities import QuantityError


class Resources(NamedTuple):
    """Amounts of CPU, memory and pods: requested by pods, or offered by a node."""

    #: millicores
    cpu: int = 0
    #: bytes
    memory: int = 0
    pods: int = 1

    def times(self, within: "Resources") -> int:
        """Return how many pods fit into `within` if each pod requests `self`."""
        fitting: int | None = None
        for requested, available in zip(self, within, strict=True):
            if requested > 0 and (fitting is None or available // requested < fitting):
                fitting = available // requested
        return max(fitting or 0, 0)

    def plus(self, other: "Resources") -> "Resources":
        """Return `self` + `other`, field by field."""
        return Resources(
            self.cpu + other.cpu, self.memory + other.memory, self.pods + other.pods
        )

    def minus(self, other: "Resources") -> "Resources":
        """Return `self` - `other`, field by field; a field may become negative."""
        return Resources(
            self.cpu - other.cpu, self.memory - other.memory, self.pods - other.pods
        )

    def most(self, other: "Resources") -> "Resources":
        """Return the larger of `self` and `other` in each field."""
        return Resources(*map(max, self, other))


NOTHING = Resources(0, 0, 0)
_ZERO = quantities.Quantity(0)
#: Request of a pod that names no resource: one pod place.
ONE_POD = Resources()
#: More than any node has; small enough to be added without overflow.
_MUCH = 2**62
#: Offer of a node without limits.
UNBOUNDED = Resources(_MUCH, _MUCH, _MUCH)


def pod_requests(pod: Pod) -> Resources:
    """Return the CPU and memory that a pod requests, with 1 in the field `pods`.

    Amounts are rounded up to millicores and bytes.
    """
    spec = pod.spec
    lasting = peak = NOTHING
    for container in spec.init_containers or ():
        amounts = _of_container(container)
        if container.restart_policy == "Always":
            lasting = lasting.plus(amounts)
        else:
            peak = peak.most(lasting.plus(amounts))
    for container in spec.containers or ():
        lasting = lasting.plus(_of_container(container))
    total = _of_pod(pod, peak.most(lasting) if spec.init_containers else lasting)
    if spec.overhead:
        total = total.plus(_amounts(spec.overhead))
    return Resources(total.cpu, total.memory)


def _of_pod(pod: Pod, of_containers: Resources) -> Resources:
    """Return what a pod requests as a whole, if it says so, else its containers.

    The API server fills in the requests of pods that state limits only, but not in
    templates. Where containers request nothing, the limit is the request.
    """
    resources = pod.spec.resources
    if resources is None:
        return of_containers
    requests, limits = resources.requests or {}, resources.limits or {}
    requested, limit = _amounts(requests), _amounts(limits)
    return Resources(
        requested.cpu if "cpu" in requests else of_containers.cpu or limit.cpu,
        requested.memory
        if "memory" in requests
        else of_containers.memory or limit.memory,
        0,
    )


def node_allocatable(allocatable: Mapping[str, Quantity]) -> Resources:
    """Return the CPU, memory and number of pods in a Node's allocatable.

    A resource that `allocatable` does not name counts as unlimited.
    """
    offered = _amounts(allocatable)
    return Resources(
        offered.cpu if "cpu" in allocatable else _MUCH,
        offered.memory if "memory" in allocatable else _MUCH,
        _amount(allocatable["pods"]).rounded_up if "pods" in allocatable else _MUCH,
    )


class RequestedResources:
    """Requests of each living pod, and the total of each node's bound pods."""

    def __init__(self) -> None:
        #: {uid: (node, requests)}; the node is "" before the pod is bound
        self._pods: dict[str, tuple[str, Resources]] = {}
        #: {node: sum of its pods' requests}
        self._nodes: dict[str, Resources] = {}
        #: grows when the sum of some node changes
        self.version = 0

    def put(self, uid: str, node: str, ask: Resources) -> None:
        """Add a living pod; if it is stored already, replace its node and requests."""
        if self._pods.get(uid) == (node, ask):
            return
        self.drop(uid)
        self._pods[uid] = (node, ask)
        if node:
            self.version += 1
            self._nodes[node] = self._nodes.get(node, NOTHING).plus(ask)

    def drop(self, uid: str) -> None:
        """Remove a pod that failed, succeeded or was deleted, if it is stored."""
        node, ask = self._pods.pop(uid, ("", NOTHING))
        if node:
            self.version += 1
            remaining = self._nodes[node].minus(ask)
            if remaining == NOTHING:
                del self._nodes[node]
            else:
                self._nodes[node] = remaining

    def ask(self, uid: str) -> Resources:
        """Return the requests of a pod; if it is not stored, only one pod place."""
        return self._pods.get(uid, ("", ONE_POD))[1]

    def at(self, uid: str) -> tuple[str, Resources] | None:
        """Return (node, requests) of a pod; None if the pod is not stored."""
        return self._pods.get(uid)

    def uids(self) -> KeysView[str]:
        """Return the UIDs of all stored pods."""
        return self._pods.keys()

    def of(self, node: str) -> Resources:
        """Return the sum of the requests of all pods bound to a node."""
        return self._nodes.get(node, NOTHING)


class RequestsWithout:
    """View of the requests as if some pods were not stored.

    The pods and their requests must not change while the view is used.

    Cost:
        To create: a step for each of these pods.
    """

    __slots__ = ("_freed", "_gone_uids", "_requests")

    def __init__(
        self, requests: RequestedResources, gone_uids: Collection[str]
    ) -> None:
        self._requests = requests
        self._gone_uids = frozenset(gone_uids)
        #: {node: sum of the requests of its gone pods}
        self._freed: dict[str, Resources] = {}
        for uid in self._gone_uids:
            node, ask = requests.at(uid) or ("", NOTHING)
            if node:
                self._freed[node] = self._freed.get(node, NOTHING).plus(ask)

    def ask(self, uid: str) -> Resources:
        """Return the requests of a pod; if it is not stored, only one pod place."""
        return ONE_POD if uid in self._gone_uids else self._requests.ask(uid)

    def of(self, node: str) -> Resources:
        """Return the sum of the requests of all pods bound to a node."""
        requested = self._requests.of(node)
        freed = self._freed.get(node)
        return requested if freed is None else requested.minus(freed)


def sum_resources(asks: Iterable[Resources]) -> Resources:
    """Return the sum of these requests, field by field."""
    result = NOTHING
    for ask in asks:
        result = result.plus(ask)
    return result


def _of_container(container: Container) -> Resources:
    limits = container.resources.limits or {}
    requests = container.resources.requests or {}
    return _cpu_and_memory(
        requests.get("cpu", limits.get("cpu", 0)),
        requests.get("memory", limits.get("memory", 0)),
    )


def _amounts(text: Mapping[str, Quantity]) -> Resources:
    """Return CPU and memory, without pods, from a Kubernetes resource list."""
    return _cpu_and_memory(text.get("cpu", 0), text.get("memory", 0))


# The pods of a cluster come from few templates.
@lru_cache(maxsize=4096)
def _cpu_and_memory(cpu: Quantity, memory: Quantity) -> Resources:
    milli = _amount(cpu).milli
    return Resources(min(milli, quantities.MOST), _amount(memory).rounded_up, 0)


def _amount(quantity: Quantity) -> quantities.Quantity:
    """Return a quantity; 0 for a malformed or negative one."""
    try:
        amount = quantities.parse(quantity)
    except QuantityError:
        return _ZERO
    return amount if amount.milli > 0 else _ZERO
