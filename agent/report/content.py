"""What the cluster is told about a node: its texts, from values. Pure.

A `Picture` is all that the ConfigMap and the Node object say about the chips of a
node, without the moment in which it is written. Two equal pictures need no write.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from agent.devices.reading import Level, Reading
from agent.health.conditions import Condition, Health
from agent.health.findings import Findings, Separated
from kube.objects import Node
from scheduler_core.products.columns import GroupKind
from scheduler_core.products.table import Product
from scheduler_core.wire import deviceinfo, faults, inventory
from scheduler_core.wire.addresses import Address, Addresses
from scheduler_core.wire.deviceinfo import Affinity, DeviceInfo, Fault
from scheduler_core.wire.faults import SwitchInfo, UpgradeReason

#: What a label's value may be; the empty one is left out.
_LABEL = re.compile(r"[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?", re.ASCII)

#: Shared with people; `agent.health.separation` says how.
MANUAL_KEY = faults.SEPARATED_KEY


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Everything that is published about the chips of one node."""

    product: Product
    #: Physical ids of all chips that were ever seen, ascending.
    chips: tuple[int, ...]
    #: As `Reading` has them.
    chip_name: str
    ai_core_count: int
    driver_version: str = ""
    #: Of its first chip; 0 when unknown. Unit: MB.
    memory_mb: int = 0
    addresses: Addresses = field(default_factory=Addresses)
    #: Its `update_time` is 0: the moment belongs to the write.
    info: DeviceInfo
    affinity: Affinity
    separated: Separated = field(default_factory=Separated)
    #: Why faults have another level than their code, by chip.
    upgrades: tuple[UpgradeReason, ...] = ()
    #: None on servers without switches of their own.
    switch: SwitchInfo | None = None
    #: Of the node's other product lines; these have none in turn.
    beside: tuple["Picture", ...] = ()

    @property
    def lines(self) -> tuple["Picture", ...]:
        """What is published of each product line, the first before the others."""
        return self, *self.beside


def picture(
    reading: Reading,
    health: Health,
    *,
    taken: tuple[int, ...],
    affinity: Affinity,
    findings: Findings = Findings(),
) -> Picture:
    """What is to be published about a node.

    Available are the chips in service that nobody has taken. A chip whose network
    alone is faulty stays among them, as in the reference.

    Args:
        reading: The last good look at the hardware.
        health: The chips' conditions after that look.
        taken: Chips that pods not Failed or Succeeded were given by scheduler or
            agent, and chips held or releasing; in any order.
        affinity: What the agent says about holds.
        findings: What is known of faults beyond the reading.
    """
    info = DeviceInfo(
        available=tuple(chip for chip in health.in_service if chip not in taken),
        unhealthy=health.having(Condition.UNHEALTHY),
        network_unhealthy=health.having(Condition.NETWORK_UNHEALTHY),
        recovering=health.having(Condition.RECOVERING),
        faults=(*_reported(reading), *_without_code(reading, health)),
        update_time=0,
        super_pod_id=reading.super_pod_id,
        server_index=reading.server_index,
    )
    return Picture(
        product=reading.product,
        chips=tuple(sorted(health.chips)),
        chip_name=reading.chip_name,
        ai_core_count=reading.ai_core_count,
        driver_version=reading.driver_version,
        memory_mb=next((each.memory_mb for each in reading.details), 0),
        addresses=addresses(reading),
        info=info,
        affinity=affinity,
        separated=findings.separated,
        upgrades=findings.upgrades,
        switch=findings.switch if _is_a3(reading.product) else None,
    )


def of_node(lines: Sequence[Picture]) -> Picture:
    """What is to be published about a node, from what is of each product line.

    Args:
        lines: At least one; the first names the node in what can be said but once.
    """
    first, *beside = lines
    if not beside:
        return first
    separated = _separated([line.separated for line in lines])
    return replace(first, separated=separated, beside=tuple(beside))


def _separated(lines: Sequence[Separated]) -> Separated:
    """What stands is left as it is spelled while it is right for every line."""
    read = lines[0].read
    if read is not None and all(line.text == read for line in lines):
        return Separated(text=read, read=read)
    names = ",".join(line.names for line in lines if line.names)
    return Separated(text=names, read=read)


def _reported(reading: Reading) -> tuple[Fault, ...]:
    return tuple(
        Fault(
            chip=fault.chip,
            code=fault.code,
            level=fault.seriousness.value,
            time_ms=fault.since_ms,
            network=fault.network,
        )
        for fault in reading.faults
    )


def _without_code(reading: Reading, health: Health) -> tuple[Fault, ...]:
    """A chip that is unhealthy has an entry even if it reports no fault of its own."""
    coded = {fault.chip for fault in reading.faults if not fault.network}
    return tuple(
        Fault(chip=chip, code="", level=Level.SEPARATE.value)
        for chip in health.having(Condition.UNHEALTHY)
        if chip not in coded
    )


def wanted(picture: Picture, *, update_time: int) -> dict[str, str]:
    """All data keys of the ConfigMap, as written at some moment.

    Args:
        picture: What to say.
        update_time: When it is said. Unit: Unix seconds.
    """
    info = replace(picture.info, update_time=update_time)
    beside = [
        deviceinfo.Line(product=line.product, info=line.info, affinity=line.affinity)
        for line in picture.beside
    ]
    data = deviceinfo.render(info, picture.affinity, picture.product, beside)
    data[MANUAL_KEY] = picture.separated.text
    data[faults.UPGRADES_KEY] = faults.render_upgrades_of(
        (line.upgrades, line.product) for line in picture.lines
    )
    for line in picture.lines:
        if line.switch is not None:
            data[faults.SWITCH_KEY] = faults.render_switch(line.switch, update_time)
    return data


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMarks:
    """Labels and annotations that a Node object carries about its chips."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    #: Labels that are set only where there is none: somebody may know better.
    defaults: Mapping[str, str]


def node_marks(picture: Picture) -> NodeMarks:
    """What the Node object of a picture carries.

    What is not known is not set, and what cannot be a label is left out.

    Source:
        MindCluster's device plugin, `pkg/server/manager.go` (at 22bb3d98).
    """
    product = picture.product
    family = product.chip_prefix.removesuffix("-")
    labels = {
        "accelerator": f"huawei-{family}",
        "node.kubernetes.io/npu.chip.name": picture.chip_name,
        "huawei.com/driver.version": picture.driver_version,
    }
    if picture.memory_mb:
        labels["mind-cluster/npu-chip-memory"] = f"{picture.memory_mb // 1024}G"
    if any(line.product.key.startswith("atlas-300i-duo") for line in picture.lines):
        labels["infer-card-type"] = "card-300i-duo"
    defaults = {}
    if picture.ai_core_count:
        real = _real_card(picture)
        defaults["servertype"] = f"{real}-{picture.ai_core_count}"
    beside = [
        inventory.Line(line.chips, line.product, line.addresses)
        for line in picture.beside
    ]
    chips = inventory.render(picture.chips, product, picture.addresses, beside)
    annotations = {inventory.BASE_DEVICE_INFOS: chips}
    for where in (line.addresses for line in picture.lines if _is_a3(line.product)):
        if where.super_pod_id >= 0:
            labels["huawei.com/topotree.superpodid"] = str(where.super_pod_id)
        annotations |= {
            "superPodID": str(where.super_pod_id),
            "serverIndex": str(where.server_index),
            "serverType": "A3",
        }
    return NodeMarks(
        labels={key: text for key, text in labels.items() if _LABEL.fullmatch(text)},
        annotations=annotations,
        defaults=defaults,
    )


def _is_a3(product: Product) -> bool:
    return product.group_kind is GroupKind.MODULE


def _real_card(picture: Picture) -> str:
    """What `servertype` calls the chips: their family, told finer for the 910."""
    if _is_a3(picture.product):
        return "Ascend910A3"
    if re.match(r"910B\d|A2G\d", picture.chip_name):
        return "Ascend910B"
    if picture.chip_name.startswith("310B"):
        return "Ascend310B"
    return picture.product.chip_prefix.removesuffix("-")


def addresses(reading: Reading) -> Addresses:
    """Where a server and its chips are, as far as the driver knows it."""
    return Addresses(
        super_pod_id=reading.super_pod_id,
        server_index=reading.server_index,
        chips=MappingProxyType(
            {
                each.chip: Address(ip=each.ip, super_device_id=each.super_device_id)
                for each in reading.details
            }
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePatch:
    """Labels and annotations that a Node object lacks."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]

    def __bool__(self) -> bool:
        """Whether there is anything to write."""
        return bool(self.labels or self.annotations)


def node_patch(node: Node, marks: NodeMarks) -> NodePatch:
    """What must be set so that the Node object carries the marks; may be nothing."""
    labels = _differing(node.labels, marks.labels)
    labels |= {k: v for k, v in marks.defaults.items() if k not in node.labels}
    return NodePatch(
        labels=labels, annotations=_differing(node.annotations, marks.annotations)
    )


def _differing(found: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in wanted.items() if found.get(key) != value}
