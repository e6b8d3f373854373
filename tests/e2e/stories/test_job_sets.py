"""Stories of JobSets: each attempt is bound whole or not at all."""

import pytest

from tests.e2e.stories import kinds
from tests.e2e.stories.kinds import JOB_SETS, job_set, ordered_set
from tests.e2e.stories.story import RIVAL, Story

pytestmark = pytest.mark.asyncio(loop_scope="session")

SET = "JobSet train"


async def run_set(story: Story, *, has_rival: bool) -> str:
    """Have a set of three jobs run, and a job of two pods wait; return its making."""
    await story.create(JOB_SETS, job_set("train", 3, 1))
    await story.runs(SET, 3)
    if has_rival:
        await story.rival()
    return story.generation(SET)


@RIVAL
async def test_a_set_is_created(story: Story, has_rival: bool) -> None:
    await story.create(JOB_SETS, job_set("train", 1, 3))
    if has_rival:
        await story.create(kinds.JOBS, kinds.job("rival", 2))

    await story.runs_again(SET, 3, has_rival=has_rival)


async def test_jobs_that_start_in_order_find_the_nodes_that_are_kept_for_them(
    story: Story,
) -> None:
    """A rival comes when the first has its node and is not ready yet."""
    story.kubelets.hold("train-driver")
    await story.create(JOB_SETS, ordered_set("train", driver=1, workers=2))
    await story.has_nodes(SET, 1)
    await story.rival()

    await story.kubelets.ready_all()

    await story.runs(SET, 3)
    await story.rival_waits()


@RIVAL
@pytest.mark.parametrize("rank", ["train/0/0", "train/2/0"])
async def test_a_pod_is_deleted_and_ends_late(
    story: Story, has_rival: bool, rank: str
) -> None:
    await run_set(story, has_rival=has_rival)

    await story.replaced_early(SET, rank)

    await story.runs_again(SET, 3, has_rival=has_rival)


@RIVAL
async def test_a_pod_fails_and_is_replaced(story: Story, has_rival: bool) -> None:
    await run_set(story, has_rival=has_rival)
    name = story.name(SET, "train/1/0")

    await story.kubelets.fail(name)

    await story.until(
        lambda: story.name(SET, "train/1/0") != name, "a pod in its place"
    )
    await story.runs_again(SET, 3, has_rival=has_rival)


@RIVAL
async def test_a_pod_fails_and_the_set_begins_again(
    story: Story, has_rival: bool
) -> None:
    await story.create(JOB_SETS, job_set("train", 3, 1, backoffLimit=0))
    await story.runs(SET, 3)
    if has_rival:
        await story.rival()
    before = story.generation(SET)
    story.kubelets.keep(story.name(SET, "train/2/0"))

    await story.kubelets.fail(story.name(SET, "train/1/0"))

    await story.made_anew(SET, before)
    await story.goes_on(3)
    await story.kubelets.end_all()
    await story.runs_again(SET, 3, has_rival=has_rival)


@RIVAL
async def test_a_set_is_suspended_and_resumed(story: Story, has_rival: bool) -> None:
    before = await run_set(story, has_rival=has_rival)

    await story.suspend_and_resume(JOB_SETS, "train")
    await story.goes_on(3)
    await story.kubelets.end_all()

    await story.made_anew(SET, before)
    await story.runs_again(SET, 3, has_rival=has_rival)


@RIVAL
async def test_a_set_is_made_anew_while_old_pods_end(
    story: Story, has_rival: bool
) -> None:
    before = await run_set(story, has_rival=has_rival)

    await story.make_anew(JOB_SETS, job_set("train", 3, 1))
    await story.goes_on(3)
    await story.kubelets.end_all()

    await story.made_anew(SET, before)
    await story.runs_again(SET, 3, has_rival=has_rival)


async def test_each_job_has_a_zone_to_itself(story: Story) -> None:
    await story.create(JOB_SETS, job_set("train", 2, 2, exclusive=True))

    await story.runs(SET, 4)
