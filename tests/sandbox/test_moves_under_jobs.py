"""Chips break under Jobs, and their pods move, from the driver's file to the mount."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from sandbox.inspect import checks, observer
from sandbox.inspect.facts import Cluster, PodFacts
from sandbox.world import Commands, World, running
from sandbox.world.programs import EXTENDER
from sandbox.world.world import ExtenderPlace, extender_command
from tests.support.objects import CONFIGMAPS
from tests.support.servers import short_folder
from tests.support.until import until

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "indexed-job.yaml"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
EVENTS = "/api/v1/namespaces/default/events"
NODES = ("n1", "n2", "n3")


def evicting(place: ExtenderPlace) -> Sequence[str]:
    return (*extender_command(place), "--rescheduling", "evict")


def job(pods: int, **labels: str) -> dict[str, Any]:
    """The Job of the example with so many pods, whose pods have these labels."""
    made: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    made["spec"] |= {"completions": pods, "parallelism": pods}
    named = {key.replace("_", "-"): text for key, text in labels.items()}
    made["spec"]["template"]["metadata"] = {"labels": named}
    return made


async def run(world: World, made: dict[str, Any], pods: int) -> dict[str, PodFacts]:
    """Run a Job; return its pods once all have their chips."""
    assert world.jobs is not None
    world.jobs.first_pause_s = 0.1
    await world.api.create(observer.JOBS, made)
    return await settled(world, pods)


async def settled(
    world: World, pods: int, *, without: Sequence[str] = ()
) -> dict[str, PodFacts]:
    """Return {index: pod} once so many have chips, and none of these UIDs is left."""

    def is_so(seen: Cluster) -> bool:
        ready = [pod for pod in seen.pods if pod.is_confirmed]
        uids = {pod.uid for pod in seen.pods}
        is_whole = len(ready) == len(seen.pods) == pods
        return is_whole and uids.isdisjoint(without) and not checks.agreed(seen)

    seen = await until(lambda: observer.cluster(world), is_so, within_s=30)
    return {pod.name.split("-")[1]: pod for pod in seen.pods}


async def reasons(world: World, name: str) -> set[str]:
    return {
        event["reason"]
        for event in await world.api.items(EVENTS)
        if event["involvedObject"]["name"] == name
    }


async def records(world: World) -> list[str]:
    return [
        each["metadata"]["name"]
        for each in await world.api.items(CONFIGMAPS)
        if each["metadata"]["name"].startswith("ascend-move-")
    ]


@pytest.mark.long
async def test_a_pod_whose_chip_breaks_moves_to_the_place_that_is_kept() -> None:
    with short_folder() as below:
        async with running(
            NODES[:2], Commands(extender=evicting), below=Path(below)
        ) as world:
            before = (await run(world, job(1, fault_scheduling="grace"), 1))["0"]

            world.nodes[before.node].set_faults((3,))

            after = (await settled(world, 1, without=[before.uid]))["0"]
            assert {before.node, after.node} == set(NODES[:2])
            assert {"NpuUnhealthy", "AscendFaultEvicted"} <= await reasons(
                world, before.name
            )
            status = (await world.api.get(f"{observer.JOBS}/train"))["status"]
            assert (status["active"], status.get("failed", 0)) == (1, 0)
            assert len(await records(world)) == 1, "what the job has been through"


async def test_a_job_of_two_moves_and_the_healthy_pod_comes_home() -> None:
    with short_folder() as below:
        async with running(
            NODES, Commands(extender=evicting), below=Path(below)
        ) as world:
            before = await run(world, job(2, fault_scheduling="force"), 2)
            (spare,) = {*NODES} - {pod.node for pod in before.values()}

            world.nodes[before["0"].node].set_faults((3,))

            uids = [pod.uid for pod in before.values()]
            after = await settled(world, 2, without=uids)
            assert (after["0"].node, after["1"].node) == (spare, before["1"].node)
            assert after["1"].real == before["1"].real


async def events_of(world: World, name: str, reason: str) -> list[str]:
    """Messages of the events on a pod for one reason."""
    return [
        event["message"]
        for event in await world.api.items(EVENTS)
        if (event["involvedObject"]["name"], event["reason"]) == (name, reason)
    ]


@pytest.mark.long
async def test_a_budget_and_a_hold_keep_a_pod_and_are_told() -> None:
    with short_folder() as below:
        async with running(
            NODES[:2], Commands(extender=evicting), below=Path(below)
        ) as world:
            before = (await run(world, job(1, fault_scheduling="grace"), 1))["0"]
            path = f"{observer.PODS}/{before.name}"
            budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}
            await world.api.patch(path, {"metadata": {"labels": {"app": "x"}}})
            await world.api.create(
                BUDGETS, {"metadata": {"name": "keep"}, "spec": budget}
            )

            world.nodes[before.node].set_faults((3,))

            (text,) = await until(
                lambda: events_of(world, before.name, "AscendMoveWaits"), bool
            )
            assert "The disruption budget keep " in text
            hold = {"ascend-affinity/hold": "true"}
            await world.api.patch(path, {"metadata": {"annotations": hold}})
            await until(
                lambda: events_of(world, before.name, "AscendMoveWaits"),
                lambda texts: any("holds its evictions" in each for each in texts),
            )
            await world.api.delete(f"{BUDGETS}/keep")
            assert (await settled(world, 1))["0"].uid == before.uid

            none = {"ascend-affinity/hold": None}
            await world.api.patch(path, {"metadata": {"annotations": none}})
            after = (await settled(world, 1, without=[before.uid]))["0"]
            assert after.node != before.node


@pytest.mark.long
async def test_a_job_that_is_held_before_a_fault_stays() -> None:
    with short_folder() as below:
        async with running(
            NODES[:2], Commands(extender=evicting), below=Path(below)
        ) as world:
            made = job(1, fault_scheduling="force")
            notes = {"ascend-affinity/hold": "true"}
            made["spec"]["template"]["metadata"]["annotations"] = notes
            before = (await run(world, made, 1))["0"]

            world.nodes[before.node].set_faults((3,))

            await until(
                lambda: events_of(world, before.name, "AscendMoveWaits"),
                lambda texts: any("holds its evictions" in each for each in texts),
            )
            assert (await settled(world, 1))["0"].uid == before.uid
            assert await records(world) == []


@pytest.mark.long
async def test_another_leader_brings_back_what_has_gone() -> None:
    """It is killed when the pods have gone, and their controller is late."""
    with short_folder() as below:
        async with running(
            (*NODES, "n4"), Commands(extender=evicting), below=Path(below)
        ) as world:
            before = await run(world, job(2, fault_scheduling="grace"), 2)
            assert world.jobs is not None
            world.jobs.delay_s = 4.0

            world.nodes[before["0"].node].set_faults((3,))

            uids = {pod.uid for pod in before.values()}
            await until(
                lambda: observer.cluster(world),
                lambda seen: uids.isdisjoint(pod.uid for pod in seen.pods),
                within_s=20,
            )
            world.crew.kill(EXTENDER)
            await world.crew.restart(EXTENDER)
            world.jobs.delay_s = 0.0

            after = await settled(world, 2, without=[*uids])
            (text,) = await events_of(world, before["0"].name, "AscendFaultEvicted")
            assert f" of {after['0'].node} are kept for its successor" in text
            assert after["1"].node == before["1"].node
            assert after["1"].real == before["1"].real


@pytest.mark.long
async def test_no_pod_is_bound_while_processes_outlive_those_before() -> None:
    """Though `force` makes the pods vanish at once, as their chips seem to be free."""
    with short_folder() as below:
        async with running(
            NODES, Commands(extender=evicting), below=Path(below)
        ) as world:
            before = await run(world, job(2, fault_scheduling="force"), 2)
            home = before["1"].node
            world.kubelets[home].switches.process_lag_s = 3.0

            world.nodes[before["0"].node].set_faults((3,))

            uids = {pod.uid for pod in before.values()}
            await until(
                lambda: observer.cluster(world),
                lambda seen: uids.isdisjoint(pod.uid for pod in seen.pods),
            )
            text = f"of {home} are free, which are kept for it"
            await until(
                lambda: world.api.items(EVENTS),
                lambda found: any(text in each["message"] for each in found),
            )
            assert not any(pod.node for pod in (await observer.cluster(world)).pods)
            after = await settled(world, 2, without=[*uids])
            assert (after["1"].node, after["1"].real) == (home, before["1"].real)
