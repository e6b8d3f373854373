import asyncio

import grpc
import pytest

from agent.plugin.servicer import CLAIM_WAIT_S
from kubelet_api.deviceplugin.v1beta1 import api_pb2
from tests.agent.node import EVERY_ID, ids, pod
from tests.agent.plugin.conftest import (
    MakePlugin,
    Plugin,
    allocate_request,
    preference_request,
    visible_in,
)


async def visible(plugin: Plugin, *chips: int) -> str:
    """What the container may see when the kubelet gives out these chips' ids."""
    return visible_in(await plugin.stub.Allocate(allocate_request(*chips)))


def health(answer: api_pb2.ListAndWatchResponse) -> dict[str, str]:
    return {device.ID: device.health for device in answer.devices}


async def test_options_ask_for_preferences_and_not_for_pre_start(
    plugin: MakePlugin,
) -> None:
    made = await plugin()

    options = await made.stub.GetDevicePluginOptions(api_pb2.Empty())

    assert options == api_pb2.DevicePluginOptions(
        get_preferred_allocation_available=True
    )


async def test_the_device_list_says_what_is_when_the_stream_opens_and_when_it_changes(
    plugin: MakePlugin,
) -> None:
    made = await plugin()
    made.store.read_chips(unhealthy=0b1)

    stream = made.stub.ListAndWatch(api_pb2.Empty())
    first = health(await anext(aiter(stream)))
    made.store.read_chips()
    second = health(await anext(aiter(stream)))
    stream.cancel()

    assert first == dict.fromkeys(EVERY_ID, "Healthy") | {"Ascend910-0": "Unhealthy"}
    assert second == dict.fromkeys(EVERY_ID, "Healthy")


async def test_an_id_is_on_the_numa_node_of_the_chip_behind_it(
    plugin: MakePlugin,
) -> None:
    made = await plugin(pod("train", [0]))
    made.numa = (0, 0, 0, 0, 1, 1, 1, 1)
    await made.stub.Allocate(
        allocate_request(7)
    )  # chip 0 is behind id 7 now, and 7 behind id 0

    stream = made.stub.ListAndWatch(api_pb2.Empty())
    told = await anext(aiter(stream))

    assert {
        device.ID: [node.ID for node in device.topology.nodes]
        for device in told.devices
    } == {name: [int(name in ids(0, 4, 5, 6))] for name in EVERY_ID}


async def test_a_slow_reader_of_the_device_list_gets_the_newest(
    plugin: MakePlugin,
) -> None:
    made = await plugin()
    stream = made.stub.ListAndWatch(api_pb2.Empty())
    await anext(aiter(stream))

    for unhealthy in (0b1, 0b11, 0b10):
        made.store.read_chips(unhealthy=unhealthy)
    newest = health(await anext(aiter(stream)))
    stream.cancel()

    assert [name for name, word in newest.items() if word == "Unhealthy"] == [
        "Ascend910-1"
    ]


async def test_nothing_is_said_of_numa_so_that_the_choice_stays_the_schedulers(
    plugin: MakePlugin,
) -> None:
    made = await plugin()
    stream = made.stub.ListAndWatch(api_pb2.Empty())

    answer = await anext(aiter(stream))
    stream.cancel()

    assert not any(device.HasField("topology") for device in answer.devices)


async def test_the_kubelet_is_steered_to_the_chips_of_the_oldest_claim(
    plugin: MakePlugin,
) -> None:
    made = await plugin(pod("late", [0, 1], 20), pod("early", [6, 7], 10))

    answer = await made.stub.GetPreferredAllocation(preference_request(EVERY_ID, 2))

    assert tuple(answer.container_responses[0].deviceIDs) == ids(6, 7)


@pytest.mark.seed("000-10")
async def test_the_container_sees_the_chips_of_its_claim_whatever_ids_the_kubelet_took(
    plugin: MakePlugin,
) -> None:
    made = await plugin(pod("early", [0, 1], 10))

    assert await visible(made, 7, 0) == "0,1"


async def test_a_simulated_chip_has_a_device_that_stands_in_for_it(
    plugin: MakePlugin,
) -> None:
    made = await plugin(pod("early", [0, 5], 10), pod("late", [1, 2], 20))
    bare = await made.stub.Allocate(allocate_request(3, 4))
    made.stand_in = "/dev/null"

    answer = await made.stub.Allocate(allocate_request(6, 7))

    assert list(bare.container_responses[0].devices) == []
    assert list(answer.container_responses[0].devices) == [
        api_pb2.DeviceSpec(container_path=path, host_path="/dev/null", permissions="rw")
        for path in ("/dev/davinci1", "/dev/davinci2")
    ]


@pytest.mark.seed("000-05")
async def test_each_allocate_takes_the_earliest_claim_of_its_count(
    plugin: MakePlugin,
) -> None:
    made = await plugin(
        pod("late", [0, 1], 100),
        pod("other-count", [7], 1),
        pod("early", [4, 5], 9),  # by the number, not by the text
    )

    assert [await visible(made, 2, 3), await visible(made, 6, 7)] == ["4,5", "0,1"]


async def test_the_hold_is_in_the_journal_before_allocate_is_answered(
    plugin: MakePlugin,
) -> None:
    made = await plugin(pod("early", [3], 10))

    await visible(made, 3)

    assert made.journalled == [(1,)]
    assert len(made.allocate_s) == 1


async def test_a_claim_that_comes_a_moment_later_is_waited_for(
    plugin: MakePlugin,
) -> None:
    made = await plugin()

    answer = asyncio.create_task(visible(made, 0))
    await asyncio.sleep(0.05)
    made.store.update(pod("late", [5], 10))

    assert await answer == "5"
    assert made.sight.kubelet_was_asked == 0


async def test_a_claim_that_the_watch_does_not_bring_is_read_from_the_kubelet(
    plugin: MakePlugin,
) -> None:
    made = await plugin()
    made.sight.kubelet_pods = [pod("late", [5], 10)]

    assert await visible(made, 0) == "5"


async def test_without_any_claim_the_refusal_says_what_to_do(
    plugin: MakePlugin,
) -> None:
    made = await plugin()

    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await visible(made, 0)

    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert refused.value.details() == (
        "no pod on this node has a claim for 1 huawei.com/Ascend910: annotations "
        "huawei.com/Ascend910 and predicate-time are missing, so the pod did not "
        "come through the Ascend scheduler; do not set spec.nodeName, and name a "
        "scheduler that calls the Ascend extender in spec.schedulerName (on a node "
        "without such a scheduler the agent needs --mode standalone)"
    )


async def test_allocate_does_not_wait_again_for_what_the_preference_waited_for(
    plugin: MakePlugin,
) -> None:
    made = await plugin()
    now = asyncio.get_running_loop().time

    started = now()
    await made.stub.GetPreferredAllocation(preference_request(ids(0), 1))
    with pytest.raises(grpc.aio.AioRpcError):
        await visible(made, 0)

    assert now() - started < 2 * CLAIM_WAIT_S


async def test_the_stream_ends_when_the_servicer_is_closed(plugin: MakePlugin) -> None:
    made = await plugin()
    stream = made.stub.ListAndWatch(api_pb2.Empty())
    await anext(aiter(stream))

    made.servicer.close()

    assert [message async for message in stream] == []
    assert made.servicer.streams == 0


async def test_the_chip_of_a_pod_deleted_by_force_waits_for_its_processes(
    plugin: MakePlugin,
) -> None:
    made = await plugin(pod("train", [0]))
    assert await visible(made, 0) == "0"
    made.store.shows("train", main=(0,))
    made.store.delete("train")
    made.store.update(pod("next", [0], 2))
    made.left["uid-train"] = (4711,)

    assert await visible(made, 0) == "1"
