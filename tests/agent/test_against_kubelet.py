"""The agent with its real gRPC servicer against the embedded kubelet.

Smaller than the machine over the pure ledger: it is slow, and it is there to
show that ledger, servicer, reconciler and publisher together do what the pure
ledger promises. A pod is bound as the extender binds: claim and binding in one
call.
"""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from agent import app
from agent.settings import Settings
from sandbox.apiclient import ApiClient, ApiStatusError
from sandbox.apiserver import ApiServer
from sandbox.kubelet import Kubelet
from scheduler_core import chips as chip_sets
from scheduler_core.products import ATLAS_800_TRAINING as PRODUCT
from scheduler_core.wire import annotations, deviceinfo
from service.settings import load

NODE = "node-1"
RESOURCE = PRODUCT.resource
PODS = "/api/v1/namespaces/default/pods"
SETTLED_S = 15.0
#: Examples of a run in CI; each starts an API server, a kubelet and an agent.
EXAMPLES = int(os.environ.get("KUBELET_EXAMPLES", "8"))

T = TypeVar("T")


class Site:
    """API server, kubelet and agent of one node, all in this process."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.server = ApiServer()
        self.predicate_time = 0
        self.agent: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self.server.start()
        self.api = ApiClient(self.server.url, "user:admin")
        await self.api.__aenter__()
        self.kubelet = Kubelet(
            node_name=NODE,
            api_url=self.server.url,
            token=f"user:system:node:{NODE}",
            root=self.root,
        )
        self.kubelet.switches.hold_admission = True
        await self.kubelet.start()
        (self.root / "token").write_text("user:ascend-agent")
        (self.root / "npu.yaml").write_text(f"product: {PRODUCT.key}\n")
        self.start_agent()
        await self.until_allocatable()

    def start_agent(self) -> None:
        self.agent = asyncio.create_task(
            app.main(
                load(
                    Settings,
                    [
                        *("--node-name", NODE),
                        *("--kubelet-dir", str(self.kubelet.device_plugin_dir)),
                        "--pod-resources-socket",
                        str(self.kubelet.pod_resources_socket),
                        *("--kubelet-url", self.kubelet.url),
                        *("--api-server", self.server.url),
                        *("--service-account-dir", str(self.root)),
                        *("--state-dir", str(self.root)),
                        *("--driver-file", str(self.root / "npu.yaml")),
                        *("--listen", "127.0.0.1:0"),
                        *("--reconcile-period-s", "0.5"),
                    ],
                    {},
                )
            )
        )

    async def stop_agent(self) -> None:
        assert self.agent is not None
        self.agent.cancel()
        with suppress(asyncio.CancelledError):
            await self.agent

    async def restart_agent(self) -> None:
        await self.stop_agent()
        self.start_agent()
        await self.until_allocatable()

    async def stop(self) -> None:
        await self.stop_agent()
        await self.kubelet.stop()
        await self.api.__aexit__(None, None, None)
        await self.server.stop()

    async def until_allocatable(self) -> None:
        async with asyncio.timeout(SETTLED_S):
            while True:
                with suppress(ApiStatusError):
                    node = await self.api.get(f"/api/v1/nodes/{NODE}")
                    if node["status"].get("allocatable", {}).get(RESOURCE) == "8":
                        return
                await asyncio.sleep(0.02)

    async def pods(self) -> list[dict[str, Any]]:
        return [
            pod
            for pod in await self.api.items(PODS)
            if pod["status"]["phase"] not in {"Failed", "Succeeded"}
        ]

    async def bind(self, name: str, count: int) -> bool:
        """Create a pod and bind it to free chips, as the extender does."""
        taken = 0
        for pod in await self.pods():
            for key in (RESOURCE, annotations.ASCEND_REAL):
                text = pod["metadata"].get("annotations", {}).get(key, "")
                if text:
                    chips = annotations.parse_chips(text, PRODUCT)
                    taken |= chip_sets.mask_of(chips)
        report = await self.api.get(
            "/api/v1/namespaces/kube-system/configmaps/"
            + deviceinfo.configmap_name(NODE)
        )
        found = deviceinfo.parse_affinity(
            report["data"][deviceinfo.AFFINITY_KEY], PRODUCT
        )
        taken |= chip_sets.mask_of((*found.held, *found.releasing, *found.lost))
        chosen = chip_sets.choose(PRODUCT, PRODUCT.all_chips & ~taken, count)
        if not chosen or found.lost:
            return False
        self.predicate_time += 1
        await self.api.create(PODS, self.pod(name, count))
        uid = (await self.api.get(f"{PODS}/{name}"))["metadata"]["uid"]
        claim = {
            RESOURCE: annotations.render_chips(chip_sets.ids_of(chosen), PRODUCT),
            annotations.PREDICATE_TIME: str(self.predicate_time),
        }
        await self.api.create(
            f"{PODS}/{name}/binding",
            {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": name, "uid": uid, "annotations": claim},
                "target": {"apiVersion": "v1", "kind": "Node", "name": NODE},
            },
        )
        return True

    @staticmethod
    def pod(name: str, count: int) -> dict[str, Any]:
        limits = {"limits": {RESOURCE: str(count)}}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "containers": [{"name": "main", "image": "x", "resources": limits}]
            },
        }

    def mounted(self) -> dict[str, tuple[int, ...]]:
        """{pod: the chips that its running container sees}."""
        return {
            record.pod: tuple(
                int(chip)
                for chip in record.env.get("ASCEND_VISIBLE_DEVICES", "").split(",")
                if chip
            )
            for record in self.kubelet.containers()
            if record.running
        }

    async def problems(self) -> list[str]:
        """What does not agree: mounts, annotations and holds."""
        mounted = self.mounted()
        chips = [chip for each in mounted.values() for chip in each]
        found = [] if len(chips) == len(set(chips)) else [f"two owners: {mounted}"]
        pods = {pod["metadata"]["name"]: pod for pod in await self.pods()}
        for name, each in mounted.items():
            written = pods[name]["metadata"]["annotations"] if name in pods else {}
            claim = ",".join(f"Ascend910-{chip}" for chip in each)
            if name in pods and (
                written.get(RESOURCE) != claim
                or written.get(annotations.ASCEND_REAL) != claim
                or written[annotations.PREDICATE_TIME] != str(annotations.SERVED)
            ):
                found.append(f"{name} sees {each}, its annotations say {written}")
        report = await self.api.get(
            "/api/v1/namespaces/kube-system/configmaps/"
            + deviceinfo.configmap_name(NODE)
        )
        held = deviceinfo.parse_affinity(
            report["data"][deviceinfo.AFFINITY_KEY], PRODUCT
        ).held
        if sorted(held) != sorted(chips):
            found.append(f"held {held}, mounted {sorted(chips)}")
        return found


class AgainstKubelet(RuleBasedStateMachine):
    """Bind, admit in any order, ignore preferences, reject, delete, restart."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.root = Path(tempfile.mkdtemp(prefix="kb-"))
        self.site = Site(self.root)
        self.waiting: list[str] = []
        self.admitted: list[str] = []
        self.number = 0

    def do(self, what: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(what)

    @initialize()
    def start(self) -> None:
        self.do(self.site.start())

    @rule(count=st.sampled_from((1, 1, 2)))
    def bind(self, count: int) -> None:
        self.number += 1
        name = f"p{self.number}"
        if self.do(self.site.bind(name, count)):
            self.waiting.append(name)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def admit(self, data: st.DataObject) -> None:
        order = data.draw(st.permutations(self.waiting))
        self.do(self.site.kubelet.admit(order))
        self.admitted += order
        self.waiting.clear()

    @rule(chips=st.lists(st.integers(0, 7), min_size=1, max_size=2, unique=True))
    def ignore_the_next_preference(self, chips: list[int]) -> None:
        ids = [f"Ascend910-{chip}" for chip in chips]
        self.site.kubelet.switches.scripted_ids.append(ids)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def reject_one_after_its_allocate(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self.waiting))
        self.site.kubelet.switches.reject_after_allocate.add(name)

    @precondition(lambda self: self.admitted)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self.admitted))
        self.admitted.remove(name)
        self.do(self.site.api.delete(f"{PODS}/{name}"))

    @rule()
    def restart_the_kubelet(self) -> None:
        self.do(self.site.kubelet.restart())
        self.do(self.site.until_allocatable())

    @rule()
    def restart_the_agent(self) -> None:
        self.do(self.site.restart_agent())

    @precondition(lambda self: self.admitted and not self.waiting)
    @rule()
    def everything_agrees_when_it_settles(self) -> None:
        self.do(self.settle())

    async def settle(self) -> None:
        found: list[str] = []
        try:
            async with asyncio.timeout(SETTLED_S):
                while found := await self.site.problems():
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError("\n".join(found)) from None

    def teardown(self) -> None:
        try:
            if self.site.agent is not None:
                if self.waiting:
                    self.do(self.site.kubelet.admit(self.waiting))
                self.do(self.settle())
        finally:
            if self.site.agent is not None:
                self.do(self.site.stop())
            self.loop.close()
            shutil.rmtree(self.root)


@pytest.mark.property
@pytest.mark.timeout(600)
def test_mounts_annotations_and_holds_agree_whatever_the_kubelet_does() -> None:
    run_state_machine_as_test(
        AgainstKubelet,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=12,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
