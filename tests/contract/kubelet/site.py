"""Where a kubelet under test is, and what can be done with its node."""

import itertools
import secrets
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kubelet_api.podresources.v1 import api_pb2, api_pb2_grpc
from sandbox.apiclient import ApiClient, ApiStatusError, Object, pod_path
from tests.contract.kubelet.plugin import Plugin, channel
from tests.support import objects
from tests.support.until import equal, until

if TYPE_CHECKING:  # a name of the typed stubs alone
    from kubelet_api.podresources.v1.api_pb2_grpc import PodResourcesListerAsyncStub

NAMESPACE = "default"
#: The pause image's program says its version and ends, as an init container must.
_ENDS = {"command": ["/pause", "-v"]}


class Site:
    """One node: its directories, its API server, and pods made on it."""

    def __init__(
        self,
        *,
        device_dir: Path,
        pod_resources: Path,
        node: str,
        api: ApiClient,
        stack: AsyncExitStack,
    ) -> None:
        self.device_dir = device_dir
        self.pod_resources = pod_resources
        self.node = node
        self.api = api
        self._stack = stack
        self._names = itertools.count()
        self._run = secrets.token_hex(3)
        #: a name of its own for each test, since a real kubelet remembers resources
        self.resource = f"contract.example.com/{self._run}"
        self.image = "registry.k8s.io/pause:3.10"

    @property
    def socket(self) -> Path:
        return self.device_dir / f"{self._run}.sock"

    async def plugin(self, socket: Path | None = None, count: int = 8) -> Plugin:
        """A plugin that has registered and whose devices are allocatable."""
        plugin = Plugin(self.resource, count)
        self._stack.push_async_callback(plugin.stop)
        await plugin.serve(socket or self.socket)
        await plugin.register(socket or self.socket)
        await self.until_counts(capacity=count, allocatable=count)
        return plugin

    async def pod(
        self,
        *counts: int,
        init: tuple[int, ...] = (),
        sidecars: tuple[int, ...] = (),
        **spec: object,
    ) -> Object:
        """A pod on the node; one container per count, c0, c1 … (init: i0, s0 …)."""
        always = {"restartPolicy": "Always"}
        fields: Object = {
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
            "initContainers": [
                *(self._container(f"s{i}", n, always) for i, n in enumerate(sidecars)),
                *(self._container(f"i{i}", n, _ENDS) for i, n in enumerate(init)),
            ],
            "containers": [self._container(f"c{i}", n) for i, n in enumerate(counts)],
            **spec,
        }
        name = f"contract-{self._run}-{next(self._names)}"
        body = objects.pod(name, node=self.node, **fields)
        made = await self.api.create(objects.PODS, body)
        self._stack.push_async_callback(self.remove, made)
        return made

    async def running_pod(self, *counts: int, **more: Any) -> Object:
        """A pod on the node that runs."""
        made = await self.pod(*counts, **more)
        await self.until_phase(made, "Running")
        return made

    def _container(self, name: str, count: int, more: Object | None = None) -> Object:
        made = objects.container(name, count, resource=self.resource)
        return {**made, "image": self.image, **(more or {})}

    async def remove(self, pod: Object) -> None:
        try:
            await self.api.delete(pod_path(pod), grace_s=0)
        except ApiStatusError as error:
            if error.status not in {404, 409}:
                raise

    async def delete(self, pod: Object) -> None:
        """Delete gracefully and wait until the pod is gone."""
        await self.api.delete(pod_path(pod))

        async def gone() -> bool:
            try:
                now = await self.api.get(pod_path(pod))
            except ApiStatusError as error:
                return error.status == 404
            return bool(now["metadata"]["uid"] != pod["metadata"]["uid"])

        await until(gone)

    async def until_phase(self, pod: Object, phase: str) -> Object:
        """Wait for the pod's phase; returns its status."""
        reached = await until(
            lambda: self.api.get(pod_path(pod)),
            lambda now: now["status"].get("phase") == phase,
        )
        status: Object = reached["status"]
        return status

    async def counts(self) -> tuple[int, int]:
        """Capacity and allocatable of the test's resource on the node."""
        status = (await self.api.get(f"/api/v1/nodes/{self.node}"))["status"]
        return (
            int(status.get("capacity", {}).get(self.resource, 0)),
            int(status.get("allocatable", {}).get(self.resource, 0)),
        )

    async def until_counts(self, *, capacity: int, allocatable: int) -> None:
        wanted = equal((capacity, allocatable))
        await until(self.counts, wanted)

    async def shown_by_get(self, pod: Object) -> dict[str, list[list[str]]]:
        """What pod-resources `Get` shows: {container: [ids of each entry]}."""
        name = pod["metadata"]["name"]
        asked = api_pb2.GetPodResourcesRequest(pod_name=name, pod_namespace=NAMESPACE)
        async with self._lister() as lister:
            answer = await lister.Get(asked)
        return self._shown(answer.pod_resources)

    async def shown_by_list(self) -> dict[str, dict[str, list[list[str]]]]:
        """What pod-resources `List` shows: {pod: {container: [ids of each entry]}}."""
        async with self._lister() as lister:
            answer = await lister.List(api_pb2.ListPodResourcesRequest())
        return {pod.name: self._shown(pod) for pod in answer.pod_resources}

    async def allocatable(self) -> list[list[str]]:
        """What `GetAllocatableResources` shows: ids of each entry."""
        async with self._lister() as lister:
            asked = api_pb2.AllocatableResourcesRequest()
            answer = await lister.GetAllocatableResources(asked)
        return self._entries(answer.devices)

    @asynccontextmanager
    async def _lister(self) -> AsyncIterator["PodResourcesListerAsyncStub"]:
        async with channel(self.pod_resources) as found:
            yield api_pb2_grpc.PodResourcesListerStub(found)

    def _shown(self, pod: api_pb2.PodResources) -> dict[str, list[list[str]]]:
        return {each.name: self._entries(each.devices) for each in pod.containers}

    def _entries(self, devices: Iterable[api_pb2.ContainerDevices]) -> list[list[str]]:
        return sorted(
            list(entry.device_ids)
            for entry in devices
            if entry.resource_name == self.resource
        )
