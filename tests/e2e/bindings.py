"""Pods that Volcano allocates and binds, judged as the API server tells of them."""

from collections import Counter
from collections.abc import Iterable, Iterator

from sandbox.apiclient import Listed, Object
from sandbox.inspect import checks, observer
from sandbox.inspect.facts import Choice, PodFacts
from sandbox.world import World
from scheduler_core.wire.annotations import ALLOCATED_ON


class Record:
    """Each change of each pod, judged as the API server tells it.

    Protects: no change is left out, and each is judged against all before it.
    """

    def __init__(self, world: World) -> None:
        """Judge the pods of a world from `follow` on."""
        #: which laws were broken
        self.problems: list[str] = []
        #: {pod: how often chips were written onto it before it had a node}
        self.allocations: Counter[str] = Counter()
        #: {pod uid: node and chips at the moment of binding}
        self.choices: dict[str, Choice] = {}
        self._world = world
        #: {pod: last state}, of pods that exist
        self._last: dict[str, PodFacts] = {}

    async def follow(self) -> None:
        """Follow the pods for ever."""
        async for event in self._world.api.follow(observer.PODS):
            if isinstance(event, Listed):
                there = {item["metadata"]["name"] for item in event.items}
                self._last = {k: v for k, v in self._last.items() if k in there}
                for item in event.items:
                    self._take(item)
            elif event.gone:
                self._last.pop(event.item["metadata"]["name"], None)
            else:
                self._take(event.item)
            self.problems += checks.doubled(observer.mounts(self._world))

    def _take(self, item: Object) -> None:
        pod = observer.pod_facts(item)
        before = self._last.get(pod.name)
        claimed_before = before.claimed if before else ()
        if pod.claimed and not pod.node and not claimed_before:
            self.allocations[pod.name] += 1
        if pod.node and not (before and before.node):
            notes = item["metadata"].get("annotations") or {}
            self.choices[pod.uid] = Choice(
                pod=pod.name,
                node=pod.node,
                chips=pod.claimed,
                predicate_time=int(notes.get(observer.PREDICATE_TIME, "0")),
            )
            self.problems += self._bound_wrongly(pod, claimed_before)
            if notes.get(ALLOCATED_ON) != pod.node:
                self.problems.append(f"{pod.name} was allocated on another node")
        self._last[pod.name] = pod

    def _bound_wrongly(self, pod: PodFacts, before: Iterable[int]) -> Iterator[str]:
        if pod.claimed != before:
            yield f"{pod.name} was bound with {pod.claimed}, had {before} before"
        if len(pod.claimed) != pod.count:
            yield f"{pod.name} asks for {pod.count}, was bound with {pod.claimed}"
        for other in self._last.values():
            if other.node == pod.node and {*other.claimed} & {*pod.claimed}:
                yield f"{pod.name} was bound with chips of {other.name}"
