"""Both scheduling processes, from the agent's report to the container and back."""

from pathlib import Path

from sandbox.inspect import observer, pods
from sandbox.world import World, running
from scheduler_core.wire import deviceinfo

CONFIGMAPS = f"/api/v1/namespaces/{deviceinfo.CONFIGMAP_NAMESPACE}/configmaps"
EVENTS = f"/api/v1/namespaces/{deviceinfo.CONFIGMAP_NAMESPACE}/events"
SETTINGS = "ascend-extender-settings"


async def test_who_maintains_the_list_makes_no_difference_to_a_pod(
    tmp_path: Path,
) -> None:
    async with running(["node-1"], below=tmp_path) as world:
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
    async def is_so() -> bool:
        return (await observer.node(world, "node-1")).available == chips

    await observer.until(is_so, what=f"{chips} listed")


async def let_the_agents_maintain_it(world: World) -> None:
    """Have the extender take free chips from the list, and wait until it does."""
    data = {"self-maintain-available-card": "false"}
    meta = {"name": SETTINGS, "namespace": deviceinfo.CONFIGMAP_NAMESPACE}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}
    await world.api.create(CONFIGMAPS, config)

    async def is_taken() -> bool:
        said = [event["reason"] for event in await world.api.items(EVENTS)]
        return "AscendSettingsTaken" in said

    await observer.until(is_taken, what="the settings in force")
