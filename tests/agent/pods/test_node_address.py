"""What pods are told of their node's address: only what the Node has told (F2).

Each course of the address, each configuration that a pod may have before, and each fate
of the first patch.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from agent.claims.annotations import Patch
from kube.errors import KubeError
from scheduler_core.wire import annotations, configuration
from scheduler_core.wire.addresses import Addresses
from scheduler_core.wire.pods import NpuPod
from tests.agent.annotating import SERVED, FakeApi, annotator_of
from tests.agent.node import current, pod
from tests.support.tasks import in_background

pytestmark = pytest.mark.looptime

A, B, UNKNOWN = "10.0.0.1", "fd00::2", ""
#: Longer than every pause of the annotator.
STEP_S = 30.0

COURSES = ((UNKNOWN,), (UNKNOWN, A), (UNKNOWN, A, B), (A,), (A, B))


def text(host_ip: str, chip: int) -> str:
    return configuration.render("train", "uid-train", host_ip, [chip], Addresses())


BEFORE = {
    "none": {},
    "right": {annotations.CONFIGURATION: text(A, 0)},
    "of another chip": {annotations.CONFIGURATION: text(A, 5)},
    "without an address": {annotations.CONFIGURATION: text(UNKNOWN, 0)},
}


CASES = [
    pytest.param(
        course,
        before,
        id=f"{name}, {' then '.join(course)}",
    )
    for course in COURSES
    for name, before in BEFORE.items()
]


def fails(_api: FakeApi, _patch: Patch) -> None:
    raise KubeError("the API server refuses it")


def is_lost(api: FakeApi, patch: Patch) -> None:
    known = api.pods[patch.uid]
    merged = {**known.annotations, **patch.annotations}
    api.patches.append(patch)
    api.pods[patch.uid] = replace(known, annotations=merged)
    raise KubeError("it was carried out, and the answer was lost")


def lands(_api: FakeApi, _patch: Patch) -> None:
    pass


@pytest.mark.parametrize(("course", "before"), CASES)
@pytest.mark.parametrize("fate", [lands, fails, is_lost])
async def test_a_configuration_has_no_address_but_the_nodes_and_waits_for_it(
    course: tuple[str, ...],
    before: dict[str, str],
    fate: Callable[[FakeApi, Patch], None],
) -> None:
    train = pod("train", [0], annotations=before)
    now, api, host_ips = current(train), FakeApi(train), list(course[:1])
    tries: list[Patch] = []

    async def send(patch: Patch) -> NpuPod | None:
        tries.append(patch)
        if len(tries) == 1:
            fate(api, patch)
        return await api.send(patch)

    seen: list[tuple[str, str]] = []
    now.mounts_for("train", 0)
    annotator = annotator_of(now, api, send=send, host_ip=lambda: host_ips[-1])
    async with in_background(annotator.run()):
        for address in course:
            if address != host_ips[-1]:
                host_ips.append(address)
                now.wake()
            await asyncio.sleep(STEP_S)
            kept = api.pods["uid-train"].annotations
            seen.append((address, kept.get(annotations.CONFIGURATION, "")))
            assert set(api.written("train").values()) == {"Ascend910-0", SERVED}

    assert seen == [
        (
            address,
            text(address, 0) if address else before.get(annotations.CONFIGURATION, ""),
        )
        for address in course
    ]
    written = [
        json.loads(patch.annotations[annotations.CONFIGURATION])["host_ip"]
        for patch in api.patches
        if annotations.CONFIGURATION in patch.annotations
    ]
    assert set(written) <= set(course) - {UNKNOWN}
