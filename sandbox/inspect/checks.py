"""What is wrong with these facts? Nothing, or sentences that say it.

Pure, and ignorant of how the product decides: only of what must hold.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from sandbox.inspect.facts import Chips, Choices, Cluster, Mount, NodeFacts, PodFacts
from sandbox.world import CHIP_COUNT

#: Chips of one HCCS ring of an Atlas 800 training server (MindCluster, "Affinity
#: Scheduling Description", Table 1).
RING_SIZE = 4
_ALL = tuple(range(CHIP_COUNT))

Problems = tuple[str, ...]


class Place(NamedTuple):
    """Where a pod is, and with which chips."""

    node: str
    chips: Chips


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing:
    """Whether containers have what annotations say, and no chip has two owners."""

    wrong: Problems = ()
    doubled: Problems = ()

    @property
    def problems(self) -> Problems:
        """Everything that is wrong."""
        return self.wrong + self.doubled


def registered(nodes: Iterable[NodeFacts]) -> Problems:
    """Check that every node offers all its chips, everywhere."""
    return tuple(
        f"{node.name} should have {what} {expected}, has {found}"
        for node in nodes
        for what, expected, found in (
            ("capacity", CHIP_COUNT, node.capacity),
            ("allocatable", CHIP_COUNT, node.allocatable),
            ("in the kubelet's list", _ALL, node.listed),
            ("available in its ConfigMap", _ALL, node.available),
            ("unhealthy in its ConfigMap", (), node.unhealthy),
        )
        if found != expected
    )


def served(pods: Iterable[PodFacts]) -> Problems:
    """Check that every pod runs, confirmed, with as many chips as it asks for."""
    return tuple(filter(None, map(_unserved, pods)))


def paired(cluster: Cluster) -> Pairing:
    """Compare what every container got with its pod's annotations."""
    wrong = [
        problem
        for pod in cluster.pods
        if pod.node and pod.phase == "Running"
        for problem in _mispaired(pod, cluster.mounted(pod.uid))
    ]
    return Pairing(wrong=tuple(wrong), doubled=doubled(cluster.mounts))


def doubled(mounts: Iterable[Mount]) -> Problems:
    """Check that no chip is in two containers."""
    owners: dict[tuple[str, int], list[str]] = {}
    for mount in mounts:
        for chip in mount.chips:
            owners.setdefault((mount.node, chip), []).append(mount.pod)
    return tuple(
        f"chip {chip} of {node} has {len(pods)} owners: {', '.join(pods)}"
        for (node, chip), pods in sorted(owners.items())
        if len(pods) > 1
    )


def agreed(cluster: Cluster) -> Problems:
    """Compare every node's ConfigMap with what is mounted there."""
    problems = []
    for node in cluster.nodes:
        mounts = [mount for mount in cluster.mounts if mount.node == node.name]
        mounted = {chip for mount in mounts for chip in mount.chips}
        free = tuple(c for c in _ALL if c not in {*mounted, *node.broken})
        problems += [
            f"{node.name}: {what} should be {_text(expected)}, "
            f"its ConfigMap says {_text(found)}"
            for what, expected, found in (
                ("held", tuple(sorted(mounted)), node.held),
                ("available", free, node.available),
            )
            if expected != found
        ]
    return tuple(problems)


def configured(cluster: Cluster) -> Problems:
    """Compare each confirmed pod's configuration with its mounts and its node.

    Operators make rank tables of it.
    """
    addresses = {node.name: node.address for node in cluster.nodes}
    return tuple(
        f"{pod.name}: {what} should be {expected}, its configuration says {found}"
        for pod in cluster.pods
        if pod.phase == "Running" and pod.is_confirmed
        for what, expected, found in (
            ("devices", _text(cluster.mounted(pod.uid)), _text(pod.configured)),
            ("its node's address", addresses[pod.node], pod.host_ip or "none"),
        )
        if expected != found
    )


def as_chosen(cluster: Cluster, choices: Choices) -> Problems:
    """Compare the chip sets mounted on each node with those that bind chose.

    Which of two equal pods got which set does not matter; that a set is mounted
    that nobody chose does, even if every annotation was corrected to it.
    """
    uids = {pod.uid for pod in cluster.pods if pod.node}
    missing = sorted(pod.name for pod in cluster.pods if pod.uid not in choices)
    problems = [f"{name} was never seen with bind's annotations" for name in missing]
    chosen = _sets((c.node, c.chips) for uid, c in choices.items() if uid in uids)
    mounted = _sets((m.node, m.chips) for m in cluster.mounts if m.pod_uid in uids)
    for node in sorted(chosen.keys() | mounted.keys()):
        want, have = chosen.get(node, Counter()), mounted.get(node, Counter())
        if want != have:
            problems.append(
                f"{node}: bind chose {_listed(want - have)}, "
                f"mounted is {_listed(have - want)} instead"
            )
    return tuple(problems)


def cut_off(pod: PodFacts, mounted: Chips) -> Problems:
    """Check that a pod has failed in a way that a person sees, and has nothing."""
    if (pod.phase, bool(pod.message), mounted) == ("Failed", True, ()):
        return ()
    found = f"{pod.phase} ({pod.message or 'no reason'}) with {_text(mounted)}"
    return (f"{pod.name} should be Failed, say why and have no chips, is {found}",)


def given_back(cluster: Cluster, name: str) -> Problems:
    """Check that a node offers each chip that nobody has mounted there."""
    mounted = {c for mount in cluster.mounts if mount.node == name for c in mount.chips}
    free = tuple(chip for chip in _ALL if chip not in mounted)
    node = cluster.node(name)
    return tuple(
        f"{name}: {what} should be {_text(expected)}, is {_text(found)}"
        for what, expected, found in (
            ("available", free, node.available),
            ("held", tuple(sorted(mounted)), node.held),
            ("in the kubelet's list", _ALL, node.listed),
        )
        if expected != found
    )


def unmoved(before: Cluster, after: Cluster, names: Iterable[str]) -> Problems:
    """Check that pods are as they were: phase, node, annotations, mounts."""
    return tuple(
        f"{name} is not as it was: {was} before, {now} after"
        for name in sorted(names)
        if (was := _whole(before, name)) != (now := _whole(after, name))
    )


def placed_well(pods: Iterable[PodFacts]) -> Problems:
    """Check that pods of up to four chips stay in one HCCS ring."""
    return tuple(
        f"{pod.name} has chips {_text(pod.claimed)}, in more than one HCCS ring"
        for pod in pods
        if pod.count <= RING_SIZE
        and len({chip // RING_SIZE for chip in pod.claimed}) > 1
    )


def raced(cluster: Cluster, choices: Choices, admitted: Mapping[str, int]) -> Problems:
    """Check that the race was one: otherwise it has proved nothing.

    Args:
        cluster: Afterwards.
        choices: What bind wrote.
        admitted: {pod name: its place in the order of admission}, per node the
            numbers rise.
    """
    problems = []
    chosen = {(choice.node, choice.chips) for choice in choices.values()}
    if all((mount.node, mount.ids) in chosen for mount in cluster.mounts):
        problems.append("no kubelet took ids of its own choice")
    for node in sorted({choice.node for choice in choices.values()}):
        pods = sorted(
            (c for c in choices.values() if c.node == node and c.pod in admitted),
            key=lambda choice: choice.predicate_time,
        )
        order = [admitted[choice.pod] for choice in pods]
        if len(order) > 1 and order == sorted(order):
            problems.append(f"{node} admitted its pods in the order of scheduling")
    return tuple(problems)


def unhealthy(node: NodeFacts, chips: Chips) -> Problems:
    """Check that kubelet, Node and ConfigMap agree which chips are out of service."""
    listed = tuple(chip for chip in _ALL if chip not in chips)
    found = {
        "kubelet's list": (node.listed, listed),
        "allocatable": (node.allocatable, len(listed)),
        "capacity": (node.capacity, CHIP_COUNT),
        "ConfigMap's unhealthy list": (node.broken, chips),
    }
    return tuple(
        f"{node.name}: {what} should be {expected}, is {have}"
        for what, (have, expected) in found.items()
        if have != expected
    )


def placed(found: Mapping[str, Place], kept: Mapping[str, Place]) -> Problems:
    """Check that each pod has the node and the chips that were kept for it.

    Args:
        found: {pod by its number: where it is}.
        kept: {pod by its number: where it should be}.
    """
    return tuple(
        f"{name} should have {_text(place.chips)} of {place.node}, has "
        + (f"{_text(has.chips)} of {has.node}" if has else "none")
        for name, place in sorted(kept.items())
        if (has := found.get(name)) != place
    )


def stays_pending(pod: PodFacts) -> Problems:
    """Check that a pod has no node, no chips and no failure."""
    if pod.phase == "Pending" and not (pod.node or pod.claimed or pod.real):
        return ()
    found = f"{pod.phase} on {pod.node or 'no node'} with {_text(pod.claimed)}"
    return (f"{pod.name} should be Pending without node and chips, is {found}",)


def not_rechosen(counts: Mapping[str, float | None]) -> Problems:
    """Check that no agent had to choose chips again.

    Args:
        counts: {node: how often}; None where its agent does not count that.
    """
    return tuple(
        f"{node}'s agent "
        + ("does not count re-choices" if count is None else f"chose {count:g} again")
        for node, count in counts.items()
        if count != 0
    )


def summed_up(counts: Mapping[str, int]) -> Problems:
    """Check that what must never happen has never happened.

    Args:
        counts: {what must not happen: how often it did}.
    """
    return tuple(f"{what}: {count}, not 0" for what, count in counts.items() if count)


def explained(message: str, expected: Mapping[str, int]) -> Problems:
    """Check that an event's text gives every reason with its number of nodes.

    Args:
        message: As `0/3 nodes are available: 1 …, 2 ….`.
        expected: {a reason: nodes that have it}, all nodes together.
    """
    total = sum(expected.values())
    head, _, rest = message.partition(": ")
    problems = []
    if head != f"0/{total} nodes are available":
        problems.append(
            f"the event should begin with 0/{total} nodes, says {message!r}"
        )
    problems += [
        f"the event should say '{count} {reason}', says {message!r}"
        for reason, count in expected.items()
        if f"{count} {reason}" not in rest
    ]
    return tuple(problems)


def _whole(cluster: Cluster, name: str) -> tuple[PodFacts, tuple[Mount, ...]]:
    pod = cluster.pod(name)
    return pod, tuple(mount for mount in cluster.mounts if mount.pod_uid == pod.uid)


def _unserved(pod: PodFacts) -> str:
    if pod.phase != "Running":
        return f"{pod.name} should be Running, is {pod.phase}: {pod.message}"
    if not pod.is_confirmed:
        return f"{pod.name} runs, but nobody confirmed whose chips it has"
    if len(pod.real) != pod.count:
        return f"{pod.name} asks for {pod.count} chips, has {_text(pod.real)}"
    return ""


def _mispaired(pod: PodFacts, mounted: Chips) -> Iterator[str]:
    for key, chips in (("Ascend910", pod.claimed), ("AscendReal", pod.real)):
        if chips != mounted:
            yield (
                f"{pod.name} on {pod.node} has {_text(mounted)} mounted, "
                f"huawei.com/{key} says {_text(chips)}"
            )


def _sets(pairs: Iterable[tuple[str, Chips]]) -> dict[str, Counter[Chips]]:
    found: dict[str, Counter[Chips]] = {}
    for node, chips in pairs:
        found.setdefault(node, Counter())[chips] += 1
    return found


def _listed(sets: Counter[Chips]) -> str:
    return (
        " ".join(f"{{{_text(chips)}}}" for chips in sorted(sets.elements())) or "none"
    )


def _text(chips: Iterable[int]) -> str:
    return ",".join(map(str, chips)) or "none"
