"""What does the scheduler believe about nodes and pods?

What the API server told, and on top the pods that it has sent to a node itself
but not yet seen there: assumed pods. Thanks to them the next pod can be placed
before the last one is bound.
"""

from dataclasses import dataclass, field

from sandbox.apiclient import Changed, Event, Listed, Object
from sandbox.pods import Pod
from sandbox.scheduler.fit import Load


@dataclass(slots=True)
class Cluster:
    """Nodes, pods on them, assumed pods.

    Protects: a pod counts on one node at most, and once.
    """

    #: {name: Node object}
    nodes: dict[str, Object] = field(default_factory=dict)
    #: {uid: (pod, node)}
    _bound: dict[str, tuple[Pod, str]] = field(default_factory=dict)
    _assumed: dict[str, tuple[Pod, str]] = field(default_factory=dict)

    def assume(self, pod: Pod, node: str) -> None:
        """Count a pod on the node that it will be bound to."""
        self._assumed[pod.uid] = (pod, node)

    def forget(self, uid: str) -> None:
        """Take an assumption back; a pod that is seen on a node stays."""
        self._assumed.pop(uid, None)

    def bound(self, pod: Pod, node: str) -> None:
        """Count a pod on the node where the API server shows it."""
        self._assumed.pop(pod.uid, None)
        self._bound[pod.uid] = (pod, node)

    def gone(self, uid: str) -> None:
        """Count a pod no more: it has ended or was deleted."""
        self._assumed.pop(uid, None)
        self._bound.pop(uid, None)

    def is_placed(self, uid: str) -> bool:
        """Whether the pod is on a node or on its way to one."""
        return uid in self._bound or uid in self._assumed

    def node_of(self, uid: str) -> str:
        """Return where the API server shows a pod; empty: nowhere."""
        return self._bound[uid][1] if uid in self._bound else ""

    def loads(self) -> dict[str, Load]:
        """Return what the pods of each node ask for: {node: load}."""
        counts: dict[str, int] = dict.fromkeys(self.nodes, 0)
        requests: dict[str, dict[str, int]] = {name: {} for name in self.nodes}
        for pod, node in (self._assumed | self._bound).values():
            if node not in counts:
                continue
            counts[node] += 1
            for resource, count in pod.requests.items():
                requests[node][resource] = requests[node].get(resource, 0) + count
        return {
            name: Load(pods=count, requests=requests[name])
            for name, count in counts.items()
        }


def changes(known: dict[str, Object], event: Event) -> list[tuple[Object, bool]]:
    """Return what an event of a list-watch changes: (object, whether it is gone)."""
    match event:
        case Changed(item=item, gone=gone):
            uid = item["metadata"]["uid"]
            known.pop(uid, None)
            if not gone:
                known[uid] = item
            return [(item, gone)]
        case Listed(items=items):
            listed = {item["metadata"]["uid"]: item for item in items}
            lost = [item for uid, item in known.items() if uid not in listed]
            known.clear()
            known.update(listed)
            return [(item, True) for item in lost] + [(item, False) for item in items]


def matters(before: Object | None, after: Object) -> bool:
    """Whether a change of a Node can make a pod fit (eventhandlers.go)."""
    if before is None:
        return True

    def view(node: Object) -> tuple[object, ...]:
        meta, spec, status = node["metadata"], node.get("spec"), node.get("status")
        conditions = [
            (c.get("type"), c.get("status"))
            for c in (status or {}).get("conditions") or ()
        ]
        allocatable = (status or {}).get("allocatable")
        return (
            meta.get("labels"),
            meta.get("annotations"),
            spec,
            allocatable,
            conditions,
        )

    return view(before) != view(after)
