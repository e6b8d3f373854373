"""What does the kubelet say about its node?

One Node object, made when the kubelet starts and kept equal to what plugins
have reported; and by a Lease of its name that it lives.
"""

import asyncio
import random  # noqa: TID251  # the kubelet's order is random; ours has a seed
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import NoReturn

from sandbox.apiclient import FAILURES, ApiClient, ApiStatusError, Object
from sandbox.kubelet.profiles import Profile
from sandbox.kubelet.runtime import Runtime
from sandbox.kubelet.switches import Switches
from sandbox.pods import HOST_IP
from service import clock

_RETRY_S = 0.5
#: kubelet's nodeStatusReportFrequency
_REPORT_S = 300.0
#: nodeLeaseDurationSeconds, and how often the kubelet renews: a quarter of it
#: (pkg/kubelet/kubelet.go, nodeLeaseRenewIntervalFraction).
_LEASE_S = 40
_RENEW_S = _LEASE_S / 4
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_BASE = {
    "cpu": "192",
    "memory": "791621632Ki",
    "ephemeral-storage": "936Gi",
    "hugepages-2Mi": "0",
    "pods": "110",
}
#: {condition: (status, reason, what the kubelet says)}
_CONDITIONS = {
    "MemoryPressure": (
        *("False", "KubeletHasSufficientMemory"),
        "has sufficient memory available",
    ),
    "DiskPressure": ("False", "KubeletHasNoDiskPressure", "has no disk pressure"),
    "PIDPressure": ("False", "KubeletHasSufficientPID", "has sufficient PID available"),
    "Ready": ("True", "KubeletReady", "is posting ready status"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What of a node outlives its kubelet."""

    node_name: str
    api_url: str
    token: str
    authority: Path | None
    root: Path
    labels: Mapping[str, str]
    profile: Profile
    runtime: Runtime
    switches: Switches
    chance: random.Random


class NodeReporter:
    """Keeps the Node object's status equal to the device tables.

    Protects: a resource that was ever published stays listed, with 0 once its
    plugin is gone for good, as the real kubelet leaves it.
    """

    def __init__(
        self,
        client: ApiClient,
        machine: Machine,
        capacity: Callable[[], tuple[dict[str, int], dict[str, int]]],
        *,
        port: int,
        changed: asyncio.Event,
        is_new: bool,
    ) -> None:
        """Report `capacity` of the node.

        Args:
            client: Speaks as the node.
            machine: The node.
            capacity: Capacity and allocatable of plugins' resources, as of now.
            port: Of the kubelet's `/pods`.
            changed: Set when devices have changed.
            is_new: Whether there was no checkpoint: extended resources that an
                earlier life of the node published are then set to 0.
        """
        self._client = client
        self._machine = machine
        self._port = port
        self._capacity = capacity
        self._is_new = is_new
        self._started = clock.rfc3339(clock.wall_s())
        self._published: set[str] = set()
        self._wake = changed

    async def run(self) -> None:
        """Register the node, then report whenever something changes."""
        registered = False
        while True:
            self._wake.clear()
            try:
                if not registered:
                    await self._register()
                    registered = True
                body: Object = {"status": self._status()}
                await self._client.patch_status(self._path, body)
            except FAILURES as error:
                if isinstance(error, ApiStatusError):
                    registered = registered and error.status != HTTPStatus.NOT_FOUND
                await asyncio.sleep(_RETRY_S)
                continue
            try:
                # not wait_for: before Python 3.12 it loses a cancellation that
                # comes together with the wake
                async with asyncio.timeout(_REPORT_S):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _register(self) -> None:
        labels = {
            "kubernetes.io/hostname": self._machine.node_name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "arm64",
            **self._machine.labels,
        }
        node: Object = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self._machine.node_name, "labels": labels},
            "spec": {},
            "status": self._status(),
        }
        try:
            await self._client.create("/api/v1/nodes", node)
        except ApiStatusError as error:
            if error.status != HTTPStatus.CONFLICT:
                raise
            existing = await self._client.patch(
                self._path, {"metadata": {"labels": labels}}
            )
            if self._is_new:
                status = existing.get("status", {})
                self._published |= {
                    name for name in status.get("capacity", {}) if "/" in name
                }

    @property
    def _path(self) -> str:
        return f"/api/v1/nodes/{self._machine.node_name}"

    def _status(self) -> Object:
        capacity, allocatable = self._capacity()
        self._published |= capacity.keys()
        return {
            "capacity": self._quantities(capacity),
            "allocatable": self._quantities(allocatable),
            "conditions": self._conditions(),
            "addresses": [
                {"type": "InternalIP", "address": HOST_IP},
                {"type": "Hostname", "address": self._machine.node_name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._port}},
            "nodeInfo": {
                "machineID": self._machine.node_name,
                "systemUUID": self._machine.node_name,
                "bootID": "00000000-0000-0000-0000-000000000000",
                "kernelVersion": "5.10.0",
                "osImage": "Sandbox",
                "containerRuntimeVersion": "sandbox://1.0.0",
                "kubeletVersion": "v1.36.3",
                "kubeProxyVersion": "",
                "operatingSystem": "linux",
                "architecture": "arm64",
            },
        }

    def _quantities(self, counts: Mapping[str, int]) -> dict[str, str]:
        return _BASE | {
            name: str(counts.get(name, 0)) for name in sorted(self._published)
        }

    def _conditions(self) -> list[Object]:
        now = clock.rfc3339(clock.wall_s())
        return [
            {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": f"kubelet {text}",
                "lastHeartbeatTime": now,
                "lastTransitionTime": self._started,
            }
            for kind, (status, reason, text) in _CONDITIONS.items()
        ]


async def renew_lease(client: ApiClient, node_name: str) -> NoReturn:
    """Renew the node's Lease for ever; what fails is done the next time.

    A controller calls a node whose Lease is 50 s old unreachable, and evicts its pods
    five minutes later.

    Args:
        client: Speaks as the node.
        node_name: The node's.
    """
    while True:
        with suppress(*FAILURES):  # the Lease grows old, which is what it is for
            await _renew_once(client, node_name)
        await asyncio.sleep(_RENEW_S)


async def _renew_once(client: ApiClient, node_name: str) -> None:
    spec: Object = {
        "holderIdentity": node_name,
        "leaseDurationSeconds": _LEASE_S,
        "renewTime": clock.rfc3339(clock.wall_s()).replace("Z", ".000000Z"),
    }
    try:
        await client.patch(f"{_LEASES}/{node_name}", {"spec": spec})
    except ApiStatusError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        meta: Object = {"name": node_name, "namespace": "kube-node-lease"}
        await client.create(_LEASES, {"metadata": meta, "spec": spec})
