"""Find pods that have chips of this node through a resource of another device plugin.

HAMi's plugin offers the same cards as `huawei.com/Ascend910B4`, for example, and
MindCluster's their parts as `huawei.com/npu-core`. Such a plugin is told as a rival,
but ours goes on: the kubelet keeps the two apart. Chips that its pods have are
*foreign* in the ledgers, and nobody else gets them. If an id does not tell its chip, as
those two plugins' do not, all chips are foreign: a node that waits for a person does
less harm than two jobs on one chip.

Offers are seen with each look for rivals. All pods are listed at the start, and while
such a resource or pod is there: see `agent.plugin.pod_resources`.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NoReturn

from agent.claims.events import ForeignRead
from agent.claims.store import LedgerStore
from agent.monitor.chips import ChipMonitor
from agent.observe.problems import Problems, Subject
from agent.plugin import vnpu
from agent.pods.reconciler import ResourcesError
from kubelet_api.podresources.v1 import api_pb2
from scheduler_core.node import chips as chip_sets
from scheduler_core.products.table import PRODUCTS
from service import clock

#: Pause between two Lists. Unit: seconds.
LIST_EACH_S = 1.0
#: How long Lists must lack a pod that has gone: a kubelet that has just started may not
#: know its pods yet. Unit: seconds.
GONE_S = 3.0

#: A resource of NPUs, or one of its ids behind it.
_NPU = re.compile(
    r"(?i)ascend|davinci(?![_-]?manager)"
    r"|^huawei\.com/(?:[39]10|.*(?:(?<!i)npu|atlas))"
)
#: A resource of what stands beside NPUs, by its name without the domain.
_NETWORK = re.compile(r"(?i)roce|rdma|nic(?![a-z])|net|hca|hccn|sriov")
#: `Ascend910B4-3`, `Ascend910-2c-100-3_1`, `Ascend310P-3-0` (shared), `npu-3`, `3`;
#: `Ascend310P-VPro-3` where cards of several models are mixed.
_ID = re.compile(
    r"(?i)(?P<prefix>ascend[a-z0-9]*-|(?:/dev/)?(?:npu|davinci)-?)?"
    r"(?:(?<=ascend310p-)(?:v|vpro|ipro)-)?"
    r"(?:[0-9]+c[\w.]*-[0-9]+-(?P<parent>[0-9]{1,3})(?:_[0-9]+)?"
    r"|(?P<chip>[0-9]{1,3})(?(prefix)(?:-[0-9]+)?))"
)
_PREFIXES = frozenset(row.chip_prefix for row in PRODUCTS)

#: {resource: device ids}
Devices = Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What this agent serves on its node, in all product lines."""

    resources: frozenset[str]
    prefixes: frozenset[str]  #: of the chips' names
    chips: int  #: mask

    def find(self, ids: Iterable[str]) -> tuple[int, tuple[str, ...]]:
        """Return the mask of the chips that ids name, and the ids that name none.

        Ids of cards of a product line that the agent does not serve are left out.
        """
        mask, unclear = 0, []
        for name in sorted(ids):
            match = _ID.fullmatch(name)
            chip = 1 << int(match["chip"] or match["parent"]) if match else 0
            mask |= chip & self.chips
            is_other = match and match["prefix"] in _PREFIXES - self.prefixes
            if not chip & self.chips and not is_other:
                unclear.append(name)
        return mask, tuple(unclear)


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """What is known of other device plugins and their pods."""

    #: that the kubelet may give out
    offered: Devices = field(default_factory=dict)
    #: {`namespace/name` of a pod: its devices}
    pods: Mapping[str, Devices] = field(default_factory=dict)
    #: {pod: loop time of the first List in a row without it}; seconds
    missed_s: Mapping[str, float] = field(default_factory=dict)


def parse(devices: Iterable[api_pb2.ContainerDevices], ours: frozenset[str]) -> Devices:
    """Return the devices that may be NPUs, and are of none of our resources."""
    found: dict[str, frozenset[str]] = {}
    for device in devices:
        resource, ids = device.resource_name, device.device_ids
        is_npu = _NPU.search(" ".join((resource, *ids)))
        is_network = _NETWORK.search(resource.rpartition("/")[2])
        if is_npu and resource not in ours and not is_network:
            found[resource] = found.get(resource, frozenset()).union(ids)
    return found


def take_in_list(state: Foreign, pods: Mapping[str, Devices], now_s: float) -> Foreign:
    """Return the state after a List; the effects are computed of it.

    Args:
        pods: As `Foreign.pods`, those in the List.
        now_s: Time of the List. Unit: seconds, loop time.
    """
    gone = state.pods.keys() - pods.keys()
    missed_s = {pod: state.missed_s.get(pod, now_s) for pod in gone}
    missed_s = {pod: at_s for pod, at_s in missed_s.items() if now_s - at_s < GONE_S}
    missed = {pod: state.pods[pod] for pod in missed_s}
    return replace(state, pods={**missed, **pods}, missed_s=missed_s)


def sentences(state: Foreign, served: Served) -> dict[str, str]:
    """Return {resource: a sentence about the plugin that gives our chips out by it}."""
    found, every = {}, (state.offered, *state.pods.values())
    for resource in sorted({resource for devices in every for resource in devices}):
        ids = frozenset[str]().union(*(of.get(resource, ()) for of in every))
        mask, unclear = served.find(ids)
        if unclear:
            found[resource] = (
                f"another device plugin gives out chips of this node as {resource}, "
                f"and ids like {unclear[0]} do not tell which: while a pod has one, no "
                "chip is given out"
            )
        elif mask:
            found[resource] = (
                f"another device plugin gives out chips of this node as {resource}: "
                "what its pods have is not given out"
            )
    return found


def users(state: Foreign, served: Served) -> dict[int, str]:
    """Return {chip: the pods that have it, or may, each with the resource}."""
    found: dict[int, list[str]] = {}
    for pod, devices in sorted(state.pods.items()):
        for resource, ids in sorted(devices.items()):
            mask, unclear = served.find(ids)
            for chip in chip_sets.ids_of(served.chips if unclear else mask):
                perhaps = "" if mask >> chip & 1 else "perhaps "
                found.setdefault(chip, []).append(f"{perhaps}{pod} ({resource})")
    return {chip: ", ".join(pods) for chip, pods in found.items()}


class ForeignPods:
    """Watch of a node for pods that have its chips through another device plugin."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        #: ledger and chips of each product line
        self._lines: list[tuple[LedgerStore, ChipMonitor]] = []
        #: resources of all product lines, whatever the driver shows later
        self._ours: frozenset[str] = frozenset()
        self._state = Foreign()
        #: set until a List, and while there is a foreign resource or pod
        self._is_needed = asyncio.Event()
        self._is_needed.set()

    def add_line(self, store: LedgerStore, monitor: ChipMonitor) -> None:
        """Have foreign chips of a product line noted in its ledger."""
        self._lines.append((store, monitor))
        rows = (monitor.reading.product, *vnpu.rows_of(monitor.reading))
        self._ours |= {row.resource for row in rows}

    async def run(self, list_pods: Callable[[], Awaitable[object]]) -> NoReturn:
        """List pods while there is foreign work, until cancelled.

        It lists until an answer has come, if none had before. Without an answer all
        stays as it is.

        Args:
            list_pods: Asks the kubelet for all pods; the answer comes to `listed`.
        """
        while True:
            await self._is_needed.wait()
            await asyncio.sleep(clock.next_beat_delay_s(LIST_EACH_S))
            with suppress(ResourcesError):
                await list_pods()

    def offered(self, devices: Iterable[api_pb2.ContainerDevices]) -> None:
        """Take in all devices that the kubelet may give out."""
        found = parse(devices, self._served().resources)
        self._tell(replace(self._state, offered=found))

    def listed(self, pods: Iterable[api_pb2.PodResources]) -> None:
        """Take in the devices of all pods."""
        ours, found = self._served().resources, {}
        for pod in pods:
            shown = (device for of in pod.containers for device in of.devices)
            if devices := parse(shown, ours):
                found[f"{pod.namespace}/{pod.name}"] = devices
        self._is_needed.clear()
        self._tell(take_in_list(self._state, found, clock.loop_s()))

    def _served(self) -> Served:
        return Served(
            resources=self._ours,
            prefixes=frozenset(of.product.chip_prefix for _, of in self._lines),
            chips=chip_sets.union(_chips(monitor) for _, monitor in self._lines),
        )

    def _tell(self, state: Foreign) -> None:
        """Store a state; announce plugins, and give ledgers their foreign chips."""
        old, self._state, served = self._state, state, self._served()
        if state.offered or state.pods:
            self._is_needed.set()
        before, after = sentences(old, served), sentences(state, served)
        for resource in sorted(before.keys() | after.keys()):
            text = after.get(resource, "")
            self._problems.tell(Subject.RIVAL_PLUGIN, text, of=resource)
        pods = users(state, served)
        for store, monitor in self._lines:
            mask = _chips(monitor)
            chips = {chip: text for chip, text in pods.items() if mask >> chip & 1}
            if chips != store.ledger.foreign:
                store.apply(ForeignRead(chips))


def _chips(monitor: ChipMonitor) -> int:
    return chip_sets.mask_of(monitor.health.chips)
