"""A pod as pairing sees it: who it is, what it asks for, what is written on it.

The one place that turns containers into needs and a shape, so that the agent (which
reads the kubelet's own pods, too) and the extender never disagree about a pod.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from scheduler_core.products.table import PRODUCTS
from scheduler_core.wire import annotations as keys
from scheduler_core.wire import shapes
from scheduler_core.wire.job_kind_marks import RANK_INDEX
from scheduler_core.wire.shapes import ContainerKind, ContainerNeed, Shape

#: annotations that change which chips are right for a pod
CHOICE_KEYS = ("huawei.com/schedule_policy", "sp-block")
#: the variable by which a container tells the runtime what to mount
VISIBLE_DEVICES = "ASCEND_VISIBLE_DEVICES"

#: resources of whole chips
_LINES = tuple(dict.fromkeys(row.resource for row in PRODUCTS))
_COUNT = re.compile("[0-9]{1,9}")


class RawEnv(NamedTuple):
    """One variable of a container; a value from elsewhere is ""."""

    name: str
    value: str = ""
    #: `valueFrom.fieldRef.fieldPath`, else ""
    field_path: str = ""


class RawContainer(NamedTuple):
    """What we read of a container's specification."""

    name: str
    is_init: bool = False
    restart_policy: str = ""
    limits: Mapping[str, str] = {}
    env: tuple[RawEnv, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PodMeta:
    """What we read of a pod besides its containers."""

    uid: str
    namespace: str
    name: str
    #: the node that it is bound to, or ""
    node: str = ""
    phase: str = "Pending"
    #: the kubelet has said so, of this very pod; it goes before Running
    admitted: bool = False
    deleting: bool = False
    #: "kind/namespace/name" of its controller, or ""
    owner: str = ""
    annotations: Mapping[str, str]
    #: containers that are served by dynamic resource allocation: not ours
    dra: tuple[str, ...] = ()
    #: creationTimestamp as the API server wrote it
    created: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NpuPod(PodMeta):
    """A pod that asks for NPUs; of its annotations only those that we read."""

    #: containers that ask and are ours, in the order of admission
    needs: tuple[ContainerNeed, ...]
    shape: Shape
    #: why it can never be served, or ""
    problem: str = ""

    @property
    def terminal(self) -> bool:
        """Whether it has ended for good."""
        return self.phase in {"Failed", "Succeeded"}

    @property
    def total(self) -> int:
        """Chips that it occupies at once."""
        return self.shape.total


def npu_pod(
    meta: PodMeta, containers: Iterable[RawContainer], resource: str
) -> NpuPod | None:
    """The pod as pairing sees it, or None when it asks us for no `resource`.

    Args:
        meta: The pod without its containers; annotations may be all of them.
        containers: All containers, init containers and app containers each in the
            order of the pod.
        resource: The Kubernetes resource, as `huawei.com/Ascend910`.
    """
    ordered = sorted(containers, key=lambda container: not container.is_init)
    ours = [c for c in ordered if c.name not in meta.dra and _asks(c, resource)]
    if not ours:
        return None
    needs = tuple(
        ContainerNeed(name=c.name, kind=_kind(c), count=int(c.limits[resource]))
        for c in ours
        if _COUNT.fullmatch(c.limits[resource])
    )
    shape = _once(
        Shape(
            resource=resource,
            needs=tuple([(need.kind, need.count) for need in needs]),
            reads_annotation=any(_reads_annotation(c, resource) for c in ordered),
            choice=tuple(
                (key, meta.annotations[key])
                for key in CHOICE_KEYS
                if key in meta.annotations
            ),
        )
    )
    return NpuPod(
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        node=meta.node,
        phase=meta.phase,
        admitted=meta.admitted,
        deleting=meta.deleting,
        owner=meta.owner,
        annotations=_read(meta.annotations, resource),
        dra=meta.dra,
        created=meta.created,
        needs=needs,
        shape=shape,
        problem=_problem(ordered, ours, resource)
        or _mixture(ordered, meta.dra)
        or shapes.refusal(shape)
        or "",
    )


# Values, which never grow old: the thousands of pods of a job share one, and who
# compares them need not look inside.
@lru_cache(maxsize=4096)
def _once(shape: Shape) -> Shape:
    """The first shape that was like it."""
    return shape


def _asks(container: RawContainer, resource: str) -> bool:
    return container.limits.get(resource, "0") != "0"


def _kind(container: RawContainer) -> ContainerKind:
    if not container.is_init:
        return ContainerKind.APP
    if container.restart_policy == "Always":
        return ContainerKind.SIDECAR
    return ContainerKind.INIT


def _read(annotations: Mapping[str, str], resource: str) -> Mapping[str, str]:
    ours = (
        resource,
        keys.PREDICATE_TIME,
        keys.ASCEND_REAL,
        keys.KLT_DEV,
        keys.configuration_key(resource),
        keys.ALLOCATED_ON,
        RANK_INDEX,
        *CHOICE_KEYS,
    )
    return {key: annotations[key] for key in ours if key in annotations}


def _from_annotation(resource: str) -> str:
    return f"metadata.annotations['{resource}']"


def _reads_annotation(container: RawContainer, resource: str) -> bool:
    path = _from_annotation(resource)
    return any(
        env.name == VISIBLE_DEVICES and env.field_path == path for env in container.env
    )


def _mixture(containers: Iterable[RawContainer], dra: Iterable[str]) -> str:
    """Say that a pod asks for whole chips of several product lines, if it does.

    It has one predicate-time, and one annotation of what was mounted.
    """
    asked = {
        name
        for each in containers
        for name in each.limits
        if name in _LINES and each.name not in dra and _asks(each, name)
    }
    if len(asked) < 2:
        return ""
    named = " or ".join(line for line in _LINES if line in asked)
    return f"a pod gets NPUs of one kind: ask for {named}"


def _problem(
    containers: Iterable[RawContainer], ours: Iterable[RawContainer], resource: str
) -> str:
    """What in the specification can never work, whatever the node."""
    for container in ours:
        if not _COUNT.fullmatch(container.limits[resource]):
            return f"{resource} must be a whole number of chips"
    for container in containers:
        for env in container.env:
            if env.name == VISIBLE_DEVICES and env.field_path != _from_annotation(
                resource
            ):
                return f"{VISIBLE_DEVICES} is set by the pod: leave it out"
    return ""
