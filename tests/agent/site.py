"""One node in this process: API server, embedded kubelet, and the agent itself."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import aiohttp

from agent import app
from agent.settings import Settings
from sandbox.apiclient import ApiClient, ApiStatusError, Object
from sandbox.apiserver import ApiServer
from sandbox.apiserver.outages import Troubles
from sandbox.kubelet import Kubelet
from sandbox.kubelet.profiles import NEWEST, Profile
from scheduler_core.node import chips as chip_sets
from scheduler_core.products.columns import Product
from scheduler_core.products.table import ATLAS_800_TRAINING as PRODUCT
from scheduler_core.wire import annotations, deviceinfo
from service.settings import load
from tests.support.objects import CONFIGMAPS, NODES, PODS, binding, pod
from tests.support.servers import short_folder
from tests.support.until import equal, until

NODE = "node-1"
REPORT = f"{CONFIGMAPS}/{deviceinfo.configmap_name(NODE)}"
T = TypeVar("T")
RESOURCE = PRODUCT.resource
SETTLED_S = 60.0


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
        self.troubles = Troubles()
        self.server = ApiServer(middlewares=(self.troubles.middleware(),))
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
            process_file=self.root / "npu.processes.yaml",
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

    async def offered(self, *resources: str) -> list[str]:
        """How many devices of each resource the node offers, as its Node says it."""
        status = (await self.api.get(f"{NODES}/{NODE}"))["status"]
        return [status.get("allocatable", {}).get(each, "none") for each in resources]

    async def until_offered(self, **counts: int) -> None:
        """Wait until the node offers so many devices of each `huawei.com/` resource."""
        names = [f"huawei.com/{each}" for each in counts]
        wanted = [str(count) for count in counts.values()]
        await self.until(lambda: self.offered(*names), equal(wanted))

    async def until_allocatable(self, count: int = 8) -> None:
        await self.until_offered(**{self.product.resource.partition("/")[2]: count})

    async def until(
        self, look: Callable[[], Awaitable[T]], is_so: Callable[[T], object] = bool
    ) -> T:
        """Look at the cluster until what is seen is as wanted; return that."""
        return await until(look, is_so, within_s=SETTLED_S, ignoring=ApiStatusError)

    async def until_phase(self, name: str, phase: str) -> Object:
        """Wait until a pod has come so far; return it."""
        return await self.until(
            lambda: self.api.get(f"{PODS}/{name}"),
            lambda found: found["status"].get("phase") == phase,
        )

    async def until_mounted(self, name: str) -> None:
        """Wait until containers of a pod see their chips."""
        await until(lambda: name in self.mounted(), within_s=SETTLED_S)

    async def report(self) -> Object:
        """The ConfigMap in which the agent reports."""
        return await self.api.get(REPORT)

    async def affinity(self) -> deviceinfo.Affinity:
        data = (await self.report())["data"]
        return deviceinfo.parse_affinity(data[deviceinfo.AFFINITY_KEY], self.product)

    async def events(self, reason: str) -> list[Object]:
        found = await self.api.items("/api/v1/events")
        return [event for event in found if event["reason"] == reason]

    async def pods(self) -> list[dict[str, Any]]:
        return [
            pod
            for pod in await self.api.items(PODS)
            if pod["status"]["phase"] not in {"Failed", "Succeeded"}
        ]

    async def bind(self, name: str, count: int) -> bool:
        """Create a pod and bind it to free chips, as the extender does."""
        taken = 0
        for each in await self.pods():
            for key in (self.product.resource, annotations.ASCEND_REAL):
                text = each["metadata"].get("annotations", {}).get(key, "")
                if text:
                    chips = annotations.parse_chips(text, self.product)
                    taken |= chip_sets.mask_of(chips)
        found = await self.affinity()
        taken |= chip_sets.mask_of((*found.held, *found.releasing, *found.lost))
        chosen = chip_sets.choose(self.product, self.product.all_chips & ~taken, count)
        if not chosen or found.lost:
            return False
        text = annotations.render_chips(chip_sets.ids_of(chosen), self.product)
        await self.bind_to(self.pod(name, count), {self.product.resource: text})
        return True

    async def serve(self, name: str, count: int = 2) -> None:
        """Bind a pod to free chips, and see it run on them."""
        assert await self.bind(name, count)
        await self.until_phase(name, "Running")
        await self.settle()

    async def separate(self, names: str) -> None:
        """Name chips that are to be out of service in the ConfigMap."""
        await self.api.patch(REPORT, {"data": {"ManuallySeparateNPU": names}})

    async def bind_to(self, made: Object, claims: dict[str, str]) -> None:
        """Create a pod and bind it to these chips: {resource: their names}."""
        name = made["metadata"]["name"]
        uid = (await self.api.create(PODS, made))["metadata"]["uid"]
        self.predicate_time += 1
        said = {**claims, annotations.PREDICATE_TIME: str(self.predicate_time)}
        bound = binding(name, NODE, uid=uid, annotations=said)
        await self.api.create(f"{PODS}/{name}/binding", bound)

    @staticmethod
    def pod(name: str, count: int) -> Object:
        return pod(name, count)

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
        await until(
            self.problems, lambda found: not found, within_s=SETTLED_S, every_s=0.05
        )

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
        held = (await self.affinity()).held
        if sorted(held) != sorted(chips):
            found.append(f"held {held}, mounted {sorted(chips)}")
        return found


async def page_of(address_file: Path, page: str) -> str:
    """What an agent says on a page; "" while it does not answer."""
    try:
        where = address_file.read_text().strip()  # noqa: ASYNC240  # a few bytes
        async with (
            aiohttp.ClientSession() as http,
            http.get(f"http://{where}/{page}") as answer,
        ):
            return (await answer.text()).strip()
    except (OSError, aiohttp.ClientError):
        return ""


@asynccontextmanager
async def running_site(  # what nodes may differ in
    *more: str,
    machine: str = "",
    beside: str = "",
    count: int | None = 8,
    starts: bool = True,
    of: type[Site] = Site,
    **kinds: Any,
) -> AsyncIterator[Site]:
    """A node whose agent offers its chips.

    Args:
        more: What the agent is told besides; `{root}` is the folder of the node.
        machine: What the driver shows, in place of the product, as YAML.
        beside: What it shows behind that.
        count: Chips that are waited for; None: nothing is.
        starts: Whether there is an agent at first.
        of: The site's class.
        kinds: Further arguments of the site.
    """
    with short_folder() as root:
        site = of(root, *(each.format(root=root) for each in more), **kinds)
        await site.start()
        try:
            shown = machine or (root / "npu.yaml").read_text()
            (root / "npu.yaml").write_text(shown + beside)
            if starts:
                site.start_agent()
                if count is not None:
                    await site.until_allocatable(count)
            yield site
        finally:
            await site.stop()
