"""A chip breaks under a job of two pods, from the driver's file to the pods' events."""

from collections.abc import Sequence
from pathlib import Path

from sandbox.inspect import pods
from sandbox.world import Commands, World, running
from sandbox.world.world import ExtenderPlace, extender_command
from tests.support.servers import short_folder
from tests.support.until import until

EVENTS = "/api/v1/namespaces/default/events"
NODES = ("n1", "n2", "n3")


def reporting(place: ExtenderPlace) -> Sequence[str]:
    return (*extender_command(place), "--rescheduling", "report")


async def told(world: World, name: str) -> dict[str, str]:
    """{reason: message} of the warnings that a pod has."""
    return {
        event["reason"]: event["message"]
        for event in await world.api.items(EVENTS)
        if event["involvedObject"]["name"] == name and event["type"] == "Warning"
    }


async def test_the_pod_is_told_what_would_be_done_and_goes_on() -> None:
    with short_folder() as below:
        async with running(
            NODES, Commands(extender=reporting), below=Path(below)
        ) as world:
            made = [pods.manifest(name, 8) for name in ("a", "b")]
            for pod in made:
                meta = pod["metadata"]
                meta["labels"] = {"fault-scheduling": "grace"}
                meta["annotations"] = {
                    "ascend-affinity/job": "train",
                    "ascend-affinity/job-size": "2",
                }
            await pods.create(world, *made)
            seen = await pods.settled(world, ("a", "b"))
            nodes = {name: seen.pod(name).node for name in ("a", "b")}
            (spare,) = {*NODES} - {*nodes.values()}

            world.nodes[nodes["a"]].set_faults((3,))

            found = await until(
                lambda: told(world, "a"),
                lambda reasons: {"NpuUnhealthy", "AscendWouldMove"} <= reasons.keys(),
            )
            text = found["AscendWouldMove"]
            assert text.startswith("chip 3 of this pod is broken (")
            assert (
                f"Found places: a on {spare} (chips 0,1,2,3,4,5,6,7); 1 would" in text
            )
            assert await told(world, "b") == {}
            after = await pods.settled(world, ("a", "b"))
            assert {name: after.pod(name).node for name in ("a", "b")} == nodes
