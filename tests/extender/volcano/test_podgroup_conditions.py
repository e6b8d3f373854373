"""What is written into the conditions of PodGroups that wait, and when."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from extender.cache.cache import Cache
from extender.http.body import BodyError
from extender.volcano import podgroup_conditions, protocol
from kube.errors import ConflictError, ForbiddenError, KubeError, UnreachableError
from service.clock import rfc3339
from tests.extender.volcanos import VolcanoWorld, volcano
from tests.support.caches import cluster
from tests.support.clock import NOW_S
from tests.support.watched import ALL, pod_update, tenant

BODIES = Path(__file__).parents[1] / "bodies"
SAID = "1 without 8 free chips"
#: As Volcano 1.14 writes it at the end of each session.
THEIRS = {
    "type": "Unschedulable",
    "status": "True",
    "transitionID": "3c0938b1-20b7-4e14-859c-b612044dce2d",
    "lastTransitionTime": "2026-11-21T23:29:35Z",
    "reason": "NotEnoughResources",
    "message": "1/1 tasks in gang unschedulable: pod group is not ready, 1 Pending",
}
SCHEDULED = {"type": "Scheduled", "status": "True", "reason": "tasks are ready"}
OURS = {
    "type": "Unschedulable",
    "status": "True",
    "transitionID": str(int(NOW_S * 1e9)),
    "lastTransitionTime": rfc3339(NOW_S),
    "reason": "JobEnqueueFailed",
    "message": SAID,
}


def full() -> Cache:
    """A node without a free chip, and a pod that waits for eight."""
    return cluster(tenant("x", "n1", ALL), pod_update("p", 8))


async def vote(world: VolcanoWorld, *conditions: Mapping[str, object]) -> int:
    """Ask for the PodGroup `g` of one pod, with what Volcano knows of it."""
    world.groups.on.setdefault("g", ("7", list(conditions)))
    version, found = world.groups.on["g"]
    job: dict[str, Any] = {
        "Name": "g",
        "Namespace": "default",
        "PgUID": "uid-g",
        "Tasks": {"uid-p": {}},
        "PodGroup": {
            "metadata": {"name": "g", "resourceVersion": version},
            "status": {"conditions": found},
        },
    }
    answer = await world.ask("jobEnqueueable", job=job)
    await settled()
    return int(answer["status"])


async def settled() -> None:
    """Let what was begun come to its end."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_the_reason_stands_behind_volcanos_own_and_is_written_once() -> None:
    async with volcano(full()) as world:
        assert [await vote(world, THEIRS) for _ in range(3)] == [-1, -1, -1]

        assert world.groups.writes == [("g", [THEIRS, OURS])]


async def test_before_volcano_has_a_condition_of_its_own_nothing_is_written() -> None:
    async with volcano(full()) as world:
        assert await vote(world, SCHEDULED) == -1

        assert world.groups.writes == []


async def test_a_reason_that_changes_is_written_again_but_not_soon() -> None:
    async with volcano(full()) as world:
        await vote(world, THEIRS, OURS | {"message": "another"})
        world.groups.on["g"] = ("20", [THEIRS, OURS | {"message": "another"}])
        await vote(world)

        assert world.groups.writes == [("g", [THEIRS, OURS])]

        world.time.now_s += podgroup_conditions.SPACING_S
        await vote(world)
        assert [len(found) for _, found in world.groups.writes] == [2, 2]


async def test_a_write_that_crosses_volcanos_is_done_again_later() -> None:
    async with volcano(full()) as world:
        world.groups.fates.append(ConflictError(409, "Conflict"))

        await vote(world, THEIRS)
        await vote(world)
        assert world.groups.writes == []

        world.time.now_s += podgroup_conditions.SPACING_S
        await vote(world)
        assert [name for name, _ in world.groups.writes] == ["g"]


async def test_when_there_is_room_the_reason_goes_after_volcano_has_written() -> None:
    async with volcano(cluster(pod_update("p", 8))) as world:
        assert await vote(world, THEIRS, OURS) == 0
        world.volcano.tick()
        await settled()
        assert world.groups.writes == []

        world.groups.on["g"] = ("9", [THEIRS, OURS, SCHEDULED])
        world.time.now_s += podgroup_conditions.SETTLED_S
        for _ in range(2):
            world.volcano.tick()
            await settled()
        assert world.groups.writes == [("g", [THEIRS, SCHEDULED])]


async def test_a_reason_is_taken_away_until_it_is_gone_but_not_for_ever() -> None:
    async with volcano(cluster(pod_update("p", 8))) as world:
        world.groups.fates.extend(UnreachableError("nobody") for _ in range(100))
        await vote(world, THEIRS, OURS)

        for _ in range(20):
            world.time.now_s += podgroup_conditions.SETTLED_S
            world.volcano.tick()
            await settled()

        assert len(world.groups.fates) == 94
        assert world.groups.writes == []


async def test_without_the_right_nothing_more_is_tried() -> None:
    async with volcano(full()) as world:
        refused: list[KubeError] = [ForbiddenError(403, "Forbidden")] * 9
        world.groups.fates.extend(refused)

        for _ in range(3):
            await vote(world, THEIRS)
            world.time.now_s += podgroup_conditions.SPACING_S

        assert len(world.groups.fates) == 8


def test_a_recorded_podgroup_tells_its_version_and_conditions() -> None:
    job = protocol.job_args((BODIES / "volcano-jobEnqueueable.json").read_bytes())
    assert (job.version, list(job.conditions)) == ("321", [])

    later = (BODIES / "volcano-jobEnqueueable-again.json").read_bytes()
    job = protocol.job_args(later)
    sent = json.loads(later)["job"]["PodGroup"]
    assert job.version == sent["metadata"]["resourceVersion"]
    assert list(job.conditions) == sent["status"]["conditions"]
    assert podgroup_conditions.remove_condition(job.conditions) == [job.conditions[0]]


@pytest.mark.parametrize("job", ['{"PodGroup": {"status": {"conditions": 7}}}', "7"])
def test_conditions_that_are_none_are_an_error_with_its_place(job: str) -> None:
    with pytest.raises(BodyError, match=r"body\.job"):
        protocol.job_args(f'{{"job": {job}}}'.encode())
