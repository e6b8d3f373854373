"""Would we have decided as the scheduler did that is in charge?

For whoever wants to change schedulers: beside another one (an Ascend Volcano plugin,
say) the extender only observes. Of each pod that gets a node it is said, on the state
just before, what we would have said of it, by rule; of a job of several, once all its
pods have nodes, whether we had had room, and on fewer nodes or leaf switches.

What another scheduler knows and we do not (taints, selectors, volumes, queues) may be
the reason of a difference; CPU, memory and number of pods are counted.

Pure, but for the counts that `Shadow` protects.
"""

from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from extender.cache.cache import Cache
from extender.cache.events import PodSeen
from extender.cache.node_record import tenant_of
from extender.gang.gangs import Gang
from extender.planning import plan
from extender.planning.plan import World
from extender.scheduling import capacity
from scheduler_core.node import chips
from scheduler_core.node.state import NodeState
from scheduler_core.wire.pods import NpuPod
from service import clock

#: Differences that are remembered; the oldest go first.
REMEMBERED = 500


class Rule(StrEnum):
    """What a decision is compared by; labels in metrics."""

    AGREES = "agrees"
    JOB_AGREES = "job-agrees"
    #: no annotation says which chips, or the node is not known
    UNKNOWN = "unknown"
    NODE_REFUSED = "node-refused"
    NODE_WORSE = "node-worse"
    CHIPS_TAKEN = "chips-taken"
    CHIPS_APART = "chips-apart"
    CHIPS_WORSE = "chips-worse"
    JOB_NO_ROOM = "job-no-room"
    JOB_NODES = "job-nodes"
    JOB_LEAVES = "job-leaves"


#: Rules by which we would have decided the same, or that say nothing.
_ALIKE = frozenset({Rule.AGREES, Rule.JOB_AGREES, Rule.UNKNOWN})


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What has been found of one decision of the other scheduler."""

    #: "namespace/name" of the pod, or the job
    of: str
    rule: Rule
    #: where it is, and what we would have said
    text: str = ""
    at_s: float = 0.0

    @property
    def is_different(self) -> bool:
        """Whether we would have decided otherwise."""
        return self.rule not in _ALIKE


@dataclass(slots=True, kw_only=True)
class _Watched:
    """A job of which the first pod has a node."""

    #: UIDs of pods that had none then
    waits: set[str]
    #: nodes that they have got
    nodes: set[str]
    #: nodes that we would have taken; or why we had no room
    ours: frozenset[str] | str


class Shadow:
    """Protects what has been found since the start, by rule, and the last differences.

    Nothing depends on it, and a restart forgets it.
    """

    def __init__(
        self,
        cache: Cache,
        *,
        wall_s: Callable[[], float],
        world: Callable[[Gang], World] = lambda _gang: plan.PLAIN,
        found: Callable[[Finding], None] = lambda _finding: None,
    ) -> None:
        """Have found nothing yet.

        Args:
            cache: What is known.
            wall_s: Seconds since the epoch.
            world: What is known of networks, asked for each job.
            found: Told each finding.
        """
        self._cache = cache
        self._wall_s = wall_s
        self._world = world
        self._found = found
        self.counts: Counter[Rule] = Counter()
        self.latest: deque[Finding] = deque(maxlen=REMEMBERED)
        self._jobs: dict[str, _Watched] = {}

    def before(self, change: PodSeen) -> None:
        """Look at a pod that has got a node, before the cache learns of it."""
        pod = change.pod
        known = self._cache.pods.get(pod.uid)
        if known is None or known.node or not pod.node or pod.terminal:
            return
        gang = self._cache.gangs.of(pod.uid)
        self._note(f"{pod.namespace}/{pod.name}", *compare(self._cache, pod))
        if gang is not None:
            self._of_job(gang, pod)

    def report(self) -> dict[str, Any]:
        """What has been found, as a JSON object."""
        return {
            "decisions": sum(self.counts.values()),
            "different": sum(
                n for rule, n in self.counts.items() if rule not in _ALIKE
            ),
            "by_rule": {rule.value: self.counts[rule] for rule in Rule},
            "latest": [
                {
                    "of": each.of,
                    "rule": each.rule.value,
                    "text": each.text,
                    "at": clock.rfc3339(each.at_s),
                }
                for each in reversed(self.latest)
            ],
        }

    def text(self) -> str:
        """The same for a person."""
        found = self.report()
        lines = [f"{found['different']} of {found['decisions']} decided otherwise"]
        lines += [f"  {number:6} {rule}" for rule, number in found["by_rule"].items()]
        lines += [
            f"{each['at']} {each['of']}: {each['rule']}: {each['text']}"
            for each in found["latest"]
        ]
        return "\n".join(lines) + "\n"

    def _note(self, of: str, rule: Rule, text: str) -> None:
        finding = Finding(of=of, rule=rule, text=text, at_s=self._wall_s())
        self.counts[rule] += 1
        if finding.is_different:
            self.latest.append(finding)
        self._found(finding)

    def _of_job(self, gang: Gang, pod: NpuPod) -> None:
        """Plan a job before its first pod has a node; compare when all have."""
        watched = self._jobs.get(gang.job)
        if watched is None:
            waits = set(gang.unseated)
            watched = _Watched(waits=waits, nodes=set(), ours=self._ours(gang))
            self._jobs[gang.job] = watched
        watched.waits.discard(pod.uid)
        watched.nodes.add(pod.node)
        if not watched.waits & self._cache.pods.keys():
            del self._jobs[gang.job]
            world = self._world(gang)
            self._note(gang.title, *compare_job(world, watched.nodes, watched.ours))

    def _ours(self, gang: Gang) -> frozenset[str] | str:
        names = self._cache.cluster.names
        found = plan.plan(self._cache, gang, names, 0, self._world(gang))
        if isinstance(found, str):
            return found
        return frozenset(promise.node for promise in found)


def compare(cache: Cache, pod: NpuPod) -> tuple[Rule, str]:
    """What we would have said of a pod's node and chips.

    Args:
        cache: What was known before the pod had them.
        pod: With its node and its annotations.
    """
    state = cache.cluster.line(pod.shape.resource).get(pod.node)
    row = state.row_for(pod.shape.resource) if state is not None else None
    if state is None or row is None:
        return Rule.UNKNOWN, f"{pod.node} is not known as a node with such NPUs"
    theirs = tenant_of(pod, state.product).chips
    if not theirs:
        return Rule.UNKNOWN, "no annotation says which chips"
    rule, why = _compare(cache, pod, state, theirs)
    where = f"chips {_listed(theirs)} of {pod.node}"
    return rule, f"{where}: {why}" if why else where


def _compare(
    cache: Cache, pod: NpuPod, state: NodeState, theirs: int
) -> tuple[Rule, str]:
    if taken := theirs & ~state.free:
        return Rule.CHIPS_TAKEN, f"{_listed(taken)} were not free"
    survey = cache.cluster.survey(
        pod.shape.resource,
        pod.total,
        tuple(dict.fromkeys([*_with_room(cache, pod), pod.node])),
        avoid=cache.conflicts(pod),
    )
    if pod.node in survey.refused:
        return Rule.NODE_REFUSED, survey.refused[pod.node].text
    if not chips.is_legal(state.product, theirs):
        return Rule.CHIPS_APART, "such chips are not given together"
    if pod.node in survey.worse and cache.gangs.of(pod.uid) is None:
        return Rule.NODE_WORSE, f"{survey.best[0]} fits better"
    return _compare_chips(state, pod.total, theirs)


def _compare_chips(state: NodeState, count: int, theirs: int) -> tuple[Rule, str]:
    """What we would have said of chips of the right node; as good is good enough."""
    ours = chips.choose(state.product, state.free, count)
    if _left(state, ours) != _left(state, theirs):
        return Rule.CHIPS_WORSE, f"we would have given {_listed(ours)}"
    return Rule.AGREES, ""


def compare_job(
    world: World, theirs: Collection[str], ours: frozenset[str] | str
) -> tuple[Rule, str]:
    """What we would have said of the nodes of a whole job.

    Args:
        world: What is known of networks.
        theirs: The nodes that its pods have got.
        ours: The nodes that we would have taken, or why we had no room.
    """
    if isinstance(ours, str):
        return Rule.JOB_NO_ROOM, ours
    if len(ours) < len(theirs):
        text = f"on {len(theirs)} nodes, {len(ours)} had been enough"
        return Rule.JOB_NODES, text
    there, here = _leaves(world, theirs), _leaves(world, ours)
    if here < there:
        text = f"under {there} leaf switches, {here} had been enough"
        return Rule.JOB_LEAVES, text
    return Rule.JOB_AGREES, f"on {len(theirs)} nodes"


def _leaves(world: World, nodes: Collection[str]) -> int:
    if world.network is None:
        return 0
    return sum(not set(leaf.nodes).isdisjoint(nodes) for leaf in world.network.leaves)


def _with_room(cache: Cache, pod: NpuPod) -> Sequence[str]:
    """Nodes with CPU, memory and room for one pod more."""
    ask = cache.loads.ask(pod.uid)
    return [
        name
        for name in cache.cluster.names
        if min(capacity.left_on(cache, name).minus(ask)) >= 0
    ]


def _left(state: NodeState, taken: int) -> tuple[int, ...] | int:
    """What matters of the chips that stay free."""
    return chips.shape(state.product, state.free & ~taken)


def _listed(mask: int) -> str:
    return ",".join(map(str, chips.ids_of(mask)))
