import asyncio
import random  # noqa: TID251  # fixed seeds: the test knows the jitter
from dataclasses import replace

import pytest

from agent.claims.annotations import Patch
from agent.pods.annotator import _Delay
from agent.report.reporter import LONGEST_PAUSE_S
from kube.errors import KubeError
from scheduler_core.wire.pods import NpuPod
from service.backoff import Backoff
from tests.agent.annotating import SERVED, FakeApi, annotator_of
from tests.agent.node import RESOURCE, NodeLedger, current, pod
from tests.support.tasks import in_background


async def publish(now: NodeLedger, api: FakeApi) -> None:
    annotator = annotator_of(now, api)
    while await annotator.run_once():
        pass


@pytest.mark.seed("000-11")
async def test_a_served_pod_gets_all_its_keys_in_one_patch() -> None:
    train = pod("train", [0, 1])
    now, api = current(train), FakeApi(train)
    now.mounts_for("train", 0, 1)

    await publish(now, api)

    assert api.written("train") == {
        RESOURCE: "Ascend910-0,Ascend910-1",
        "predicate-time": SERVED,
        "huawei.com/AscendReal": "Ascend910-0,Ascend910-1",
        "huawei.com/kltDev": "Ascend910-0,Ascend910-1",
    }
    assert len(api.patches) == 1


@pytest.mark.seed("000-03")
async def test_a_swap_is_written_so_that_no_held_chip_is_ever_unclaimed() -> None:
    first, second = pod("first", [0, 1], 1), pod("second", [2, 3], 2)
    now, api = current(first, second), FakeApi(first, second)
    now.mounts_for("second", 0, 1)

    await publish(now, api)

    order = [(patch.name, sorted(patch.annotations)) for patch in api.patches]
    configuration = "ascend.kubectl.kubernetes.io/ascend-910-configuration"
    assert order == [
        ("second", [configuration, "huawei.com/AscendReal", "huawei.com/kltDev"]),
        ("first", [RESOURCE]),
        ("second", [RESOURCE, "predicate-time"]),
    ]
    assert api.written("first")[RESOURCE] == "Ascend910-2,Ascend910-3"
    assert api.written("second")[RESOURCE] == "Ascend910-0,Ascend910-1"


@pytest.mark.parametrize("is_gone", [False, True])
async def test_every_patch_names_the_uid_of_its_pod_and_one_that_has_gone_has_none(
    *, is_gone: bool
) -> None:
    train = pod("train", [0])
    now, api = current(train), FakeApi() if is_gone else FakeApi(train)
    now.mounts_for("train", 0)

    await publish(now, api)

    assert {patch.uid for patch in api.patches} == (set() if is_gone else {"uid-train"})


@pytest.mark.looptime
@pytest.mark.parametrize("seed", [1, 120])  # with 120 a timer is a hair early
async def test_an_api_server_that_is_down_is_tried_until_it_is_back(seed: int) -> None:
    train = pod("train", [0])
    now, api = current(train), FakeApi(train)
    api.is_down = True
    now.mounts_for("train", 0)
    jitter = random.Random(seed)  # noqa: S311  # no secret
    annotator = annotator_of(
        now,
        api,
        new_backoff=lambda: Backoff(cap_s=LONGEST_PAUSE_S, rng=jitter),
    )
    async with in_background(annotator.run()):
        await asyncio.sleep(60)
        api.is_down = False
        await asyncio.sleep(60)

    assert api.written("train")["predicate-time"] == SERVED


@pytest.mark.looptime
async def test_a_patch_that_has_to_be_sent_again_is_told_until_none_is_left() -> None:
    first, second = pod("first", [0], 1), pod("second", [1], 2)
    now, api = current(first, second), FakeApi(first, second)
    api.refused = {first.name, second.name}
    outcomes: list[KubeError | None] = []
    annotator = annotator_of(now, api, on_outcome=outcomes.append)
    async with in_background(annotator.run()):
        await asyncio.sleep(1)
        before = set(outcomes)
        now.mounts_for(first.name, 0)
        now.mounts_for(second.name, 1)
        await asyncio.sleep(20)
        both = str(outcomes[-1])
        api.refused = {second.name}
        await asyncio.sleep(20)
        one = str(outcomes[-1])
        now.delete(second.name)
        await asyncio.sleep(20)

    assert before == {None}
    assert both.endswith(first.name)
    assert one.endswith(second.name)
    assert outcomes[-1] is None


@pytest.mark.looptime
async def test_a_pod_whose_patch_is_refused_holds_up_no_other() -> None:
    train, *others = (pod(f"pod-{chip}", [chip], chip + 1) for chip in range(4))
    now, api = current(train, *others), FakeApi(train, *others)
    api.refused.add(train.name)
    now.mounts_for(train.name, 0)
    annotator = annotator_of(now, api)
    async with in_background(annotator.run()):
        await asyncio.sleep(60)

        for chip, other in enumerate(others, start=1):
            now.mounts_for(other.name, chip)
            await asyncio.sleep(0.1)
        written = [api.written(other.name)["predicate-time"] for other in others]
        api.refused.clear()
        await asyncio.sleep(10)

    assert written == [SERVED, SERVED, SERVED]
    assert api.written(train.name)["predicate-time"] == SERVED


@pytest.mark.looptime
async def test_a_patch_that_hangs_is_not_overtaken_by_its_successor() -> None:
    slow, train = pod("slow", [0], 1), pod("train", [1], 2)
    now, api = current(slow, train), FakeApi(slow, train)
    api.refused.add(train.name)
    under_way: list[str] = []
    most = 0

    async def send(patch: Patch) -> NpuPod | None:
        nonlocal most
        under_way.append(patch.name)
        most = max(most, under_way.count(patch.name))
        await asyncio.sleep(9 if patch.name == "slow" else 0)
        under_way.remove(patch.name)
        return await api.send(patch)

    now.mounts_for("slow", 0)
    now.mounts_for("train", 1)
    annotator = annotator_of(now, api, send=send)
    async with in_background(annotator.run()):
        await asyncio.sleep(30)

    assert most == 1
    assert api.written("slow")["predicate-time"] == SERVED


async def test_an_answer_that_comes_late_does_not_bring_back_what_has_ended() -> None:
    train, gone = pod("train", [0], 1), pod("gone", [1], 2)
    now, api = current(train, gone), FakeApi(train, gone)
    now.mounts_for("train", 0)
    now.mounts_for("gone", 1)

    async def send(patch: Patch) -> NpuPod | None:
        answer = await api.send(patch)
        if patch.name == "gone":
            now.delete("gone")
        else:
            now.update(replace(train, phase="Succeeded"))
        return answer

    await annotator_of(now, api, send=send).run_once()

    assert {uid: each.phase for uid, each in now.ledger.pods.items()} == {
        "uid-train": "Succeeded"
    }


@pytest.mark.looptime
async def test_no_pod_gives_a_chip_up_to_one_that_may_have_been_patched() -> None:
    """The answer was lost, and no watch has told yet."""
    before, after = pod("a", [2], 1), pod("b", [2], 2)
    now, api = current(before, after), FakeApi(before, after)
    slots = {
        uid: replace(slot, chips=1 << chip)
        for (uid, slot), chip in zip(now.ledger.slots.items(), (0, 2), strict=True)
    }
    now.replace(replace(now.ledger, slots=slots))
    annotator = annotator_of(now, api)
    annotator._delays["uid-b"] = _Delay(Backoff(), 5.0, KubeError())

    at_once = await annotator.run_once()
    await asyncio.sleep(6)
    later = await annotator.run_once()

    assert (at_once, later) == (0, 1)


async def test_what_was_right_is_written_again_once_it_is_not() -> None:
    train, other = pod("train", [0, 1]), pod("other", [2])
    now, api, host_ips = current(train, other), FakeApi(train, other), ["10.0.0.1"]
    annotator = annotator_of(now, api, host_ip=lambda: host_ips[-1])
    now.mounts_for("train", 0, 1)
    assert [await annotator.run_once(), await annotator.run_once()] == [1, 0]

    right = api.pods["uid-train"]
    edited = {**right.annotations, "huawei.com/kltDev": "Ascend910-7"}
    now.update(replace(right, annotations=edited))
    assert [await annotator.run_once(), await annotator.run_once()] == [1, 0]
    host_ips.append("10.0.0.2")
    assert [await annotator.run_once(), await annotator.run_once()] == [1, 0]
    now.mounts_for("other", 2)
    assert [await annotator.run_once(), await annotator.run_once()] == [1, 0]

    assert [(patch.name, len(patch.annotations)) for patch in api.patches] == [
        ("train", 4),
        ("train", 1),
        ("train", 1),
        ("other", 4),
    ]
