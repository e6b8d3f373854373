"""What do pods ask of a node besides chips, and how many more fit there?

A plan for a whole job puts several pods on one node; the scheduler has looked at CPU
and memory for one of them only. So what all pods ask for is counted here, in the
scheduler's way: the larger of all app containers together and of each init container
with the sidecars before it.
"""

import math
import re
from collections.abc import Iterable, KeysView, Mapping
from decimal import Decimal, Overflow
from functools import lru_cache
from typing import NamedTuple

from kube.objects import Container, Pod, Quantity

_QUANTITY = re.compile(r"([+-]?[0-9]*\.?[0-9]+)(?:[eE]([+-]?[0-9]{1,3})|([a-zA-Z]*))")
_SUFFIXES: Mapping[str, Decimal] = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    "k": Decimal("1e3"),
    "M": Decimal("1e6"),
    "G": Decimal("1e9"),
    "T": Decimal("1e12"),
    "P": Decimal("1e15"),
    "E": Decimal("1e18"),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
    "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
}


class Ask(NamedTuple):
    """What a pod asks for, or what a node has."""

    #: thousandths of a CPU
    cpu: int = 0
    #: bytes
    memory: int = 0
    pods: int = 1

    def times(self, within: "Ask") -> int:
        """How many such pods fit within what is left."""
        fitting: int | None = None
        for asked, left in zip(self, within, strict=True):
            if asked > 0 and (fitting is None or left // asked < fitting):
                fitting = left // asked
        return max(fitting or 0, 0)

    def plus(self, other: "Ask") -> "Ask":
        """Both together."""
        return Ask(
            self.cpu + other.cpu, self.memory + other.memory, self.pods + other.pods
        )

    def minus(self, other: "Ask") -> "Ask":
        """What is left; negative where there was less."""
        return Ask(
            self.cpu - other.cpu, self.memory - other.memory, self.pods - other.pods
        )


NOTHING = Ask(0, 0, 0)
#: The most that Kubernetes counts to.
_MOST = 2**63 - 1
#: What a pod takes that asks for nothing.
A_PLACE = Ask()
#: More than any node has, and still a number that can be counted with.
_MUCH = 2**62
#: A node that names no bounds.
ENDLESS = Ask(_MUCH, _MUCH, _MUCH)


def of_pod(pod: Pod) -> Ask:
    """What a pod asks for, in whole thousandths of a CPU and bytes, rounded up."""
    lasting = peak = (0, 0)
    for each in pod.spec.init_containers or ():
        asked = _of_container(each)
        if each.restart_policy == "Always":
            lasting = _sum(lasting, asked)
        else:
            peak = _most(peak, _sum(lasting, asked))
    for each in pod.spec.containers or ():
        lasting = _sum(lasting, _of_container(each))
    cpu, memory = _sum(_most(peak, lasting), _amounts(pod.spec.overhead or {}))
    return Ask(cpu, memory)


def of_node(allocatable: Mapping[str, Quantity]) -> Ask:
    """What a node offers to pods; a resource that it does not name is no bound."""
    cpu, memory = _amounts(allocatable)
    return Ask(
        cpu if "cpu" in allocatable else _MUCH,
        memory if "memory" in allocatable else _MUCH,
        _units(allocatable["pods"]) if "pods" in allocatable else _MUCH,
    )


class Loads:
    """What living pods ask for, in all and by node.

    Invariant: a node's load is the sum of what its pods ask for.
    """

    def __init__(self) -> None:
        """Know of no pod."""
        #: {uid: (node, what it asks for)}; the node is "" until it is bound
        self._pods: dict[str, tuple[str, Ask]] = {}
        #: {node: sum}
        self._nodes: dict[str, Ask] = {}
        #: grows with each change of what a node has left
        self.version = 0

    def put(self, uid: str, node: str, ask: Ask) -> None:
        """Take in a living pod, or what has become of it."""
        if self._pods.get(uid) == (node, ask):
            return
        self.drop(uid)
        self._pods[uid] = (node, ask)
        if node:
            self.version += 1
            self._nodes[node] = self._nodes.get(node, NOTHING).plus(ask)

    def drop(self, uid: str) -> None:
        """Forget a pod that has ended or gone."""
        node, ask = self._pods.pop(uid, ("", NOTHING))
        if node:
            self.version += 1
            left = self._nodes[node].minus(ask)
            if left == NOTHING:
                del self._nodes[node]
            else:
                self._nodes[node] = left

    def ask(self, uid: str) -> Ask:
        """What a pod asks for; a pod that is not known asks for a place."""
        return self._pods.get(uid, ("", A_PLACE))[1]

    def at(self, uid: str) -> tuple[str, Ask] | None:
        """A pod's node and what it asks for; None for a pod that is not known."""
        return self._pods.get(uid)

    def uids(self) -> KeysView[str]:
        """All pods that are known."""
        return self._pods.keys()

    def of(self, node: str) -> Ask:
        """What the pods of a node ask for."""
        return self._nodes.get(node, NOTHING)

    def __contains__(self, uid: str) -> bool:
        """Whether a pod is known."""
        return uid in self._pods

    def __len__(self) -> int:
        """Count the pods."""
        return len(self._pods)


def total(asks: Iterable[Ask]) -> Ask:
    """All of them together."""
    found = NOTHING
    for ask in asks:
        found = found.plus(ask)
    return found


def _of_container(container: Container) -> tuple[int, int]:
    limits = container.resources.limits or {}
    requests = container.resources.requests or {}
    return _amounts({**limits, **requests})


def _amounts(said: Mapping[str, Quantity]) -> tuple[int, int]:
    """Thousandths of a CPU, and bytes."""
    return _units(said.get("cpu", 0), 1000), _units(said.get("memory", 0))


def _units(quantity: Quantity, per_one: int = 1) -> int:
    return _parse(str(quantity), per_one)


@lru_cache(maxsize=4096)
def _parse(text: str, per_one: int) -> int:
    """A quantity in units of which there are `per_one` to one, rounded up.

    What the API server would not take, it did not send; it counts as nothing. As with
    Kubernetes, there is no more than 64 bits can say.
    """
    found = _QUANTITY.fullmatch(text)
    if found is None:
        return 0
    number, exponent, suffix = found.groups()
    scale = Decimal(10) ** int(exponent) if exponent else _SUFFIXES.get(suffix or "")
    if scale is None:
        return 0
    try:
        amount = Decimal(number) * scale * per_one
    except Overflow:
        return _MOST
    return math.ceil(max(min(amount, Decimal(_MOST)), Decimal(0)))


def _sum(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return one[0] + other[0], one[1] + other[1]


def _most(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return max(one[0], other[0]), max(one[1], other[1])
