"""Stories of LeaderWorkerSets: each group is bound whole or not at all."""

import pytest

from tests.e2e.stories import kinds
from tests.e2e.stories.kinds import WORKER_SETS, worker_set
from tests.e2e.stories.lives import LWS
from tests.e2e.stories.story import RIVAL, Story

pytestmark = pytest.mark.asyncio(loop_scope="session")

GROUP, SECOND = "LeaderWorkerSet serve/0", "LeaderWorkerSet serve/1"
STARTUPS = ("LeaderCreated", "LeaderReady")
#: Its nodes are chosen by chance, so some sets get on.
SETS = 6


async def run_group(
    story: Story, *, has_rival: bool, startup: str = STARTUPS[0]
) -> None:
    """Have a group of three run on four nodes, and a job of two wait."""
    await story.create(WORKER_SETS, worker_set("serve", 1, 3, startup=startup))
    await story.runs(GROUP, 3)
    if has_rival:
        await story.rival()


@RIVAL
@pytest.mark.parametrize("startup", STARTUPS)
async def test_a_group_is_created(story: Story, has_rival: bool, startup: str) -> None:
    await story.create(WORKER_SETS, worker_set("serve", 1, 3, startup=startup))
    if has_rival:
        await story.create(kinds.JOBS, kinds.job("rival", 2))

    await story.runs_again(GROUP, 3, has_rival=has_rival)


async def test_workers_find_the_nodes_that_are_kept_for_them(story: Story) -> None:
    """A rival comes when the leader has its node and is not ready yet."""
    story.kubelets.hold("serve-0")
    body = worker_set("serve", 1, 3, startup="LeaderReady")
    await story.create(WORKER_SETS, body)
    await story.has_nodes(GROUP, 1)
    await story.rival()

    await story.kubelets.ready_all()

    await story.runs(GROUP, 3)
    await story.rival_waits()


@RIVAL
@pytest.mark.parametrize("startup", STARTUPS)
async def test_the_leader_is_deleted_and_its_old_workers_end_late(
    story: Story, has_rival: bool, startup: str
) -> None:
    await run_group(story, has_rival=has_rival, startup=startup)
    before = story.generation(GROUP)
    story.kubelets.keep("serve-0-")

    await story.api.delete(f"{kinds.PODS}/serve-0")

    await story.made_anew(GROUP, before)
    # The new workers have the old ones' names: their StatefulSet tries after 5 s and
    # 10 s, and between these the rival finds the nodes of the old ones.
    await story.goes_on(6)
    await story.kubelets.end_all()
    await story.runs_again(GROUP, 3, has_rival=has_rival)


async def test_the_leader_is_deleted(story: Story) -> None:
    await run_group(story, has_rival=False)
    before = story.generation(GROUP)

    await story.api.delete(f"{kinds.PODS}/serve-0")

    await story.made_anew(GROUP, before)
    await story.runs(GROUP, 3)


@RIVAL
async def test_a_container_is_started_again(story: Story, has_rival: bool) -> None:
    await run_group(story, has_rival=has_rival)
    before = story.generation(GROUP)

    await story.kubelets.restart("serve-0-2")

    await story.made_anew(GROUP, before)
    await story.runs_again(GROUP, 3, has_rival=has_rival)


@RIVAL
async def test_a_worker_is_deleted_by_hand(story: Story, has_rival: bool) -> None:
    await run_group(story, has_rival=has_rival)
    before = story.generation(GROUP)

    await story.api.delete(f"{kinds.PODS}/serve-0-1")

    await story.made_anew(GROUP, before)
    await story.runs_again(GROUP, 3, has_rival=has_rival)


async def test_a_worker_is_deleted_that_is_replaced_alone(story: Story) -> None:
    body = worker_set("serve", 1, 3, restartPolicy="None")
    await story.create(WORKER_SETS, body)
    await story.runs(GROUP, 3)

    await story.api.delete(f"{kinds.PODS}/serve-0-1")

    await story.is_gone("serve-0-1")
    await story.runs(GROUP, 3)


@RIVAL
async def test_a_worker_fails(story: Story, has_rival: bool) -> None:
    """Its StatefulSet replaces it; if its controller sees that, all are made anew."""
    await run_group(story, has_rival=has_rival)

    await story.kubelets.fail("serve-0-1")

    await story.is_gone("serve-0-1")
    await story.runs_again(GROUP, 3, has_rival=has_rival)


@RIVAL
async def test_a_set_is_scaled(story: Story, has_rival: bool) -> None:
    await story.create(WORKER_SETS, worker_set("serve", 1, 2))
    await story.runs(GROUP, 2)

    await story.api.patch(f"{WORKER_SETS}/serve", {"spec": {"replicas": 2}})
    await story.runs(SECOND, 2)
    if has_rival:
        await story.rival()
    await story.api.patch(f"{WORKER_SETS}/serve", {"spec": {"replicas": 1}})
    await story.runs(SECOND, 0)

    await story.runs(GROUP, 2)
    if has_rival:
        await story.runs("Job rival", 2)


@RIVAL
async def test_a_set_is_updated_on_a_full_cluster(
    story: Story, has_rival: bool
) -> None:
    await story.create(WORKER_SETS, worker_set("serve", 2, 2))
    await story.runs(GROUP, 2)
    await story.runs(SECOND, 2)
    first, second = story.generation(GROUP), story.generation(SECOND)
    if has_rival:
        await story.rival()

    template = {"leaderWorkerTemplate": {"workerTemplate": kinds.updated()}}
    await story.api.patch(f"{WORKER_SETS}/serve", {"spec": template})

    # The last group goes first, and the next one when that runs.
    await story.made_anew(SECOND, second)
    if has_rival:
        await story.rival_ends(SECOND, 2)
    await story.runs(SECOND, 2)
    await story.made_anew(GROUP, first)
    await story.runs(GROUP, 2)


@RIVAL
async def test_a_set_is_made_anew_while_old_pods_end(
    story: Story, has_rival: bool
) -> None:
    await run_group(story, has_rival=has_rival)
    before = story.generation(GROUP)

    await story.make_anew(WORKER_SETS, worker_set("serve", 1, 3))
    await story.goes_on(3)
    await story.kubelets.end_all()

    await story.made_anew(GROUP, before)
    await story.runs_again(GROUP, 3, has_rival=has_rival)


async def test_a_budget_is_in_the_way_of_an_eviction(story: Story) -> None:
    await run_group(story, has_rival=True)
    before = story.generation(GROUP)
    labels = {f"{LWS}/name": "serve"}

    await story.evicted_in_spite_of_a_budget("serve-0-1", labels, pods=3)

    await story.made_anew(GROUP, before)
    await story.runs_again(GROUP, 3, has_rival=True)


async def test_each_group_has_a_zone_to_itself(story: Story) -> None:
    """The scheduler chooses the leader's node by chance, so this is done some times."""
    for number in range(SETS):
        body = worker_set(f"serve-{number}", 2, 2, exclusive=True)
        await story.create(WORKER_SETS, body)

        await story.runs(f"LeaderWorkerSet serve-{number}/0", 2)
        await story.runs(f"LeaderWorkerSet serve-{number}/1", 2)
        await story.delete(WORKER_SETS, f"serve-{number}")
        await story.runs(f"LeaderWorkerSet serve-{number}/0", 0)
        await story.runs(f"LeaderWorkerSet serve-{number}/1", 0)
