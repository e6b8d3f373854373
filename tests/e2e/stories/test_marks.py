"""What real controllers give their pods, which makers of pods in tests imitate."""

import pytest

from tests.e2e.stories import kinds
from tests.e2e.stories.lives import LWS
from tests.e2e.stories.story import Story
from tests.support import real_pods
from tests.support.real_pods import marks

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_pods_of_a_job(story: Story) -> None:
    await story.create(kinds.JOBS, kinds.job("train", 2))
    await story.runs("Job train", 2)

    assert [marks(pod) for pod in story.born()] == [real_pods.JOB] * 2


async def test_pods_of_a_job_set(story: Story) -> None:
    await story.create(kinds.JOB_SETS, kinds.job_set("train", 2, 1))
    await story.runs("JobSet train", 2)

    assert [marks(pod) for pod in story.born()] == [real_pods.JOB_SET] * 2


async def test_pods_of_a_leader_worker_set(story: Story) -> None:
    """A worker belongs to a StatefulSet that belongs to its leader."""
    await story.create(kinds.WORKER_SETS, kinds.worker_set("serve", 1, 2))
    await story.runs("LeaderWorkerSet serve/0", 2)

    leader, worker = story.born()
    assert (marks(leader), marks(worker)) == (real_pods.LEADER, real_pods.WORKER)
    (owner,) = worker["metadata"]["ownerReferences"]
    sets = await story.api.items(kinds.STATEFUL_SETS)
    (its_set,) = (e for e in sets if e["metadata"]["uid"] == owner["uid"])
    (grandparent,) = its_set["metadata"]["ownerReferences"]
    assert grandparent["uid"] == leader["metadata"]["uid"]
    assert worker["metadata"]["annotations"][f"{LWS}/leader-name"] == "serve-0"
