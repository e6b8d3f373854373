"""An API server for the annotator of one product line, and the annotator."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from agent.claims.annotations import Patch
from agent.pods.annotator import Annotator
from kube.errors import KubeError
from scheduler_core.wire.pods import NpuPod
from tests.agent.node import RESOURCE, NodeLedger

SERVED = "18446744073709551615"


class FakeApi:
    """The pods of an API server that takes patches, or does not."""

    def __init__(self, *pods: NpuPod) -> None:
        self.pods = {each.uid: each for each in pods}
        #: those that were taken, and the pods of all
        self.patches: list[Patch] = []
        self.asked: list[str] = []
        self.is_down = False
        self.refused: set[str] = set()
        #: {pod: what its patches are answered}
        self.errors: dict[str, KubeError] = {}
        #: how long a patch takes
        self.answer_s = 0.0
        #: (pod before a patch, pod with it) → what a webhook makes of it
        self.webhook: Callable[[NpuPod, NpuPod], NpuPod] = lambda _before, after: after
        #: called after each patch with what the server has then
        self.on_patched: Callable[[NpuPod], None] = lambda _pod: None

    async def send(self, patch: Patch) -> NpuPod | None:
        self.asked.append(patch.name)
        await asyncio.sleep(self.answer_s)
        if patch.name in self.refused:
            raise KubeError(f"a webhook denies the patch of {patch.name}")
        if patch.name in self.errors:
            raise self.errors[patch.name]
        if self.is_down:
            raise KubeError("API server: connection refused")
        pod = self.pods.get(patch.uid)
        if pod is None:
            return None
        self.patches.append(patch)
        annotations = {**pod.annotations, **patch.annotations}
        after = self.webhook(pod, replace(pod, annotations=annotations))
        self.pods[patch.uid] = after
        self.on_patched(after)
        return after

    def written(self, name: str) -> dict[str, str]:
        annotations = self.pods[f"uid-{name}"].annotations
        return {key: annotations.get(key, "") for key in KEYS}

    def patch_count(self, name: str) -> int:
        return sum(patch.name == name for patch in self.patches)


KEYS = (RESOURCE, "predicate-time", "huawei.com/AscendReal", "huawei.com/kltDev")


def annotator_of(now: NodeLedger, api: FakeApi | None = None, **more: Any) -> Annotator:
    send = {} if api is None else {"send": api.send}
    parts: dict[str, Any] = {"host_ip": lambda: "10.0.0.1", **send, **more}
    return Annotator(now, is_silent=lambda: False, **parts)
