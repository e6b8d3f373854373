"""A Job of two pods with chips, in a whole cluster."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from sandbox.inspect import checks, observer
from sandbox.inspect.facts import Cluster
from sandbox.world import World, running
from tests.support.servers import short_folder
from tests.support.until import until

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "indexed-job.yaml"


@pytest.fixture
async def two() -> AsyncIterator[World]:
    """A world of two nodes."""
    with short_folder() as below:
        async with running(["node-1", "node-2"], below=below) as world:
            yield world


async def test_a_job_runs_on_chips_and_has_an_evicted_pod_made_again(
    two: World,
) -> None:
    world = two
    assert world.jobs is not None
    world.jobs.first_pause_s = 0.1
    example = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    await world.api.create(observer.JOBS, example)
    before = await runs(world, {"train-0", "train-1"})
    evicted = next(pod for pod in before.pods if pod.name.startswith("train-0-"))

    metadata = {"name": evicted.name, "namespace": observer.NAMESPACE}
    path = f"{observer.PODS}/{evicted.name}"
    await world.api.create(f"{path}/eviction", {"metadata": metadata})
    await until(
        lambda: observer.pods(world),
        lambda found: evicted.uid not in {pod.uid for pod in found},
    )
    after = await runs(world, {"train-0", "train-1"})

    status = (await world.api.get(f"{observer.JOBS}/train"))["status"]
    # The policy of the example takes an eviction for no failure.
    assert (status["active"], status.get("failed", 0)) == (2, 0)
    untouched = {pod.uid for pod in before.pods} - {evicted.uid}
    assert untouched <= {pod.uid for pod in after.pods}
    await world.api.delete(f"{observer.JOBS}/train", propagation="Background")
    await until(lambda: observer.cluster(world), lambda seen: not seen.pods)


async def runs(world: World, groups: set[str]) -> Cluster:
    """Wait until one pod of each index has its chips, by all accounts."""

    def is_so(seen: Cluster) -> bool:
        ready = [pod for pod in seen.pods if pod.is_confirmed]
        have = [pod.name.rpartition("-")[0] for pod in ready]
        return sorted(have) == sorted(groups) and not checks.agreed(seen)

    return await until(lambda: observer.cluster(world), is_so)
