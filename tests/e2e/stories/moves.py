"""Stories of chips that break under jobs, and of the jobs that move away."""

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from sandbox.apiclient import Object
from scheduler_core.products.table import ATLAS_800_TRAINING as PRODUCT
from tests.e2e.bare_pods import EVENTS
from tests.e2e.stories import laws, world
from tests.e2e.stories.agents import Agents
from tests.e2e.stories.extenders import Extenders
from tests.e2e.stories.history import History
from tests.e2e.stories.laws import Place
from tests.e2e.stories.lives import NEVER, Life
from tests.e2e.stories.story import BrokenLawError, Story
from tests.e2e.stories.world import World
from tests.support.objects import NODES

#: More than ten of them can break at a time, with places for what is on five.
_NODES = {f"node-{number}": PRODUCT for number in range(16)}
#: As many as a job has pods.
_FIRST = 3
_CHIP = 3
_KEPT = re.compile(r"chips ([\d,]+) of (\S+) are kept for its successor")
#: A Job makes pods again after 10 s, and twice as long after each further one that
#: has ended.
MADE_WITHIN_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A world whose extenders evict, with agents that tell of broken chips."""

    world: World
    agents: Agents
    extenders: Extenders


@asynccontextmanager
async def evicting() -> AsyncIterator[Site]:
    """Have such a world."""
    agents, extenders = Agents(), Extenders()
    async with world.running(
        _NODES, serve=extenders.serve, report=agents.follow
    ) as made:
        try:
            yield Site(world=made, agents=agents, extenders=extenders)
        finally:
            extenders.close()


class MovingStory(Story):
    """A story in which chips break. Protects which ones are broken."""

    def __init__(self, site: Site, history: History) -> None:
        super().__init__(site.world, history)
        self.extenders = site.extenders
        self._agents = site.agents
        #: {node: its broken chips}
        self._broken: dict[str, tuple[int, ...]] = {}

    @asynccontextmanager
    async def far(self) -> AsyncIterator[None]:
        """Have those nodes closed that are taken first.

        Else a job that is planned anew would be on its old nodes all the same.
        """
        await self._close({"unschedulable": True})
        try:
            yield
        finally:
            await self._close({"unschedulable": None})

    async def _close(self, spec: Object) -> None:
        for name in list(_NODES)[:_FIRST]:
            await self.api.patch(f"{NODES}/{name}", {"spec": spec})

    def living(self, job: str) -> dict[str, Life]:
        """Return {rank: pod} of the pods of a job that have not ended."""
        there = (e for e in self.pods() if e.job == job and e.ended_s == NEVER)
        return {each.rank: each for each in there}

    def break_chips(self, *pods: Life) -> None:
        """Break a chip of each of these pods, at the same moment."""
        self._broken |= {each.node: (_CHIP,) for each in pods}
        self._agents.break_chips(self._broken)

    def mend_chips(self) -> None:
        """Have all chips well again."""
        self._broken = {}
        self._agents.break_chips({})

    async def has_ended(self, *pods: Life) -> None:
        """Wait until these pods have ended."""
        uids = {each.uid for each in pods}

        def are_over() -> bool:
            return all(e.ended_s < NEVER for e in self.pods() if e.uid in uids)

        await self.until(are_over, f"the end of {', '.join(e.name for e in pods)}")

    async def has_moved(
        self, job: str, before: Mapping[str, Life], *faulty: str
    ) -> None:
        """Wait until all pods of a job are replaced, and see where they are.

        Args:
            job: Kind and name.
            before: Its pods, by their ranks.
            faulty: Ranks of the pods whose chips broke. All others come home.
        """
        await self.has_ended(*before.values())
        await self.runs(job, len(before), within_s=MADE_WITHIN_S)
        after = self.living(job)
        assert after.keys() == before.keys()
        for rank, old in before.items():
            new = after[rank]
            if rank in faulty:
                assert new.node not in self._broken
            else:
                assert (new.node, new.chips) == (old.node, old.chips)
        assert {*faulty} <= await self.moved_as_told(job)

    async def moved_as_told(self, job: str) -> set[str]:
        """See that evicted pods were told why, and are where they were told.

        Returns:
            The ranks of those of this job.

        Raises:
            BrokenLawError: One is elsewhere, or ended as if it had failed.
        """
        kept = {
            event["involvedObject"]["uid"]: _place(event)
            for event in await self.events("AscendFaultEvicted")
        }
        pods = self.pods()
        found = [*laws.moved_elsewhere(pods, kept), *laws.ended_as_failed(pods, kept)]
        if found:
            raise BrokenLawError("\n".join([*found, "", *self.lines()]))
        return {e.rank for e in pods if e.job == job and e.uid in kept}

    async def events(self, reason: str) -> list[Object]:
        """Return the events with a reason, of pods of this story."""
        uids = {each.uid for each in self.pods()}
        return [
            each
            for each in await self.api.items(EVENTS)
            if each["reason"] == reason and each["involvedObject"].get("uid") in uids
        ]

    async def hears(self, reason: str, text: str, pods: int = 1) -> None:
        """Wait until so many pods have been told something."""

        async def are_told() -> bool:
            found = await self.events(reason)
            uids = {e["involvedObject"]["uid"] for e in found if text in e["message"]}
            return len(uids) >= pods

        await self.until(are_told, f"{pods} pods told {reason}: {text}")

    def untouched(self, *pods: Life) -> None:
        """Make sure that nobody has deleted these pods."""
        uids = {each.uid for each in pods}
        gone = [e.name for e in self.pods() if e.uid in uids and e.leaves_s < NEVER]
        assert gone == []


def _place(event: Object) -> Place:
    """Return which place is kept for the successor of a pod that is told so."""
    found = _KEPT.search(event["message"])
    assert found is not None, event["message"]
    ids, node = found.groups()
    chips = frozenset(f"{PRODUCT.chip_prefix}{chip}" for chip in ids.split(","))
    return Place(node, chips)
