"""Stories of Indexed Jobs: each making is bound whole or not at all."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.e2e.stories.kinds import JOBS, job
from tests.e2e.stories.lives import NEVER
from tests.e2e.stories.story import RIVAL, Story

pytestmark = pytest.mark.asyncio(loop_scope="session")

JOB = "Job train"
#: From an edit of its object, which is read every ten seconds.
AFTER_EDIT_S = 20.0
FEWER = {"spec": {"completions": 3, "parallelism": 3}}
MORE = {"spec": {"completions": 4, "parallelism": 4}}
QUOTAS = "/api/v1/namespaces/default/resourcequotas"


async def run_job(story: Story, *, has_rival: bool, pods: int = 3) -> str:
    """Have a Job run, and a job of two pods wait; return its making."""
    await story.create(JOBS, job("train", pods))
    await story.runs(JOB, pods)
    if has_rival:
        await story.rival(5 - pods)
    return story.generation(JOB)


@RIVAL
async def test_a_job_is_created(story: Story, has_rival: bool) -> None:
    await story.create(JOBS, job("train", 3))
    if has_rival:
        await story.create(JOBS, job("rival", 2))

    await story.runs_again(JOB, 3, has_rival=has_rival)


@RIVAL
async def test_a_job_is_scaled(story: Story, has_rival: bool) -> None:
    await run_job(story, has_rival=False, pods=2)

    await story.api.patch(f"{JOBS}/train", MORE)
    await story.runs(JOB, 4)
    if has_rival:
        await story.rival()
    fewer = {"spec": {"parallelism": 2, "completions": 2}}
    await story.api.patch(f"{JOBS}/train", fewer)

    await story.runs(JOB, 2)
    if has_rival:
        await story.runs("Job rival", 2)


async def test_a_job_that_does_not_fit_is_edited(story: Story) -> None:
    await story.create(JOBS, job("train", 6))
    await story.told("4 of 6 pods fit", "train-")

    await story.api.patch(f"{JOBS}/train", FEWER)

    await story.runs(JOB, 3, within_s=AFTER_EDIT_S)


async def test_a_job_of_which_pods_were_never_made_is_edited(story: Story) -> None:
    async with few_pods(story, 3):
        await story.create(JOBS, job("train", 6))
        await story.told("waits for 3 of the 6 pods of its job", "train-")

        await story.api.patch(f"{JOBS}/train", FEWER)

        await story.runs(JOB, 3, within_s=AFTER_EDIT_S)


@asynccontextmanager
async def few_pods(story: Story, pods: int) -> AsyncIterator[None]:
    """Have the API server refuse more pods than that."""
    hard = {"pods": str(pods)}
    await story.create(QUOTAS, {"metadata": {"name": "few"}, "spec": {"hard": hard}})
    try:
        # A controller's work; it does not run here.
        status = {"hard": hard, "used": {"pods": "0"}}
        await story.api.patch_status(f"{QUOTAS}/few", {"status": status})
        yield
    finally:
        await story.api.delete(f"{QUOTAS}/few")


async def test_a_job_of_all_nodes_waits_for_the_last_old_pod(story: Story) -> None:
    await run_job(story, has_rival=False, pods=4)
    old = [each.name for each in story.pods()]
    before = story.generation(JOB)
    await story.suspend_and_resume(JOBS, "train")
    await story.made_anew(JOB, before)
    await story.told("nodes are available", story.name(JOB, "0"))

    await story.kubelets.end(*old[1:])
    await story.goes_on(5)
    has_node = [e.name for e in story.pods() if e.bound_s < e.ended_s == NEVER]
    assert has_node == old[:1]
    await story.kubelets.end_all()

    await story.runs(JOB, 4)


@RIVAL
@pytest.mark.parametrize("rank", ["0", "2"])
async def test_a_pod_is_deleted_and_ends_late(
    story: Story, has_rival: bool, rank: str
) -> None:
    """Without a failure policy the one in its place is made at once."""
    await run_job(story, has_rival=has_rival)

    await story.replaced_early(JOB, rank)

    await story.runs_again(JOB, 3, has_rival=has_rival)


@RIVAL
async def test_a_pod_fails(story: Story, has_rival: bool) -> None:
    await run_job(story, has_rival=has_rival)
    name = story.name(JOB, "1")

    await story.kubelets.fail(name)

    await story.until(lambda: story.name(JOB, "1") != name, "a pod in its place")
    await story.runs_again(JOB, 3, has_rival=has_rival)


async def test_a_pod_fails_after_its_job_was_made_larger_in_vain(
    story: Story,
) -> None:
    """A quota refuses the fourth pod; the next of an old one waits for room alone."""
    await run_job(story, has_rival=True)
    async with few_pods(story, 0):
        await story.api.patch(f"{JOBS}/train", MORE)
        name = story.name(JOB, "1")
        await story.kubelets.fail(name)
        await story.runs("Job rival", 2)
        one = {"status": {"hard": {"pods": "1"}}}
        await story.api.patch_status(f"{QUOTAS}/few", one)
        await story.until(lambda: story.name(JOB, "1") != name, "a pod in its place")
        await story.goes_on()  # its size is read meanwhile

        await story.delete(JOBS, "rival")

        await story.runs(JOB, 3)


@RIVAL
async def test_a_job_is_suspended_and_resumed(story: Story, has_rival: bool) -> None:
    before = await run_job(story, has_rival=has_rival)

    await story.suspend_and_resume(JOBS, "train")
    await story.made_anew(JOB, before)
    await story.goes_on(3)
    await story.kubelets.end_all()

    await story.runs_again(JOB, 3, has_rival=has_rival)


@RIVAL
async def test_a_job_is_made_anew_while_old_pods_end(
    story: Story, has_rival: bool
) -> None:
    before = await run_job(story, has_rival=has_rival)

    await story.make_anew(JOBS, job("train", 3))
    await story.made_anew(JOB, before)
    await story.goes_on(3)
    await story.kubelets.end_all()

    await story.runs_again(JOB, 3, has_rival=has_rival)


async def test_a_budget_is_in_the_way_of_an_eviction(story: Story) -> None:
    await run_job(story, has_rival=True)
    name = story.name(JOB, "1")
    labels = {"batch.kubernetes.io/job-name": "train"}

    await story.evicted_in_spite_of_a_budget(name, labels, pods=3)

    await story.until(lambda: story.name(JOB, "1") != name, "a pod in its place")
    await story.runs_again(JOB, 3, has_rival=True)
