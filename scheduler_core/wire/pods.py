"""Pod reduced to what pairing reads: identity, chips of containers, annotations.

This module alone turns containers into needs and a shape.
So the agent, which also reads pods from the kubelet, and the extender always agree.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from scheduler_core.products.lookup import STATIC_PARTS
from scheduler_core.products.table import PRODUCTS
from scheduler_core.wire import annotations as keys
from scheduler_core.wire import shapes
from scheduler_core.wire.job_annotations import RANK_INDEX
from scheduler_core.wire.shapes import ContainerKind, ContainerNeed, Shape

#: annotations that change the choice of chips for a pod
CHOICE_KEYS = ("huawei.com/schedule_policy", "sp-block")
#: environment variable by which a container tells the runtime which chips to mount
VISIBLE_DEVICES = "ASCEND_VISIBLE_DEVICES"
#: values with which the runtime mounts no chip
_NO_DEVICES = frozenset({"", "void"})

#: resources of whole chips, then of parts
_RESOURCES = (*dict.fromkeys(row.resource for row in PRODUCTS), *STATIC_PARTS)
_COUNT = re.compile("[0-9]{1,9}")


class RawEnv(NamedTuple):
    """Environment variable of a container."""

    name: str
    #: None if a source gives it, such as an annotation or a ConfigMap
    value: str | None = ""
    #: `valueFrom.fieldRef.fieldPath`, else ""
    field_path: str = ""


class RawContainer(NamedTuple):
    """Fields of a container's specification that pairing reads."""

    name: str
    is_init: bool = False
    restart_policy: str = ""
    limits: Mapping[str, str] = {}
    env: tuple[RawEnv, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PodMeta:
    """Fields of a pod that pairing reads, without its containers."""

    uid: str
    namespace: str
    name: str
    #: name of the pod's node, or "" before bind
    node: str = ""
    phase: str = "Pending"
    #: whether the kubelet has admitted this very pod; precedes the phase Running
    admitted: bool = False
    deleting: bool = False
    #: "kind/namespace/name" of the pod's controller, or ""
    owner: str = ""
    annotations: Mapping[str, str]
    #: names of containers served by dynamic resource allocation, which are not ours
    dra: tuple[str, ...] = ()
    #: creationTimestamp as the API server writes it
    created: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NpuPod(PodMeta):
    """Pod that asks for NPUs, with only the annotations that pairing reads."""

    #: containers that ask for the resource and are ours, in the order of admission
    needs: tuple[ContainerNeed, ...]
    shape: Shape
    #: reason why the pod can never be served, or ""
    problem: str = ""

    @property
    def terminal(self) -> bool:
        """Whether the pod has ended."""
        return self.phase in {"Failed", "Succeeded"}

    @property
    def total(self) -> int:
        """Number of chips that the pod occupies at once."""
        return self.shape.total


def npu_pod(
    meta: PodMeta, containers: Iterable[RawContainer], resource: str
) -> NpuPod | None:
    """Return the pod as pairing reads it, or None if it asks us for no `resource`.

    Args:
        meta: Pod without its containers; it may have all its annotations.
        containers: All containers; init containers and app containers each in the
            order of the pod.
        resource: Kubernetes resource, such as `huawei.com/Ascend910`.
    """
    admission_order = sorted(containers, key=lambda container: not container.is_init)
    asking = [
        c for c in admission_order if c.name not in meta.dra and _asks_for(c, resource)
    ]
    if not asking:
        return None
    needs = tuple(
        ContainerNeed(
            name=c.name, kind=_container_kind(c), count=int(c.limits[resource])
        )
        for c in asking
        if _COUNT.fullmatch(c.limits[resource])
    )
    shape = _intern_shape(
        Shape(
            resource=resource,
            needs=tuple([(need.kind, need.count) for need in needs]),
            reads_annotation=any(
                _reads_annotation(c, resource) for c in admission_order
            ),
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
        annotations=_select_annotations(meta.annotations, resource),
        dra=meta.dra,
        created=meta.created,
        needs=needs,
        shape=shape,
        problem=_container_problem(admission_order, asking, resource)
        or _mixed_lines_problem(admission_order, meta.dra)
        or shapes.refusal(shape)
        or "",
    )


# The thousands of pods of a job share one shape, which makes comparisons cheap.
@lru_cache(maxsize=4096)
def _intern_shape(shape: Shape) -> Shape:
    """Return the first shape that equals `shape`."""
    return shape


def _asks_for(container: RawContainer, resource: str) -> bool:
    return container.limits.get(resource, "0") != "0"


def _container_kind(container: RawContainer) -> ContainerKind:
    if not container.is_init:
        return ContainerKind.APP
    if container.restart_policy == "Always":
        return ContainerKind.SIDECAR
    return ContainerKind.INIT


def _select_annotations(
    annotations: Mapping[str, str], resource: str
) -> Mapping[str, str]:
    pairing_keys = (
        resource,
        keys.PREDICATE_TIME,
        keys.ASCEND_REAL,
        keys.KLT_DEV,
        keys.configuration_key(resource),
        keys.ALLOCATED_ON,
        keys.MIRROR,
        RANK_INDEX,
        *CHOICE_KEYS,
    )
    return {key: annotations[key] for key in pairing_keys if key in annotations}


def _annotation_field_path(resource: str) -> str:
    return f"metadata.annotations['{resource}']"


def _reads_annotation(container: RawContainer, resource: str) -> bool:
    path = _annotation_field_path(resource)
    return any(
        env.name == VISIBLE_DEVICES and env.field_path == path for env in container.env
    )


def _mixed_lines_problem(containers: Iterable[RawContainer], dra: Iterable[str]) -> str:
    """Return the problem of a pod that asks for chips of several product lines, or "".

    A pod has only one predicate-time and one annotation of mounted chips.
    """
    resources = {
        name
        for container in containers
        for name in container.limits
        if name in _RESOURCES
        and container.name not in dra
        and _asks_for(container, name)
    }
    if len(resources) < 2:
        return ""
    choices = " or ".join(line for line in _RESOURCES if line in resources)
    return f"a pod gets NPUs of one kind: ask for {choices}"


def _container_problem(
    containers: Iterable[RawContainer], asking: Collection[RawContainer], resource: str
) -> str:
    """Return the problem of a specification that can work on no node, or ""."""
    for container in asking:
        if not _COUNT.fullmatch(container.limits[resource]):
            return f"{resource} must be a whole number of chips"
    for container in containers:
        name = container.name
        if container in asking and _sets_devices(container, resource, ()):
            return f"container {name} sets {VISIBLE_DEVICES}: leave it out"
        if _sets_devices(container, resource, _NO_DEVICES):
            return (
                f"container {name} sets {VISIBLE_DEVICES}: "
                "leave it out or set it to void"
            )
    return ""


def _sets_devices(
    container: RawContainer, resource: str, harmless: Collection[str]
) -> bool:
    """Return whether a container would mount other chips than those of its pod.

    Its own variable goes before what the device plugin answers. So a container with
    chips must not set it, and one without chips would mount those of other pods.

    Args:
        harmless: Values that it may have.
    """
    return any(
        env.name == VISIBLE_DEVICES
        and env.field_path != _annotation_field_path(resource)
        and env.value not in harmless
        for env in container.env
    )
