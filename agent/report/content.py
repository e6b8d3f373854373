"""Content of the ConfigMap `mindx-dl-deviceinfo-<node>` and of the Node, without I/O.

A `NodeReport` has everything that both objects say about the chips of a node, except
the time of the write.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from agent.devices import look_alikes
from agent.devices.reading import Level, Reading
from agent.health.conditions import Condition, Health
from agent.health.findings import Findings, SeparatedNames
from kube.objects import ManagedNode, Node
from scheduler_core.node import chips as chip_sets
from scheduler_core.products import lookup
from scheduler_core.products.columns import GroupKind
from scheduler_core.products.table import Product, by_key
from scheduler_core.wire import deviceinfo, faults, inventory
from scheduler_core.wire.addresses import Address, Addresses
from scheduler_core.wire.deviceinfo import (
    Affinity,
    DeviceInfo,
    Fault,
    StaticParts,
)
from scheduler_core.wire.faults import UpgradeReason

#: Valid value of a label; empty values are left out of Node objects.
_LABEL = re.compile(r"[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?", re.ASCII)

#: Label of nodes with Atlas 300I Duo cards.
_CARD_TYPE = "infer-card-type"

#: Key of the ConfigMap that people edit as well; see `agent.health.separation`.
MANUAL_KEY = faults.SEPARATED_KEY


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """All that the Node and `mindx-dl-deviceinfo-<node>` say about a node's chips."""

    product: Product
    #: Physical ids of all chips that the driver ever showed, ascending.
    chips: tuple[int, ...]
    #: This and `ai_core_count` as in `Reading`.
    chip_name: str
    ai_core_count: int
    driver_version: str = ""
    #: Memory of the first chip that has told it; 0 when unknown. Unit: MB.
    memory_mb: int = 0
    addresses: Addresses = field(default_factory=Addresses)
    #: With `update_time` 0, which the write replaces.
    info: DeviceInfo
    affinity: Affinity
    separated: SeparatedNames = field(default_factory=SeparatedNames)
    #: Reasons why faults have another level than that of their code, by chip.
    upgrades: tuple[UpgradeReason, ...] = ()
    #: Parts that are given out by claims, by kind; of the whole node.
    static_parts: tuple[StaticParts, ...] = ()
    #: Reports of the node's other product lines; theirs are empty.
    other_lines: tuple["NodeReport", ...] = ()

    @property
    def lines(self) -> tuple["NodeReport", ...]:
        """This report, then the reports of the node's other product lines."""
        return self, *self.other_lines


def node_report(
    reading: Reading,
    health: Health,
    *,
    taken: tuple[int, ...],
    affinity: Affinity,
    findings: Findings = Findings(),
    is_row_chosen: bool = False,
) -> NodeReport:
    """Return the node report of one product line.

    A chip is available if it is HEALTHY or NETWORK_UNHEALTHY, and not in `taken`.

    Args:
        reading: Last successful reading of the driver.
        health: Conditions of the chips after that reading.
        taken: Chips in use, in any order. A chip is in use if it is in a slot or claim
            of a living pod, held, releasing, or cut into virtual devices.
        affinity: Content of the key `AscendAffinity` of `mindx-dl-deviceinfo-<node>`,
            without product rows.
        findings: Names of separated chips, and faults with a raised level.
        is_row_chosen: Whether a person has chosen the row (`--product`): the hardware
            is no other then.
    """
    others = () if is_row_chosen else look_alikes.find(reading)
    info = DeviceInfo(
        available=tuple(chip for chip in health.in_service if chip not in taken),
        unhealthy=health.chips_in(Condition.UNHEALTHY),
        network_unhealthy=health.chips_in(Condition.NETWORK_UNHEALTHY),
        recovering=health.chips_in(Condition.RECOVERING),
        faults=(*_reported(reading), *_without_code(reading, health)),
        update_time=0,
        super_pod_id=reading.super_pod_id,
        server_index=reading.server_index,
    )
    return NodeReport(
        product=reading.product,
        chips=tuple(sorted(health.chips)),
        chip_name=reading.chip_name,
        ai_core_count=reading.ai_core_count,
        driver_version=reading.driver_version,
        memory_mb=next((d.memory_mb for d in reading.details if d.memory_mb), 0),
        addresses=addresses(reading),
        info=info,
        affinity=replace(affinity, products=(reading.product.key, *others)),
        separated=findings.separated,
        upgrades=findings.upgrades,
    )


def merge_lines(lines: Sequence[NodeReport]) -> NodeReport:
    """Merge the reports of a node's product lines into one report.

    Args:
        lines: At least one report. The first gives the values that a node has only
            once, for example the driver version.
    """
    first, *other_lines = lines
    if not other_lines:
        return first
    separated = _separated([line.separated for line in lines])
    return replace(first, separated=separated, other_lines=tuple(other_lines))


def _separated(lines: Sequence[SeparatedNames]) -> SeparatedNames:
    """Join the names of separated chips of all product lines."""
    read = lines[0].read
    if read is not None and all(line.text == read for line in lines):
        return SeparatedNames(text=read, read=read)
    names = ",".join(line.names for line in lines if line.names)
    return SeparatedNames(text=names, read=read)


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
    """Return a fault without a code for each UNHEALTHY chip that has no reported fault.

    Faults of a chip's network do not count as reported. The level of the returned
    faults is SeparateNPU.
    """
    chips_with_code = {fault.chip for fault in reading.faults if not fault.network}
    return tuple(
        Fault(chip=chip, code="", level=Level.SEPARATE.value)
        for chip in health.chips_in(Condition.UNHEALTHY)
        if chip not in chips_with_code
    )


def configmap_data(report: NodeReport, *, update_time: int) -> dict[str, str]:
    """Return the data to write into the ConfigMap `mindx-dl-deviceinfo-<node>`.

    Args:
        report: Report of the whole node; see `merge_lines`.
        update_time: Time of the write. Unit: Unix seconds.
    """
    info = replace(report.info, update_time=update_time)
    other_lines = [
        deviceinfo.Line(product=line.product, info=line.info, affinity=line.affinity)
        for line in report.other_lines
    ]
    data = deviceinfo.render(
        info, report.affinity, report.product, other_lines, report.static_parts
    )
    data[MANUAL_KEY] = report.separated.text
    data[faults.UPGRADES_KEY] = faults.render_upgrades_of_lines(
        (line.upgrades, line.product) for line in report.lines
    )
    if any(_is_a3(line.product) for line in report.lines):
        data[faults.SWITCH_KEY] = faults.render_switch(update_time)
    return data


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMarks:
    """Labels and annotations that a Node object must have to describe its chips."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    #: Labels that are set only if missing, so that an administrator can set them.
    defaults: Mapping[str, str]
    #: Value of the label `accelerator-type`, which is set if it is missing, and changed
    #: if this agent has set it. "": the rows have none.
    accelerator_type: str = ""


def node_marks(report: NodeReport) -> NodeMarks:
    """Return the labels and annotations with which a Node shows its node report.

    A label is left out if its value is unknown or is not valid for a label.

    Source:
        MindCluster's device plugin, `pkg/server/manager.go` (at 22bb3d98).
    """
    product = report.product
    family = product.chip_prefix.removesuffix("-")
    labels = {
        "accelerator": f"huawei-{family}",
        "node.kubernetes.io/npu.chip.name": report.chip_name,
        "huawei.com/driver.version": report.driver_version,
    }
    if report.memory_mb:
        labels["mind-cluster/npu-chip-memory"] = f"{report.memory_mb // 1024}G"
    if any(line.product.key.startswith("atlas-300i-duo") for line in report.lines):
        labels[_CARD_TYPE] = "card-300i-duo"
    defaults = {}
    if report.ai_core_count:
        server_type = _server_type(report)
        defaults["servertype"] = f"{server_type}-{report.ai_core_count}"
    accelerator_types = [
        lookup.accelerator_type_of(line.product) for line in report.lines
    ]
    other_lines = [
        inventory.Line(line.chips, line.product, line.addresses)
        for line in report.other_lines
    ]
    other_lines += [
        inventory.Line(chip_sets.ids_of(row.all_chips), row, Addresses())
        for row, _ in report.static_parts
    ]
    chips = inventory.render(report.chips, product, report.addresses, other_lines)
    annotations = {inventory.BASE_DEVICE_INFOS: chips}
    for addresses_ in (line.addresses for line in report.lines if _is_a3(line.product)):
        if addresses_.super_pod_id >= 0:
            labels["huawei.com/topotree.superpodid"] = str(addresses_.super_pod_id)
        annotations |= {
            "superPodID": str(addresses_.super_pod_id),
            "serverIndex": str(addresses_.server_index),
            "serverType": "A3",
        }
    return NodeMarks(
        labels={key: text for key, text in labels.items() if _LABEL.fullmatch(text)},
        annotations=annotations,
        defaults=defaults,
        accelerator_type=next(filter(None, accelerator_types), ""),
    )


def _is_a3(product: Product) -> bool:
    return product.group_kind is GroupKind.MODULE


def _server_type(report: NodeReport) -> str:
    """Return the chip family for the label `servertype`, such as "Ascend910B"."""
    if _is_a3(report.product):
        return "Ascend910A3"
    if re.match(r"910B\d|A2G\d", report.chip_name):
        return "Ascend910B"
    if report.chip_name.startswith("310B"):
        return "Ascend310B"
    return report.product.chip_prefix.removesuffix("-")


def addresses(reading: Reading) -> Addresses:
    """Return the SuperPoD id, server index and chip addresses of a driver reading."""
    return Addresses(
        super_pod_id=reading.super_pod_id,
        server_index=reading.server_index,
        chips=MappingProxyType(
            {
                detail.chip: Address(
                    ip=detail.ip or "", super_device_id=detail.super_device_id
                )
                for detail in reading.details
            }
        ),
        awaited=chip_sets.mask_of(
            detail.chip for detail in reading.details if detail.ip is None
        ),
    )


def node_patch(
    node: Node, marks: NodeMarks
) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return the labels and the annotations that a Node lacks or has wrong.

    A label in `marks.defaults` is only added, never corrected, because administrators
    may set it.
    """
    labels = _differing(node.labels, marks.labels)
    labels |= {k: v for k, v in marks.defaults.items() if k not in node.labels}
    return labels, _differing(node.annotations, marks.annotations)


def own_labels_patch(
    node: ManagedNode, marks: NodeMarks, *, manager: str
) -> dict[str, str | None]:
    """Return {label: value to write} of those in `_own_labels`; {} if all stay.

    None as the value removes a label. It stays if another than this agent has set it,
    or has set it as well.

    Args:
        node: The Node as it is.
        marks: The Node as it should be.
        manager: Name by which the API server knows this agent as one that sets fields.
    """
    return {
        key: wanted or None
        for key, wanted in _own_labels(marks).items()
        if node.labels.get(key, "") != wanted
        and (key not in node.labels or node.label_managers(key) == {manager})
    }


def _own_labels(marks: NodeMarks) -> dict[str, str]:
    """Return {label: value, "" for none} of labels by which jobs choose servers.

    `infer-card-type` is none of them where `marks.labels` has it.
    """
    own = {lookup.ACCELERATOR_TYPE: marks.accelerator_type}
    return own if _CARD_TYPE in marks.labels else {**own, _CARD_TYPE: ""}


def label_problem(node: ManagedNode, report: NodeReport, *, manager: str) -> str:
    """Return how labels of the Node contradict the chips; "" if none does.

    A label that this agent has set does not: the agent corrects it.

    Args:
        node: The Node as it is.
        report: Report of the whole node.
        manager: As for `own_labels_patch`.
    """
    marks = node_marks(report)
    own = own_labels_patch(node, marks, manager=manager)
    rows = [by_key(text) for line in report.lines for text in line.affinity.products]
    served = " and ".join(line.product.key for line in report.lines)
    return "; ".join(
        f"label {key}: expected {wanted or 'none'}, as the chips are served as "
        f"{served}, found {node.labels[key]!r}. Correct or remove it: the agent sets "
        "it where it is missing"
        for key, wanted in _own_labels(marks).items()
        if node.labels.get(key)
        and key not in own
        and not _may_be(rows, key, wanted, node.labels[key])
    )


def _may_be(rows: Sequence[Product], key: str, wanted: str, found: str) -> bool:
    """Return whether a node that has one of `rows` may have this value of a label."""
    if key == _CARD_TYPE:
        return any(row.node_labels.get(key) == found for row in rows)
    return not wanted or any(
        lookup.may_have_type(row, found)
        for row in rows
        if lookup.accelerator_type_of(row)
    )


def _differing(actual: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in wanted.items() if actual.get(key) != value}
