"""Shapes of pods, and which unconfirmed pods may be on a node at the same time.

An Allocate call does not name its pod, so unconfirmed pods differ by count alone.
Two of them may be on one node only if their shapes are equal or share no count.
Agent and extender must agree, so this module alone decides it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum


class ContainerKind(StrEnum):
    """Kind of a container by its life cycle; the value is the journal's word."""

    INIT = "init"
    SIDECAR = "sidecar"
    APP = "app"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerNeed:
    """Container that asks for the resource."""

    name: str
    kind: ContainerKind
    #: number of chips, at least 1
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Properties of a pod that decide whether it may get the chips of another pod."""

    resource: str
    #: (kind, chips) of each container that asks, in the order of admission: init
    #: containers and sidecars as in the pod, then app containers
    needs: tuple[tuple[ContainerKind, int], ...]
    #: whether a container mounts the chips of the pod's annotation by itself
    reads_annotation: bool = False
    #: (annotation, value) of each annotation that changes the choice of chips, by name
    choice: tuple[tuple[str, str], ...] = ()
    #: role of the pod in its job; "" for a pod that is its own job
    role: str = ""
    #: number of chips that the pod occupies at once
    total: int = field(init=False, repr=False, compare=False)
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Compute total and hash once, since every decision reads them."""
        object.__setattr__(self, "total", total(self.needs))
        key = self.resource, self.needs, self.reads_annotation, self.choice, self.role
        object.__setattr__(self, "_hash", hash(key))

    def __hash__(self) -> int:
        """Return the hash of all fields that make shapes equal."""
        return self._hash


def total(needs: Iterable[tuple[ContainerKind, int]]) -> int:
    """Return the number of chips that a pod occupies at once.

    This is the larger of two numbers: the sum of all app containers and sidecars, and
    the largest sum of an init container and the sidecars that started before it.

    Args:
        needs: Kind and chips of each container, in the order of admission.

    Source:
        Kubernetes, "Sidecar Containers", resource sharing within containers.
    """
    lasting = peak = 0
    for kind, count in needs:
        if kind is ContainerKind.INIT:
            peak = max(peak, lasting + count)
        else:
            lasting += count
    return max(peak, lasting)


def conflict(one: Shape, other: Shape) -> bool:
    """Return whether two unconfirmed pods must not be on one node.

    They must not if an Allocate could be for either pod and the pods' chips differ.
    Then some count occurs in both shapes, and either the shapes differ, or the pods
    read their annotations by themselves and so cannot use each other's chips.
    """
    if one.resource != other.resource:
        return False
    if one == other and not one.reads_annotation:
        return False
    return not {n for _, n in one.needs}.isdisjoint(n for _, n in other.needs)


def refusal(shape: Shape) -> str | None:
    """Return why no node can serve a pod of this shape, or None.

    Only reasons that hold on every node and product. Whether the sum is legal depends
    on the product (`chips.find_reason`).
    """
    if all(kind is ContainerKind.INIT for kind, _ in shape.needs):
        return "NPUs in init containers only: which pod has them can never be confirmed"
    total_chips = total(shape.needs)
    if shape.reads_annotation and any(count != total_chips for _, count in shape.needs):
        return (
            "a container that reads its chips from the annotation gets all "
            f"{total_chips} of the pod, but another number is asked for"
        )
    return None
