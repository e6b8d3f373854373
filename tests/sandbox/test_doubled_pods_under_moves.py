"""A Job moves after a fault while its controller makes each pod twice."""

from collections import Counter
from pathlib import Path

import pytest

from sandbox.inspect import checks, observer, pods
from sandbox.inspect.facts import Cluster
from sandbox.world import rescheduling, running
from tests.support.servers import short_folder
from tests.support.until import until

NODES = ("n1", "n2", "n3", "n4")
#: More often than a pod is bound.
LOOKS = 60


def number(name: str) -> str:
    return name.split("-")[1]


def runs(seen: Cluster, without: set[str]) -> bool:
    """Whether both pods have chips, and none of these is left."""
    ready = [pod for pod in seen.pods if pod.is_confirmed and pod.uid not in without]
    return len(ready) == len(seen.pods) == 2 and not checks.agreed(seen)


@pytest.mark.long
async def test_a_number_that_two_pods_have_gets_its_kept_place_once() -> None:
    with short_folder() as below:
        async with running(NODES, rescheduling("evict"), below=Path(below)) as world:
            assert world.jobs is not None
            world.jobs.first_pause_s = 0.1
            made = pods.job("train", 2, 8, "grace")
            await world.api.create(observer.JOBS, made)
            seen = await until(
                lambda: observer.cluster(world), lambda seen: runs(seen, set())
            )
            before = {number(pod.name): pod for pod in seen.pods}
            old = {pod.uid for pod in seen.pods}
            world.jobs.lose_cache()

            world.nodes[before["0"].node].set_faults((3,))

            await until(
                lambda: observer.pods(world),
                lambda found: (
                    len(found) == 4 and old.isdisjoint(pod.uid for pod in found)
                ),
                within_s=20,
            )
            for _ in range(LOOKS):
                found = await observer.pods(world)
                bound = Counter(number(pod.name) for pod in found if pod.node)
                assert max(bound.values(), default=0) <= 1, found
            world.jobs.find_cache()
            seen = await until(
                lambda: observer.cluster(world),
                lambda seen: runs(seen, old),
                within_s=30,
            )
            after = {number(pod.name): pod for pod in seen.pods}
            told = await observer.event(world, before["0"], "AscendFaultEvicted")
            assert f" of {after['0'].node} are kept for its successor" in told
            assert after["1"].node == before["1"].node
            assert after["1"].real == before["1"].real
