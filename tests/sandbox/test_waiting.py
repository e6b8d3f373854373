"""A pod that waits for chips gets them when they are released, and not much later."""

from sandbox.world import World
from tests.support.objects import PODS, pod
from tests.support.until import until

#: The scheduler's back-off after two refusals, with room for a busy machine; left
#: alone it would try again after five minutes.
PLACED_WITHIN_S = 120.0


async def until_runs(world: World, name: str) -> None:
    await until(
        lambda: world.api.get(f"{PODS}/{name}"),
        lambda found: found["status"]["phase"] == "Running",
        within_s=PLACED_WITHIN_S,
    )


async def test_a_pod_that_waits_for_a_whole_node_gets_it_when_the_last_pod_has_gone(
    world: World,
) -> None:
    # the chips are released later than the scheduler sees the pod go
    world.kubelets["node-1"].switches.stop_s = 1.0
    await world.api.create(PODS, pod("first", 8))
    await until_runs(world, "first")
    await world.api.create(PODS, pod("second", 8))
    await until(
        lambda: world.api.items("/api/v1/namespaces/default/events"),
        lambda events: "FailedScheduling" in [event["reason"] for event in events],
        within_s=PLACED_WITHIN_S,
    )

    await world.api.delete(f"{PODS}/first")

    await until_runs(world, "second")
