"""An agent that is wrong in the way that is easiest to miss.

It mounts the chips whose ids the kubelet sends, and afterwards makes every
annotation and its ConfigMap agree with that. Nothing contradicts anything, only
that nobody has what the scheduler chose.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import grpc.aio
from prometheus_client import CollectorRegistry, Counter

from kubelet_api.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc
from kubelet_api.podresources.v1 import api_pb2 as resources_pb2
from kubelet_api.podresources.v1 import api_pb2_grpc as resources_grpc
from sandbox.apiclient import ApiClient
from scheduler_core.products.table import ATLAS_800_TRAINING as PRODUCT
from scheduler_core.wire import annotations, deviceinfo, inventory
from scheduler_core.wire.deviceinfo import Affinity, DeviceInfo
from service import clock
from service.endpoints import Endpoints

SOCKET = "planted.sock"
CONFIGMAPS = "/api/v1/namespaces/kube-system/configmaps"
CHIPS = tuple(range(PRODUCT.chip_count))
NAMES = [annotations.chip_name(chip, PRODUCT) for chip in CHIPS]


class Plugin(api_pb2_grpc.DevicePluginServicer):
    """Every id is its chip, whoever the pod may be."""

    async def GetDevicePluginOptions(
        self, request: api_pb2.Empty, context: object
    ) -> api_pb2.DevicePluginOptions:
        del request, context
        return api_pb2.DevicePluginOptions()

    async def ListAndWatch(
        self, request: api_pb2.Empty, context: object
    ) -> AsyncIterator[api_pb2.ListAndWatchResponse]:
        del request, context
        yield api_pb2.ListAndWatchResponse(
            devices=[api_pb2.Device(ID=name, health="Healthy") for name in NAMES]
        )
        await asyncio.Event().wait()

    async def GetPreferredAllocation(
        self, request: api_pb2.PreferredAllocationRequest, context: object
    ) -> api_pb2.PreferredAllocationResponse:
        raise NotImplementedError  # the options say so

    async def PreStartContainer(
        self, request: api_pb2.PreStartContainerRequest, context: object
    ) -> api_pb2.PreStartContainerResponse:
        raise NotImplementedError  # ditto

    async def Allocate(
        self, request: api_pb2.AllocateRequest, context: object
    ) -> api_pb2.AllocateResponse:
        del context
        return api_pb2.AllocateResponse(
            container_responses=[
                api_pb2.ContainerAllocateResponse(
                    envs={"ASCEND_VISIBLE_DEVICES": ",".join(numbers(each.devices_ids))}
                )
                for each in request.container_requests
            ]
        )


class Scribe:
    """Makes the cluster believe what was mounted."""

    def __init__(self, api: ApiClient, node: str) -> None:
        self._api = api
        self._node = node
        self._sequence = 0

    async def introduce(self) -> None:
        """Have the node's chips known."""
        base = inventory.render(CHIPS, PRODUCT)
        marks = {"metadata": {"annotations": {inventory.BASE_DEVICE_INFOS: base}}}
        await self._api.patch(f"/api/v1/nodes/{self._node}", marks)
        meta = {
            "name": deviceinfo.configmap_name(self._node),
            "labels": dict(deviceinfo.LABELS),
        }
        body = {"metadata": meta, "data": self._told({})}
        await self._api.create(CONFIGMAPS, body)

    async def tell(self, mounted: dict[tuple[str, str], tuple[int, ...]]) -> None:
        """Write what is mounted, as {(namespace, pod): chips}."""
        for (namespace, pod), chips in mounted.items():
            text = annotations.render_chips(chips, PRODUCT)
            marks = {
                PRODUCT.resource: text,
                annotations.ASCEND_REAL: text,
                annotations.PREDICATE_TIME: str(annotations.SERVED),
            }
            path = f"/api/v1/namespaces/{namespace}/pods/{pod}"
            await self._api.patch(path, {"metadata": {"annotations": marks}})
        name = deviceinfo.configmap_name(self._node)
        await self._api.patch(f"{CONFIGMAPS}/{name}", {"data": self._told(mounted)})

    def _told(self, mounted: dict[tuple[str, str], tuple[int, ...]]) -> dict[str, str]:
        held = tuple(sorted(chip for chips in mounted.values() for chip in chips))
        free = tuple(chip for chip in CHIPS if chip not in held)
        self._sequence += 1
        return deviceinfo.render(
            DeviceInfo(available=free, update_time=int(clock.wall_s())),
            Affinity(held=held, sequence=self._sequence),
            PRODUCT,
        )


def numbers(names: Iterable[str]) -> list[str]:
    return sorted(name.removeprefix(PRODUCT.chip_prefix) for name in names)


async def seen(socket: str) -> dict[tuple[str, str], tuple[int, ...]]:
    """Return what the kubelet has given to whom."""
    async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
        stub = resources_grpc.PodResourcesListerStub(channel)
        answer = await stub.List(resources_pb2.ListPodResourcesRequest())
    found: dict[tuple[str, str], tuple[int, ...]] = {}
    for pod in answer.pod_resources:
        devices = [d for c in pod.containers for d in c.devices]
        ids = [number for d in devices for number in numbers(d.device_ids)]
        if ids:
            found[pod.namespace, pod.name] = tuple(sorted(map(int, ids)))
    return found


async def main(
    node: str, kubelet_dir: Path, pod_resources: str, url: str, address_file: Path
) -> None:
    registry = CollectorRegistry()
    served = "ascend_agent_allocate_identity"
    Counter(served, "Never", ["identity"], registry=registry).labels("rechosen")
    server = grpc.aio.server()
    api_pb2_grpc.add_DevicePluginServicer_to_server(Plugin(), server)
    server.add_insecure_port(f"unix:{kubelet_dir / SOCKET}")
    await server.start()
    async with (
        ApiClient(url, "user:planted") as api,
        grpc.aio.insecure_channel(f"unix:{kubelet_dir / 'kubelet.sock'}") as channel,
    ):
        scribe = Scribe(api, node)
        await scribe.introduce()
        await api_pb2_grpc.RegistrationStub(channel).Register(
            api_pb2.RegisterRequest(
                version="v1beta1", endpoint=SOCKET, resource_name=PRODUCT.resource
            )
        )
        async with Endpoints(registry, lambda: None).serving(
            "127.0.0.1:0", address_file
        ):
            told: dict[tuple[str, str], tuple[int, ...]] = {}
            while True:
                mounted = await seen(pod_resources)
                if mounted != told:
                    await scribe.tell(mounted)
                    told = mounted
                await asyncio.sleep(0.1)


if __name__ == "__main__":
    node, kubelet_dir, pod_resources, url, address_file = sys.argv[1:]
    asyncio.run(main(node, Path(kubelet_dir), pod_resources, url, Path(address_file)))
