"""Both scheduling processes, from the agent's report to the container and back."""

from sandbox.inspect import observer, pods
from sandbox.world import World
from tests.support.objects import CONFIGMAPS, configmap
from tests.support.until import until

EVENTS = "/api/v1/namespaces/kube-system/events"


async def test_who_maintains_the_list_makes_no_difference_to_a_pod(
    world: World,
) -> None:
    await goes_round(world, "first")
    await let_the_agents_maintain_it(world)
    await goes_round(world, "second")


async def goes_round(world: World, name: str) -> None:
    """A pod gets chips, the list follows; it goes, and they are listed again."""
    await lists(world, tuple(range(8)))
    await pods.create(world, pods.manifest(name, 2))
    await pods.settled(world, [name])

    await lists(world, tuple(range(2, 8)))

    await pods.remove(world, [name])
    await lists(world, tuple(range(8)))


async def lists(world: World, chips: tuple[int, ...]) -> None:
    await until(
        lambda: observer.node(world, "node-1"),
        lambda node: node.available == chips,
    )


async def let_the_agents_maintain_it(world: World) -> None:
    """Have the extender take free chips from the list, and wait until it does."""
    data = {"self-maintain-available-card": "false"}
    await world.api.create(CONFIGMAPS, configmap("ascend-extender-settings", data))
    await until(
        lambda: world.api.items(EVENTS),
        lambda events: "AscendSettingsTaken" in [each["reason"] for each in events],
    )
