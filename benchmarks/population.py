"""The objects of a large cluster, as an API server writes them, made when asked for.

No cluster of 100,000 nodes fits into a test machine, but what its API server would
send does: each object is a text that others of its kind share but for names and
numbers. They are as large as those of a real cluster, of which most is not read.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from extender.gang import membership
from scheduler_core.node import chips
from scheduler_core.node.chip_mask import ids_of
from scheduler_core.products.table import ATLAS_800_TRAINING as PRODUCT
from scheduler_core.wire import annotations, deviceinfo, inventory
from scheduler_core.wire.addresses import Address, Addresses
from scheduler_core.wire.deviceinfo import Affinity, DeviceInfo

#: The job of several pods.
JOB = "large"
_CREATED = "2026-11-21T02:12:22Z"
#: A kubelet lists so many images of its node, and a Node is large by them.
_IMAGES = 50
#: Nodes that share the same chips in use.
_PATTERNS = 8

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Population:
    """How many objects of each kind there are.

    Of every node's pods some have a chip each, the others ask for none. The pods of one
    job wait: as many as `gang`, each for a whole node.
    """

    nodes: int
    with_chip: int = 0
    without: int = 0
    gang: int = 0
    #: when the agents have last written, in seconds since 1970
    reported_s: int

    @property
    def pods(self) -> int:
        """All pods, those that wait included."""
        return self.nodes * (self.with_chip + self.without) + self.gang

    def node(self, number: int) -> bytes:
        """A Node."""
        return _node() % {
            b"name": node_name(number).encode(),
            b"version": b"%d" % (number + 1),
            b"ip": b"10.%d.%d.%d" % (number >> 16, number >> 8 & 255, number & 255),
        }

    def report(self, number: int, *, broken: bool = False, version: int = 0) -> bytes:
        """The ConfigMap of a node's agent.

        Args:
            number: The node's.
            broken: Whether all chips of the node have a fault.
            version: Of the object; 0: of the first list.
        """
        held = self.chips_held(number)
        return _report(held, self.reported_s, broken) % {
            b"name": node_name(number).encode(),
            b"version": b"%d" % (version or number + 1),
        }

    def pod(self, number: int) -> bytes:
        """A Pod, those that wait last."""
        each = self.with_chip + self.without
        on, place = divmod(number, each) if each else (self.nodes, 0)
        if on >= self.nodes:
            return self.waiting(number - self.nodes * each)
        held = self.chips_held(on)
        template = _pod(held[place]) if place < len(held) else _pod(None)
        return template % _of_pod(f"pod-{number:07}", number + 1, node_name(on))

    def waiting(
        self, member: int, *, version: int = 0, node: str = "", added: bytes = b"{}"
    ) -> bytes:
        """A pod of the job.

        Args:
            member: Its number, from 0.
            version: Of the object; 0: of the first list.
            node: Where it has been bound to.
            added: The annotations that came with the bind, as JSON.
        """
        known = version or self.pods - self.gang + member + 1
        said = _of_pod(member_name(member), known, node)
        text = _member(self.gang) % (said | {b"rank": b"%d" % member})
        more = added.strip()[1:-1]
        if not more:
            return text
        return text.replace(b'"annotations":{', b'"annotations":{%b,' % more, 1)

    def chips_held(self, number: int) -> tuple[int, ...]:
        """The chips of a node that pods have."""
        first = number % _PATTERNS
        some = (first + step for step in range(self.with_chip))
        return tuple(sorted(chip % PRODUCT.chip_count for chip in some))

    def page(self, kind: str, first: int, most: int) -> Iterator[bytes]:
        """Objects of one kind, so many from that one on.

        Args:
            kind: nodes, pods or configmaps.
            first: Number of the first.
            most: How many.
        """
        make = {"nodes": self.node, "pods": self.pod, "configmaps": self.report}[kind]
        return map(make, range(first, min(first + most, self.count(kind))))

    def count(self, kind: str) -> int:
        """How many objects of one kind there are."""
        return self.pods if kind == "pods" else self.nodes


def node_name(number: int) -> str:
    """The name of a node."""
    return f"node-{number:06}.cluster.example"


def member_name(member: int) -> str:
    """The name of a pod of the job."""
    return f"{JOB}-{member:05}"


def _of_pod(name: str, version: int, node: str) -> dict[bytes, bytes]:
    return {
        b"name": name.encode(),
        b"uid": uid_of(name).encode(),
        b"version": b"%d" % version,
        b"node": node.encode(),
    }


def uid_of(name: str) -> str:
    """The UID of a pod, as long as they are."""
    return f"5f4c6be2-2a71-4669-{name[-8:]:0>17}"


def _template(document: Document) -> bytes:
    """As text, in which <name> is to be filled in."""
    text = json.dumps(document, separators=(",", ":")).replace("%", "%%")
    for key in ("name", "uid", "version", "node", "rank", "ip"):
        text = text.replace(f"<{key}>", f"%({key})b")
    return text.encode()


@cache
def _node() -> bytes:
    quantities = {
        "cpu": "192",
        "memory": "791621632Ki",
        "pods": "110",
        PRODUCT.resource: str(PRODUCT.chip_count),
    }
    chip = Address(ip="<ip>")
    chips_at = Addresses(chips=dict.fromkeys(range(PRODUCT.chip_count), chip))
    listed = inventory.render(chips_at.chips, PRODUCT, chips_at)
    image = {"names": ["registry.example/team/image@sha256:" + "0" * 64] * 2}
    return _template(
        {
            "metadata": _meta(
                "<name>",
                "uid-of-<name>",
                "<version>",
                labels={"kubernetes.io/hostname": "<name>"},
                annotations={inventory.BASE_DEVICE_INFOS: listed},
            ),
            "spec": {"podCIDR": "10.0.0.0/24"},
            "status": {
                "capacity": quantities,
                "allocatable": quantities,
                "conditions": _conditions("Ready", "MemoryPressure", "DiskPressure"),
                "addresses": [{"type": "InternalIP", "address": "<ip>"}],
                "images": [image] * _IMAGES,
            },
        }
    )


@cache
def _report(held: tuple[int, ...], reported_s: int, broken: bool) -> bytes:  # noqa: FBT001  # cached by its values
    everything = PRODUCT.all_chips
    free = ids_of(everything & ~chips.mask_of(held))
    told = DeviceInfo(
        available=() if broken else free,
        unhealthy=ids_of(everything) if broken else (),
        update_time=reported_s,
    )
    texts = deviceinfo.render(told, Affinity(held=held, sequence=1), PRODUCT)
    name = deviceinfo.configmap_name("<name>")
    labels = dict(deviceinfo.LABELS)
    meta = _meta(name, "uid-of-<name>", "<version>", labels=labels)
    meta["namespace"] = deviceinfo.CONFIGMAP_NAMESPACE
    return _template({"metadata": meta, "data": texts})


@cache
def _pod(chip: int | None) -> bytes:
    limits = {"cpu": "1", "memory": "2Gi"}
    said: dict[str, str] = {}
    if chip is not None:
        limits[PRODUCT.resource] = "1"
        claimed = annotations.render_chips((chip,), PRODUCT, lexicographic=True)
        said = {
            PRODUCT.resource: claimed,
            annotations.PREDICATE_TIME: str(annotations.SERVED),
            annotations.ASCEND_REAL: claimed,
            annotations.KLT_DEV: claimed,
        }
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "u"}
    meta = _meta("<name>", "<uid>", "<version>", labels={"app": "a"}, annotations=said)
    meta |= {"namespace": "default", "ownerReferences": [owner | {"controller": True}]}
    return _template(
        {
            "metadata": meta,
            "spec": _spec(limits) | {"nodeName": "<node>"},
            "status": {
                "phase": "Running",
                "startTime": _CREATED,
                "conditions": _conditions("Ready", "Initialized", "PodScheduled"),
            },
        }
    )


@cache
def _member(size: int) -> bytes:
    said = {
        membership.JOB: JOB,
        membership.JOB_SIZE: str(size),
        "batch.kubernetes.io/job-completion-index": "<rank>",
    }
    meta = _meta("<name>", "<uid>", "<version>", labels={"app": JOB}, annotations=said)
    limits = {"cpu": "8", "memory": "64Gi", PRODUCT.resource: str(PRODUCT.chip_count)}
    return _template(
        {
            "metadata": meta | {"namespace": "default"},
            "spec": _spec(limits) | {"nodeName": "<node>"},
            "status": {"phase": "Pending"},
        }
    )


def _meta(
    name: str,
    uid: str,
    version: str,
    *,
    labels: Mapping[str, str],
    annotations: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    part: dict[str, dict[str, str]] = {"f:part": {}, ".": {}}
    fields = {f"f:field{number}": part for number in range(30)}
    return {
        "name": name,
        "uid": uid,
        "resourceVersion": version,
        "creationTimestamp": _CREATED,
        "labels": dict(labels),
        "annotations": dict(annotations or {}),
        "managedFields": [
            {"manager": "kubelet", "operation": "Update", "fieldsV1": fields}
        ],
    }


def _spec(limits: Mapping[str, str]) -> dict[str, Any]:
    mount = {"name": "kube-api-access", "readOnly": True, "mountPath": "/var/run/x"}
    tolerated = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    return {
        "volumes": [{"name": "kube-api-access", "projected": {"sources": [{}] * 3}}],
        "containers": [
            {
                "name": "main",
                "image": "registry.example/team/image:1.0",
                "resources": {"limits": dict(limits), "requests": dict(limits)},
                "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                "volumeMounts": [mount],
                "terminationMessagePath": "/dev/termination-log",
                "imagePullPolicy": "IfNotPresent",
            }
        ],
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "tolerations": [tolerated, tolerated],
        "priority": 0,
        "preemptionPolicy": "PreemptLowerPriority",
    }


def _conditions(*types: str) -> list[dict[str, str]]:
    rest = {"status": "True", "lastTransitionTime": _CREATED, "reason": "AsExpected"}
    return [{"type": each, **rest} for each in types]
