"""What is: pods, mounts and nodes as API server, kubelets and plugins tell.

Chips are physical ids, ascending.
"""

from collections.abc import Mapping
from dataclasses import dataclass

Chips = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFacts:
    """A pod as the API server has it."""

    uid: str
    name: str
    #: "" while it is pending
    node: str
    phase: str
    #: what it asks for
    count: int
    #: by huawei.com/Ascend910
    claimed: Chips
    #: by huawei.com/AscendReal
    real: Chips
    #: whether predicate-time says that it has been served
    is_confirmed: bool
    #: by its configuration: the devices, and the address of its node
    configured: Chips = ()
    host_ip: str = ""
    #: why it failed, if it did
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A running container, as the runtime made it."""

    node: str
    pod_uid: str
    pod: str
    #: whose ids the kubelet has counted for it
    ids: Chips
    #: what it really sees
    chips: Chips


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What bind wrote on a pod, at the moment of binding."""

    pod: str
    node: str
    chips: Chips
    predicate_time: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """A node, as three sources tell."""

    name: str
    #: Node object, status; the address is its InternalIP
    address: str
    capacity: int
    allocatable: int
    #: ids that the kubelet takes for healthy, by pod-resources
    listed: Chips
    #: ConfigMap
    available: Chips
    unhealthy: Chips
    recovering: Chips
    held: Chips

    @property
    def broken(self) -> Chips:
        """Chips that its ConfigMap calls unhealthy or recovering."""
        return tuple(sorted({*self.unhealthy, *self.recovering}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Everything at one moment."""

    nodes: tuple[NodeFacts, ...]
    pods: tuple[PodFacts, ...]
    mounts: tuple[Mount, ...]

    def pod(self, name: str) -> PodFacts:
        """Return the pod of that name."""
        return next(pod for pod in self.pods if pod.name == name)

    def node(self, name: str) -> NodeFacts:
        """Return the node of that name."""
        return next(node for node in self.nodes if node.name == name)

    def mounted(self, uid: str) -> Chips:
        """Return the chips that a pod's containers see, with repetitions."""
        seen = [m.chips for m in self.mounts if m.pod_uid == uid]
        return tuple(sorted(chip for chips in seen for chip in chips))


#: {pod uid: what bind wrote}
Choices = Mapping[str, Choice]
