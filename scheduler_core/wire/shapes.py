"""Which pods may be taken for each other, until it is known who is who.

Allocate does not say for which pod it is. Two pods whose chips have not been
confirmed yet can be told apart by count alone, so they may wait on one node only if
they are equal in all that matters, or share no count at all. Agent and extender ask
this module, and nothing else decides it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum


class ContainerKind(StrEnum):
    """What the kubelet does with a container; the value is the journal's word."""

    INIT = "init"
    SIDECAR = "sidecar"
    APP = "app"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerNeed:
    """One container that asks for the resource."""

    name: str
    kind: ContainerKind
    #: chips, 1 or more
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """All of a pod that makes a difference to who may get whose chips."""

    resource: str
    #: kind and chips of each container that asks, in the order of admission: init
    #: containers and sidecars as in the pod, then app containers
    needs: tuple[tuple[ContainerKind, int], ...]
    #: whether a container takes its chips from the pod's annotation by itself
    reads_annotation: bool = False
    #: (annotation, value) of each annotation that changes the choice, by name
    choice: tuple[tuple[str, str], ...] = ()
    #: the pod's role in its job; "" for a pod that is its own job
    role: str = ""
    #: chips that the pod occupies at once
    total: int = field(init=False, repr=False, compare=False)
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Work out what every decision asks for, once."""
        object.__setattr__(self, "total", total(self.needs))
        key = self.resource, self.needs, self.reads_annotation, self.choice, self.role
        object.__setattr__(self, "_hash", hash(key))

    def __hash__(self) -> int:
        """Of all that makes shapes equal."""
        return self._hash


def total(needs: Iterable[tuple[ContainerKind, int]]) -> int:
    """How many chips a pod occupies at once.

    The larger of: all app containers and sidecars together; and, for each init
    container, its count and the sidecars that started before it.

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
    """Whether two pods, both not confirmed, must not wait on one node.

    They must not when an Allocate could be meant for either and it matters which:
    some count occurs in both, and they differ, or they are equal but read their
    annotations by themselves, so that no other pod's chips can be theirs.
    """
    if one.resource != other.resource:
        return False
    if one == other and not one.reads_annotation:
        return False
    return not {n for _, n in one.needs}.isdisjoint(n for _, n in other.needs)


def refusal(shape: Shape) -> str | None:
    """Why a pod of this shape can be served nowhere, or None.

    Only what holds on every node and product; whether the sum is legal is a matter
    of the product (`chips.why_not`).
    """
    if all(kind is ContainerKind.INIT for kind, _ in shape.needs):
        return "NPUs in init containers only: who got them can never be confirmed"
    whole = total(shape.needs)
    if shape.reads_annotation and any(count != whole for _, count in shape.needs):
        return (
            "a container that reads its chips from the annotation gets all "
            f"{whole} of the pod, but another number is asked for"
        )
    return None
