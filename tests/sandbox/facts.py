"""Pods, mounts and nodes as the sandbox's checks see them: all well by default."""

from sandbox.inspect.facts import Chips, Choice, Cluster, Mount, NodeFacts, PodFacts

ALL = tuple(range(8))
ADDRESS = "192.0.2.1"


def node(name: str = "n", *, held: Chips = (), unhealthy: Chips = ()) -> NodeFacts:
    healthy = tuple(chip for chip in ALL if chip not in unhealthy)
    return NodeFacts(
        name=name,
        address=ADDRESS,
        capacity=8,
        allocatable=len(healthy),
        listed=healthy,
        available=tuple(chip for chip in healthy if chip not in held),
        unhealthy=unhealthy,
        recovering=(),
        held=held,
    )


def pod(name: str, *chips: int, on: str = "n") -> PodFacts:
    return PodFacts(
        uid=f"uid-{name}",
        name=name,
        node=on,
        phase="Running",
        count=len(chips),
        claimed=chips,
        real=chips,
        is_confirmed=True,
        configured=chips,
        host_ip=ADDRESS,
    )


def mount(name: str, *chips: int, ids: Chips = (), on: str = "n") -> Mount:
    return Mount(
        node=on, pod_uid=f"uid-{name}", pod=name, ids=ids or chips, chips=chips
    )


def choice(name: str, *chips: int, time: int = 0, on: str = "n") -> Choice:
    return Choice(pod=name, node=on, chips=chips, predicate_time=time)


def cluster(*parts: NodeFacts | PodFacts | Mount) -> Cluster:
    return Cluster(
        nodes=tuple(part for part in parts if isinstance(part, NodeFacts)),
        pods=tuple(part for part in parts if isinstance(part, PodFacts)),
        mounts=tuple(part for part in parts if isinstance(part, Mount)),
    )
