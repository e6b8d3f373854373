"""One node in this process: API server, embedded kubelet, and the agent itself."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from agent import app
from agent.settings import Settings
from sandbox.apiclient import ApiClient, ApiStatusError
from sandbox.apiserver import ApiServer
from sandbox.kubelet import Kubelet
from sandbox.kubelet.profiles import NEWEST, Profile
from scheduler_core.node import chips as chip_sets
from scheduler_core.products.columns import Product
from scheduler_core.products.table import ATLAS_800_TRAINING as PRODUCT
from scheduler_core.wire import annotations, deviceinfo
from service.settings import load

NODE = "node-1"
RESOURCE = PRODUCT.resource
PODS = "/api/v1/namespaces/default/pods"
SETTLED_S = 60.0


async def until(look: Callable[[], Awaitable[Any]], wanted: object) -> None:
    """Wait until a look at the cluster shows what is wanted."""
    found: object = None
    try:
        async with asyncio.timeout(SETTLED_S):
            while True:
                with suppress(ApiStatusError):
                    found = await look()
                if found == wanted:
                    return
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"expected {wanted!r}, found {found!r}") from None


class Site:
    """API server, kubelet and agent of one node, all in this process."""

    def __init__(
        self,
        root: Path,
        *more: str,
        profile: Profile = NEWEST,
        product: Product = PRODUCT,
    ) -> None:
        """Take the folder of the node, what its agent is told besides, its kinds."""
        self.root = root
        self.profile = profile
        self.more = more
        self.product = product
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
            profile=self.profile,
        )
        await self.kubelet.start()
        (self.root / "token").write_text("user:ascend-agent")
        (self.root / "npu.yaml").write_text(f"product: {self.product.key}\n")

    @property
    def arguments(self) -> list[str]:
        """What the agent of this node is told."""
        return [
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
            *self.more,
        ]

    def start_agent(self) -> None:
        told = load(Settings, self.arguments, {})
        self.agent = asyncio.create_task(app.main(told))

    async def stop_agent(self) -> None:
        assert self.agent is not None
        self.agent.cancel()
        with suppress(asyncio.CancelledError):
            await self.agent

    async def restart_agent(self, count: int = 8) -> None:
        await self.stop_agent()
        await self.until_allocatable(0)  # the kubelet has seen that it went
        self.start_agent()
        await self.until_allocatable(count)

    async def stop(self) -> None:
        if self.agent is not None:
            await self.stop_agent()
        await self.kubelet.stop()
        await self.api.__aexit__(None, None, None)
        await self.server.stop()

    async def until_allocatable(self, count: int = 8) -> None:
        async with asyncio.timeout(SETTLED_S):
            while True:
                with suppress(ApiStatusError):
                    node = await self.api.get(f"/api/v1/nodes/{NODE}")
                    offered = node["status"].get("allocatable", {})
                    if offered.get(self.product.resource) == str(count):
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
            for key in (self.product.resource, annotations.ASCEND_REAL):
                text = pod["metadata"].get("annotations", {}).get(key, "")
                if text:
                    chips = annotations.parse_chips(text, self.product)
                    taken |= chip_sets.mask_of(chips)
        report = await self.api.get(
            "/api/v1/namespaces/kube-system/configmaps/"
            + deviceinfo.configmap_name(NODE)
        )
        found = deviceinfo.parse_affinity(
            report["data"][deviceinfo.AFFINITY_KEY], self.product
        )
        taken |= chip_sets.mask_of((*found.held, *found.releasing, *found.lost))
        chosen = chip_sets.choose(self.product, self.product.all_chips & ~taken, count)
        if not chosen or found.lost:
            return False
        self.predicate_time += 1
        await self.api.create(PODS, self.pod(name, count))
        uid = (await self.api.get(f"{PODS}/{name}"))["metadata"]["uid"]
        claim = {
            self.product.resource: annotations.render_chips(
                chip_sets.ids_of(chosen), self.product
            ),
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
        """{pod: the chips that its containers see}.

        Init containers that have ended count while another one runs: they would
        run again with the same devices.
        """
        found: dict[str, set[int]] = {}
        records = self.kubelet.containers()
        running = {record.pod for record in records if record.running}
        for record in records:
            is_init = record.container == "init" and record.pod in running
            if record.running or is_init:
                text = record.env.get("ASCEND_VISIBLE_DEVICES", "")
                chips = {int(chip) for chip in text.split(",") if chip}
                found.setdefault(record.pod, set()).update(chips)
        return {pod: tuple(sorted(chips)) for pod, chips in found.items()}

    def _asks(self, pod: dict[str, Any]) -> bool:
        return any(
            self.product.resource in container.get("resources", {}).get("limits", {})
            for container in pod["spec"]["containers"]
        )

    async def settle(self) -> None:
        """Wait until everything agrees; fail with what does not."""
        found: list[str] = []
        try:
            async with asyncio.timeout(SETTLED_S):
                while found := await self.problems():
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError("\n".join(found)) from None

    async def problems(self) -> list[str]:
        """What does not agree: mounts, annotations and holds."""
        mounted = self.mounted()
        chips = [chip for each in mounted.values() for chip in each]
        found = [] if len(chips) == len(set(chips)) else [f"two owners: {mounted}"]
        pods = {pod["metadata"]["name"]: pod for pod in await self.pods()}
        for name, each in mounted.items():
            if not each and name in pods and not self._asks(pods[name]):
                continue
            meta = pods[name]["metadata"] if name in pods else {}
            written = meta.get("annotations", {})
            claim = annotations.render_chips(each, self.product)
            if name in pods and (
                written.get(self.product.resource) != claim
                or written.get(annotations.ASCEND_REAL) != claim
                or written[annotations.PREDICATE_TIME] != str(annotations.SERVED)
            ):
                found.append(f"{name} sees {each}, its annotations say {written}")
        report = await self.api.get(
            "/api/v1/namespaces/kube-system/configmaps/"
            + deviceinfo.configmap_name(NODE)
        )
        held = deviceinfo.parse_affinity(
            report["data"][deviceinfo.AFFINITY_KEY], self.product
        ).held
        if sorted(held) != sorted(chips):
            found.append(f"held {held}, mounted {sorted(chips)}")
        return found
