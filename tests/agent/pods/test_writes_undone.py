"""What others do to annotations that were written: each key, each way (F11)."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from kube.write_history import FREE_REPEATS, LONGEST_PAUSE_S, UNDONE_WITHIN_S
from scheduler_core.wire import annotations
from scheduler_core.wire.pods import NpuPod
from tests.agent.annotating import SERVED, FakeApi, annotator_of
from tests.agent.node import RESOURCE, NodeLedger, current, pod
from tests.support.tasks import in_background

pytestmark = pytest.mark.looptime

#: Most patches of one pod in a minute, whatever becomes of them.
MOST = 20
OTHER_TEXT = "Ascend910-7"
KEYS = (
    RESOURCE,
    annotations.PREDICATE_TIME,
    annotations.ASCEND_REAL,
    annotations.KLT_DEV,
    annotations.CONFIGURATION,
)


#: Begins to do something to a key of the pod `train`.
Meddler = Callable[[NodeLedger, FakeApi, str], None]


def changed(made: NpuPod, key: str) -> NpuPod:
    return replace(made, annotations={**made.annotations, key: OTHER_TEXT})


def kept_out(before: NpuPod, after: NpuPod, key: str) -> NpuPod:
    """The pod with a patch, but for one key."""
    texts = {name: text for name, text in after.annotations.items() if name != key}
    if key in before.annotations:
        texts[key] = before.annotations[key]
    return replace(after, annotations=texts)


def drops(now: NodeLedger, api: FakeApi, key: str) -> None:
    """A webhook takes a key out of every patch."""
    if key == RESOURCE:  # otherwise it is right from the beginning
        api.pods["uid-train"] = changed(api.pods["uid-train"], key)
        now.update(api.pods["uid-train"])
    api.webhook = lambda before, after: (
        kept_out(before, after, key) if after.name == "train" else after
    )


def rewrites(_now: NodeLedger, api: FakeApi, key: str) -> None:
    """A webhook gives a key another text."""
    api.webhook = lambda _before, after: (
        changed(after, key) if after.name == "train" else after
    )


def undoes(after_s: float) -> Meddler:
    """Another controller changes a key so long after each patch."""

    def begin(now: NodeLedger, api: FakeApi, key: str) -> None:
        def undo() -> None:
            api.pods["uid-train"] = changed(api.pods["uid-train"], key)
            now.update(api.pods["uid-train"])

        def see(patched: NpuPod) -> None:
            if patched.name == "train":
                asyncio.get_running_loop().call_later(after_s, undo)

        api.on_patched = see

    return begin


def end(api: FakeApi) -> None:
    """Nobody meddles any more."""
    api.webhook = lambda _before, after: after
    api.on_patched = lambda _made: None


MEDDLERS = {
    "dropped": drops,
    "rewritten": rewrites,
    "undone at once": undoes(0.001),
    "undone soon": undoes(0.3),
    "undone later": undoes(2.5),
}


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("meddles", MEDDLERS.values(), ids=MEDDLERS)
async def test_a_write_that_does_not_last_has_pauses_and_holds_up_no_other_pod(
    key: str,
    meddles: Meddler,
    caplog: pytest.LogCaptureFixture,
) -> None:
    train, other = pod("train", [0], 1), pod("other", [1], 2)
    now, api = current(train, other), FakeApi(train, other)
    api.answer_s = 0.01
    now.mounts_for("train", 0)
    meddles(now, api, key)
    async with in_background(annotator_of(now, api).run()):
        await asyncio.sleep(30)
        now.mounts_for("other", 1)
        await asyncio.sleep(1)
        others = api.written("other")
        await asyncio.sleep(29)
        count = api.patch_count("train")
        end(api)
        await asyncio.sleep(LONGEST_PAUSE_S + 3)

    assert count <= MOST
    assert others["predicate-time"] == SERVED
    assert set(api.written("train").values()) == {"Ascend910-0", SERVED}
    assert now.written() == {}
    assert any(key in str(vars(record)) for record in caplog.records)


async def test_a_key_that_is_never_kept_holds_up_no_swap() -> None:
    """Its pod's claim is known all the while, so others may rely on it."""
    first, second = pod("first", [0, 1], 1), pod("second", [2, 3], 2)
    now, api = current(first, second), FakeApi(first, second)
    api.answer_s = 0.01
    api.webhook = lambda before, after: kept_out(before, after, annotations.KLT_DEV)
    now.mounts_for("second", 0, 1)
    async with in_background(annotator_of(now, api).run()):
        await asyncio.sleep(5)

    assert api.written("first")[RESOURCE] == "Ascend910-2,Ascend910-3"
    assert api.written("second")[RESOURCE] == "Ascend910-0,Ascend910-1"


@pytest.mark.parametrize("key", [annotations.KLT_DEV, annotations.CONFIGURATION])
async def test_a_key_that_is_never_kept_holds_up_no_news_of_its_pod(key: str) -> None:
    train, host_ips = pod("train", [0]), ["10.0.0.1"]
    now, api = current(train), FakeApi(train)
    api.answer_s = 0.01
    now.mounts_for("train", 0)
    drops(now, api, key)
    annotator = annotator_of(now, api, host_ip=lambda: host_ips[-1])
    async with in_background(annotator.run()):
        await asyncio.sleep(10 * LONGEST_PAUSE_S)
        end(api)
        host_ips.append("10.0.0.2")
        now.wake()
        await asyncio.sleep(0.1)

    text = api.pods["uid-train"].annotations[annotations.CONFIGURATION]
    assert '"host_ip":"10.0.0.2"' in text


async def test_what_the_watch_shows_late_is_written_again_at_once_and_blames_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    train = pod("train", [0])
    now, api = current(train), FakeApi(train)
    now.mounts_for("train", 0)
    async with in_background(annotator_of(now, api).run()):
        for _ in range(FREE_REPEATS):
            await asyncio.sleep(0.05)
            now.update(train)  # a version from before the patch
        await asyncio.sleep(0.05)
        count = api.patch_count("train")
        known = now.ledger.pods["uid-train"].annotations

    assert count == 1 + FREE_REPEATS
    assert known == api.pods["uid-train"].annotations
    assert caplog.records == []


async def test_what_is_undone_after_a_long_time_is_written_again_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As by a person, or by a controller that looks each few minutes."""
    train = pod("train", [0])
    now, api = current(train), FakeApi(train)
    now.mounts_for("train", 0)
    async with in_background(annotator_of(now, api).run()):
        await asyncio.sleep(1)
        for _ in range(10):
            await asyncio.sleep(UNDONE_WITHIN_S)
            api.pods["uid-train"] = changed(
                api.pods["uid-train"], annotations.ASCEND_REAL
            )
            now.update(api.pods["uid-train"])
            await asyncio.sleep(0.05)
            assert now.written() == {}

    assert caplog.records == []
