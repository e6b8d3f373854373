"""Stories of Deployments and StatefulSets of which some pods must run at once."""

import pytest

from tests.e2e.stories import kinds
from tests.e2e.stories.kinds import (
    DEPLOYMENTS,
    STATEFUL_SETS,
    deployment,
    stateful_set,
)
from tests.e2e.stories.lives import NEVER
from tests.e2e.stories.story import Story

pytestmark = pytest.mark.asyncio(loop_scope="session")

SERVE, STORE = "Deployment serve", "StatefulSet store"


async def run_serve(story: Story) -> list[str]:
    """Have two pods of a Deployment run; return their names."""
    await story.create(DEPLOYMENTS, deployment("serve", 2, 2))
    await story.runs(SERVE, 2)
    return [each.name for each in story.pods()]


async def test_a_deployment_is_created_and_scaled(story: Story) -> None:
    await run_serve(story)

    await story.api.patch(f"{DEPLOYMENTS}/serve", {"spec": {"replicas": 4}})
    await story.runs(SERVE, 4)
    await story.api.patch(f"{DEPLOYMENTS}/serve", {"spec": {"replicas": 2}})

    await story.runs(SERVE, 2)


async def test_a_pod_of_a_deployment_is_deleted(story: Story) -> None:
    name, _ = await run_serve(story)

    await story.api.delete(f"{kinds.PODS}/{name}")

    await story.is_gone(name)
    await story.runs(SERVE, 2)


async def test_a_budget_is_in_the_way_of_an_eviction(story: Story) -> None:
    name, _ = await run_serve(story)

    await story.evicted_in_spite_of_a_budget(name, {"app": "serve"}, pods=2)

    await story.is_gone(name)
    await story.runs(SERVE, 2)


async def test_a_deployment_is_made_anew_while_old_pods_end(story: Story) -> None:
    await run_serve(story)
    before = story.generation(SERVE)
    story.kubelets.keep("serve-")

    await story.delete(DEPLOYMENTS, "serve")
    await story.is_absent(DEPLOYMENTS, "serve")
    await story.create(DEPLOYMENTS, deployment("serve", 3, 3))
    await story.made_anew(SERVE, before)
    await story.goes_on(3)
    await story.kubelets.end_all()

    await story.runs(SERVE, 3)


async def test_a_deployment_is_updated(story: Story) -> None:
    """One pod more is made first, and is to run before an old one goes."""
    before = await run_serve(story)

    spec = {"template": kinds.updated()}
    await story.api.patch(f"{DEPLOYMENTS}/serve", {"spec": spec})

    await story.until(lambda: len(story.pods()) == 4, "two new pods")
    await story.runs(SERVE, 2)
    assert not {e.name for e in story.pods() if e.ended_s == NEVER} & {*before}


async def test_a_stateful_set_is_created_and_a_pod_deleted(story: Story) -> None:
    await story.create(STATEFUL_SETS, stateful_set("store", 3, 3))
    await story.runs(STORE, 3)

    await story.api.delete(f"{kinds.PODS}/store-1")

    await story.is_gone("store-1")
    await story.runs(STORE, 3)


async def test_a_stateful_set_is_updated(story: Story) -> None:
    await story.create(STATEFUL_SETS, stateful_set("store", 3, 3))
    await story.runs(STORE, 3)

    spec = {"template": kinds.updated()}
    await story.api.patch(f"{STATEFUL_SETS}/store", {"spec": spec})

    await story.until(lambda: len(story.pods()) == 6, "three new pods")
    await story.runs(STORE, 3)
