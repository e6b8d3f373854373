"""Chips break under jobs of real controllers, which move as `docs/faults.md` says.

Each pod takes all chips of a node. A job that has moved is not moved again at once, so
each story has a name of its own.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from sandbox.apiclient import Object
from tests.e2e.stories import moves
from tests.e2e.stories.history import History
from tests.e2e.stories.kinds import (
    JOB_SETS,
    JOBS,
    WORKER_SETS,
    job,
    job_set,
    worker_set,
)
from tests.e2e.stories.lives import LWS, NEVER, Life
from tests.e2e.stories.moves import MADE_WITHIN_S, MovingStory, Site

pytestmark = pytest.mark.asyncio(loop_scope="session")

#: An eviction is no failure; a pod is replaced once it has ended.
_SURVIVES: Object = {
    "backoffLimit": 0,
    "podReplacementPolicy": "Failed",
    "podFailurePolicy": {
        "rules": [
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
        ]
    },
}
_RESTARTS: Object = {
    "maxRestarts": 0,
    "rules": [{"action": "RestartJobSetAndIgnoreMaxRestarts"}],
}
#: Of all NPU nodes, the brake lets so many have faults before it stops evictions.
_UNBRAKED, _MANY = 5, 10


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def site() -> AsyncIterator[Site]:
    """Controllers, scheduler, and two extenders that evict."""
    async with moves.evicting() as site:
        yield site


@pytest_asyncio.fixture(loop_scope="session")
async def story(site: Site) -> AsyncIterator[MovingStory]:
    """A story of a test's own; no chip is broken."""
    history = History(site.world.api, site.world.kinds)
    story = MovingStory(site, history)
    await history.begun()
    try:
        yield story
    finally:
        story.mend_chips()
        await story.clear()


def asking(template: Object, switch: str = "grace", **labels: str) -> None:
    """Have pods of a template ask to be moved, and have these labels besides."""
    named = {key.replace("_", "-"): text for key, text in labels.items()}
    template["metadata"] = {"labels": {"fault-scheduling": switch, **named}}


async def create_job(
    story: MovingStory, name: str, pods: int, switch: str = "grace", **labels: str
) -> None:
    """Make an Indexed Job as `docs/examples/indexed-job.yaml` has it."""
    body = job(name, pods, **_SURVIVES)
    asking(body["spec"]["template"], switch, **labels)
    await story.create(JOBS, body)


async def run_job(
    story: MovingStory, name: str, pods: int, switch: str = "grace", **labels: str
) -> dict[str, Life]:
    """Make such a Job; return its pods once they run."""
    async with story.far():
        await create_job(story, name, pods, switch, **labels)
        await story.runs(f"Job {name}", pods)
    return story.living(f"Job {name}")


async def status_of(story: MovingStory, path: str) -> dict[str, Any]:
    found: dict[str, Any] = (await story.api.get(path))["status"]
    return found


async def test_a_job_moves_at_once_and_loses_no_rank(story: MovingStory) -> None:
    before = await run_job(story, "forced", 2, "force")

    story.break_chips(before["0"])

    await story.has_moved("Job forced", before, "0")
    status = await status_of(story, f"{JOBS}/forced")
    assert (status["active"], status.get("failed", 0)) == (2, 0)


async def test_a_set_begins_again_on_its_places(story: MovingStory) -> None:
    """Its controller ends the other pods, and makes all of them again."""
    body = job_set("pair", 2, 1, backoffLimit=0)
    body["spec"]["failurePolicy"] = _RESTARTS
    asking(body["spec"]["replicatedJobs"][0]["template"]["spec"]["template"])
    async with story.far():
        await story.create(JOB_SETS, body)
        await story.runs("JobSet pair", 2)
    before = story.living("JobSet pair")

    story.break_chips(before["train/1/0"])

    await story.has_moved("JobSet pair", before, "train/1/0")
    assert await story.moved_as_told("JobSet pair") == {"train/1/0"}
    status = await status_of(story, f"{JOB_SETS}/pair")
    assert status["restarts"] == 1
    assert status.get("restartsCountTowardsMax", 0) == 0


async def test_a_group_moves_once_its_budget_allows_it(story: MovingStory) -> None:
    body = worker_set("serve", 1, 3)
    asking(body["spec"]["leaderWorkerTemplate"]["workerTemplate"])
    async with story.far():
        await story.create(WORKER_SETS, body)
        await story.runs("LeaderWorkerSet serve/0", 3)
    before = story.living("LeaderWorkerSet serve/0")
    async with story.budget({f"{LWS}/name": "serve"}, 3):
        story.break_chips(before["1"])

        await story.hears("AscendMoveWaits", "The disruption budget all ")
        await story.goes_on(3)
        story.untouched(*before.values())

    await story.has_moved("LeaderWorkerSet serve/0", before, "1")
    assert await story.moved_as_told("LeaderWorkerSet serve/0") == {"1"}


async def test_a_second_fault_joins_and_others_stay(story: MovingStory) -> None:
    """Each fault pod goes alone, the second while the first is not replaced yet."""
    before = await run_job(story, "twice", 3, pod_rescheduling="on")

    story.break_chips(before["0"])
    await story.has_ended(before["0"])
    story.break_chips(before["2"])
    await story.has_ended(before["2"])
    await story.runs("Job twice", 3, within_s=MADE_WITHIN_S)

    after = story.living("Job twice")
    story.untouched(before["1"])
    assert await story.moved_as_told("Job twice") == {"0", "2"}
    homes = {before[rank].node for rank in before}
    assert homes.isdisjoint({after["0"].node, after["2"].node})


async def test_another_leader_brings_back_what_the_first_has_evicted(
    story: MovingStory,
) -> None:
    before = await run_job(story, "led", 2)

    story.break_chips(before["1"])
    await story.has_ended(*before.values())
    await story.extenders.kill_leader()

    await story.has_moved("Job led", before, "1")


async def test_a_fault_of_very_many_nodes_moves_few(story: MovingStory) -> None:
    """What has gone until the brake holds comes back, and all others stay."""
    names = [f"mass-{number}" for number in range(_MANY)]
    for name in names:
        await create_job(story, name, 1)
    for name in names:
        await story.runs(f"Job {name}", 1)
    pods = [story.living(f"Job {name}")["0"] for name in names]

    story.break_chips(*pods)
    await story.hears("AscendMoveWaits", "stops all evictions", _MANY - _UNBRAKED)
    await story.goes_on(3)
    story.mend_chips()
    await story.goes_on(3)

    gone = {each.uid for each in story.pods() if each.leaves_s < NEVER}
    assert len(gone) <= _UNBRAKED
    for each in pods:
        await story.runs(each.job, 1, within_s=MADE_WITHIN_S)
    await story.moved_as_told("")
    await story.goes_on()
    story.untouched(*(each for each in pods if each.uid not in gone))
    await story.extenders.change_leader()  # who has seen no faults yet
