"""Nothing that the kubelet asks waits for long: rules 12 and 13, in simulated time."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import replace

import pytest

from agent.claims.events import PodUpdated
from agent.plugin.allocate_activity import NEXT_WITHIN_S
from agent.plugin.server import DRAIN_S
from agent.plugin.servicer import Servicer
from kubelet_api.deviceplugin.v1beta1 import api_pb2
from service.clock import loop_s
from tests.agent.node import (
    EVERY_ID,
    NodeLedger,
    confirmed,
    current,
    ids,
    pod,
    standalone_node,
)
from tests.agent.plugin.conftest import (
    Sight,
    allocate_request,
    preference_request,
    servicer_of,
    visible_in,
)
from tests.support.tasks import in_background

pytestmark = pytest.mark.looptime

ALL = 0b1111_1111


class RefusedError(Exception):
    """What `abort` raises, as gRPC's does."""


class Call:
    """The context of one RPC."""

    async def abort(self, code: object, text: str) -> None:
        raise RefusedError(text)


async def allocate(asked: Servicer, *chips: int) -> str:
    answer = await asked.Allocate(allocate_request(*chips), Call())  # type: ignore[arg-type]  # all it uses
    return visible_in(answer)


async def prefer(asked: Servicer, size: int) -> tuple[str, ...]:
    request = preference_request(EVERY_ID, size)
    answer = await asked.GetPreferredAllocation(request, Call())
    return tuple(answer.container_responses[0].deviceIDs)


async def followed(asked: Servicer) -> AsyncGenerator[object, None]:
    """The stream of a kubelet that follows the device list."""
    stream = asked.ListAndWatch(api_pb2.Empty(), Call())
    await anext(stream)
    assert isinstance(stream, AsyncGenerator)
    return stream


async def test_without_a_claim_allocate_is_refused_after_a_second() -> None:
    with pytest.raises(RefusedError, match="no pod on this node has a claim"):
        await allocate(servicer_of(current()), 0)

    assert loop_s() == pytest.approx(1.0, abs=0.01)


async def test_without_a_claim_a_preference_is_answered_after_a_second() -> None:
    assert await prefer(servicer_of(current()), 2) == ()

    assert loop_s() == pytest.approx(1.0, abs=0.01)


async def test_a_claim_that_comes_within_the_second_is_served_as_it_comes() -> None:
    now = current()
    late = asyncio.get_running_loop().call_later(
        0.9, now.apply, PodUpdated(pod("late", [5]))
    )

    assert await allocate(servicer_of(now), 0) == "5"

    assert loop_s() == pytest.approx(late.when(), abs=0.01)


async def test_a_claim_that_comes_within_the_second_is_preferred_as_it_comes() -> None:
    now = current()
    asyncio.get_running_loop().call_later(0.9, now.apply, PodUpdated(pod("late", [5])))

    assert await prefer(servicer_of(now), 1) == ids(5)


async def test_preference_and_allocate_of_one_pod_wait_for_one_second_together() -> (
    None
):
    asked = servicer_of(current())

    await prefer(asked, 1)
    with pytest.raises(RefusedError):
        await allocate(asked, 0)

    assert loop_s() == pytest.approx(1.0, abs=0.01)


async def test_what_only_the_kubelet_knows_is_served_after_the_second() -> None:
    asked = servicer_of(current(), sight=Sight(kubelet_pods=[pod("train", [5])]))

    assert await allocate(asked, 0) == "5"

    assert loop_s() == pytest.approx(1.0, abs=0.01)


async def test_an_api_server_that_is_not_followed_is_asked_again_at_once() -> None:
    now = current()

    class Back(Sight):
        """An API server that is back, and had a pod bound meanwhile."""

        def hurry(self) -> None:
            now.update(pod("train", [5]))

    assert await allocate(servicer_of(now, sight=Back()), 0) == "5"
    assert loop_s() == pytest.approx(0.0, abs=0.01)


async def test_a_preference_has_the_api_server_asked_again_as_well() -> None:
    sight = Sight()

    await prefer(servicer_of(current(pod("train", [5])), sight=sight), 1)
    assert sight.was_hurried == 0
    await prefer(servicer_of(current(), sight=sight), 1)
    assert sight.was_hurried == 1


async def test_who_has_not_followed_the_api_server_says_so() -> None:
    asked = servicer_of(current(), sight=Sight(silent_s=3.2))

    with pytest.raises(RefusedError, match=r"not been able to follow .* for 4 s"):
        await allocate(asked, 0)


async def test_a_running_allocate_is_let_finish_for_twenty_seconds_at_most() -> None:
    async def never() -> None:
        await asyncio.Event().wait()

    asked = servicer_of(current(pod("train", [0])), write_journal=never)
    stream = await followed(asked)
    call = asyncio.create_task(allocate(asked, 0))
    await asyncio.sleep(0)

    await asked.wait_until_answered(DRAIN_S)

    assert loop_s() == pytest.approx(20.0, abs=0.03)
    call.cancel()
    await stream.aclose()


async def test_a_running_allocate_is_not_waited_for_longer_than_it_takes() -> None:
    async def slow() -> None:
        await asyncio.sleep(0.2)

    asked = servicer_of(current(pod("train", [0])), write_journal=slow)
    stream = await followed(asked)
    call = asyncio.create_task(allocate(asked, 0))
    await asyncio.sleep(0)

    await asked.wait_until_answered(DRAIN_S)

    assert loop_s() == pytest.approx(0.2 + NEXT_WITHIN_S, abs=0.1)
    assert await call == "0"
    await stream.aclose()


async def test_the_allocate_that_follows_a_preference_is_waited_for() -> None:
    now = current(pod("train", [0]))
    asked = servicer_of(now)
    stream = await followed(asked)
    await prefer(asked, 1)
    asyncio.get_running_loop().call_later(1.0, asyncio.create_task, allocate(asked, 0))

    await asked.wait_until_answered(DRAIN_S)

    assert loop_s() == pytest.approx(1.0 + NEXT_WITHIN_S, abs=0.1)
    assert len(now.ledger.holds) == 1
    await stream.aclose()


@pytest.mark.parametrize("is_followed", [True, False])
async def test_a_kubelet_that_asks_nothing_or_has_hung_up_is_not_waited_for(
    *, is_followed: bool
) -> None:
    asked = servicer_of(current(pod("train", [0])))
    stream = await followed(asked)
    if not is_followed:
        await prefer(asked, 1)
        await stream.aclose()

    await asked.wait_until_answered(DRAIN_S)

    assert loop_s() < 0.1
    await stream.aclose()


def ended() -> NodeLedger:
    """A node without a scheduler, whose one pod with processes has just ended."""
    now = standalone_node(pod("train", range(8)))
    now.mounts_for("train", *range(8))
    now.read_chips(busy=ALL)
    now.becomes("train", "Succeeded")
    now.update(replace(pod("next", range(8)), annotations={}))
    return now


class Looks:
    """A driver that looks each second for 0.3 s, and at once when it is asked."""

    def __init__(self, now: NodeLedger) -> None:
        self._now = now
        self._asked = asyncio.Event()
        self.busy = ALL  # mask: the chips with processes

    def look_now(self) -> None:
        self._asked.set()

    async def run(self) -> None:
        while True:
            self._asked.clear()
            began_s, busy = self._now.now_s + 0.5, self.busy
            await asyncio.sleep(0.3)
            self._now.read_chips(busy=busy, began_s=began_s)
            with suppress(TimeoutError):
                async with asyncio.timeout(0.7):
                    await self._asked.wait()


@pytest.mark.parametrize("tenths", range(10))
@pytest.mark.parametrize("prefers", [False, True])
async def test_at_each_phase_of_the_look_the_successor_of_a_pod_is_served(
    tenths: int, *, prefers: bool
) -> None:
    now = standalone_node(pod("train", range(8)))
    now.mounts_for("train", *range(8))
    looks = Looks(now)
    asked = servicer_of(now, look_now=looks.look_now)
    async with in_background(looks.run()):
        await asyncio.sleep(2 + tenths / 10)
        looks.busy = 0
        now.becomes("train", "Succeeded")
        now.update(replace(pod("next", range(8)), annotations={}))
        started_s = loop_s()
        healthy = now.unhealthy_ids()

        preferred = await prefer(asked, 8) if prefers else EVERY_ID
        visible = await allocate(asked, *range(8))

    assert (healthy, preferred, visible) == ((), EVERY_ID, "0,1,2,3,4,5,6,7")
    assert loop_s() - started_s < 0.61  # the look under way, and one more


@pytest.mark.parametrize("tenths", range(10))
async def test_at_each_phase_of_the_look_a_process_that_is_left_refuses(
    tenths: int,
) -> None:
    now = standalone_node(pod("train", range(8)))
    now.mounts_for("train", *range(8))
    looks = Looks(now)
    async with in_background(looks.run()):
        await asyncio.sleep(2 + tenths / 10)
        looks.busy = 0b1000
        now.becomes("train", "Succeeded")
        now.update(replace(pod("next", range(8)), annotations={}))

        with pytest.raises(RefusedError, match="too few chips are free"):
            await allocate(servicer_of(now, look_now=looks.look_now), *range(8))

    assert now.unhealthy_ids() == ids(3)


async def test_a_driver_that_does_not_look_in_time_is_waited_for_once() -> None:
    now, asked_count = ended(), list[float]()

    async def ask() -> None:
        asked = servicer_of(now, look_now=lambda: asked_count.append(loop_s()))
        await prefer(asked, 8)
        with pytest.raises(RefusedError, match="has not shown in time"):
            await allocate(asked, *range(8))

    await ask()

    assert loop_s() == pytest.approx(1.0, abs=0.01)
    assert asked_count
    assert now.unhealthy_ids() == ()


async def test_the_successor_of_a_pod_waits_for_a_look_that_begins_after_its_end() -> (
    None
):
    now = ended()
    asyncio.get_running_loop().call_later(0.6, now.read_chips)

    assert await allocate(servicer_of(now), *range(8)) == "0,1,2,3,4,5,6,7"
    assert loop_s() == pytest.approx(0.6, abs=0.01)


async def test_a_preference_waits_for_such_a_look_too() -> None:
    now = ended()
    asyncio.get_running_loop().call_later(0.6, now.read_chips)

    assert await prefer(servicer_of(now), 8) == EVERY_ID
    assert loop_s() == pytest.approx(0.6, abs=0.01)


@pytest.mark.parametrize("left", [{}, {"uid-train": (4711,)}])
async def test_what_a_pod_has_left_is_asked_also_if_its_end_is_heard_of_late(
    left: dict[str, tuple[int, ...]],
) -> None:
    now = confirmed()

    def hear() -> None:
        now.delete("train")
        now.read_chips()
        now.update(pod("next", [0], 2))

    asyncio.get_running_loop().call_later(0.3, hear)

    visible = await allocate(servicer_of(now, left=left), 0)

    assert visible == ("1" if left else "0")
