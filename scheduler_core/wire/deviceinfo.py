"""The ConfigMap `mindx-dl-deviceinfo-<node>`: what a node reports about its chips.

`DeviceInfoCfg` and its neighbours are byte for byte what schedulers and operators
read today, CheckCode included. `AscendAffinity` is ours: chips that are held or not
released yet, beside `DeviceInfoCfg` and outside its CheckCode.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from scheduler_core.products.table import Product
from scheduler_core.wire.annotations import (
    WireError,
    chip_name,
    is_of_another_line,
    parse_chip,
    parse_chip_names,
    render_chips,
)
from scheduler_core.wire.gojson import go_json
from scheduler_core.wire.levels import seriousness
from scheduler_core.wire.shown import shown
from scheduler_core.wire.typed import (
    as_array,
    as_integer,
    as_object,
    as_string,
    parse_json,
)

CONFIGMAP_NAMESPACE = "kube-system"
LABELS: Mapping[str, str] = {"mx-consumer-cim": "true"}
DEVICE_INFO_KEY = "DeviceInfoCfg"
AFFINITY_KEY = "AscendAffinity"

_AFFINITY_VERSION = 1
#: SuperPoD of a server that cannot be in one
_NOWHERE = -2
#: resources of chips without a parameter plane, which have fewer lists
_INFERENCE = ("huawei.com/Ascend310", "huawei.com/Ascend310P")
_DESCRIPTION = (
    "The list under huawei.com/<resource> is kept for schedulers that read it; it is "
    "going to be removed, because a scheduler keeps the free chips of a node itself."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault of one chip."""

    #: physical id
    chip: int
    #: hexadecimal; "" when the chip is bad and the driver gave no code
    code: str
    #: one of the levels of the fault configuration, as `SeparateNPU`
    level: str
    #: when it was noticed, in milliseconds since 1970
    time_ms: int = 0
    #: of the chip's network, not of the chip
    network: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceInfo:
    """What `DeviceInfoCfg` says. Chips are physical ids, ascending."""

    #: healthy and neither claimed, held nor releasing
    available: tuple[int, ...] = ()
    unhealthy: tuple[int, ...] = ()
    network_unhealthy: tuple[int, ...] = ()
    recovering: tuple[int, ...] = ()
    #: by chip, network first, then in the order of occurrence
    faults: tuple[Fault, ...] = ()
    #: seconds since 1970
    update_time: int
    super_pod_id: int = _NOWHERE
    server_index: int = _NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class Affinity:
    """What the agent says about chips that are not free although nobody claims them.

    Chips are physical ids, ascending.
    """

    #: given out by Allocate
    held: tuple[int, ...] = ()
    #: their pod is gone, their processes are not
    releasing: tuple[int, ...] = ()
    #: grows with every change
    sequence: int
    #: given out, but the kubelet has forgotten to whom
    lost: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What is said of the chips of one product line beside the first of a node."""

    product: Product
    info: DeviceInfo
    affinity: Affinity


def configmap_name(node: str) -> str:
    """The name of a node's ConfigMap."""
    return f"mindx-dl-deviceinfo-{node}"


def render(
    info: DeviceInfo,
    affinity: Affinity,
    product: Product,
    beside: Sequence[Line] = (),
) -> dict[str, str]:
    """All data keys of the ConfigMap.

    Args:
        info: What is said of the chips; its moment is that of the whole.
        affinity: What the agent says of them.
        product: Their row.
        beside: The node's other product lines. SuperPoD and server are those of the
            first line that has them; the sequence grows when any of theirs does.

    Source:
        MindCluster device plugin, `DeviceInfoCfg`: order of keys, lists ordered as
        text, UpdateTime in seconds, JSON as Go writes it.
    """
    lines = (Line(product=product, info=info, affinity=affinity), *beside)
    listed = _device_list(lines)
    placed = (line.info for line in lines if line.info.super_pod_id != _NOWHERE)
    place = next(placed, info)
    document = {
        "DeviceInfo": {"DeviceList": listed, "UpdateTime": info.update_time},
        "SuperPodID": place.super_pod_id,
        "ServerIndex": place.server_index,
        "CheckCode": check_code(listed, info.update_time),
    }
    return {
        DEVICE_INFO_KEY: go_json(document),
        "ManuallySeparateNPU": "",
        "UpgradeFaultReason": "{}",
        "Description": _DESCRIPTION,
        AFFINITY_KEY: _affinity(lines),
    }


def render_device_list(info: DeviceInfo, product: Product) -> dict[str, str]:
    """The entries of `DeviceList`, ordered by key."""
    return _device_list(
        [Line(product=product, info=info, affinity=Affinity(sequence=0))]
    )


def _device_list(lines: Sequence[Line]) -> dict[str, str]:
    """The entries of all lines, ordered by key; the 310 and the 310P share one."""
    listed: dict[str, str] = {}
    faults: dict[str, list[object]] = {}
    for line in lines:
        listed |= _lists(line.info, line.product)
        found = faults.setdefault(_fault_key(line.product), [])
        found += _fault_objects(line.info.faults, line.product)
    listed |= {key: go_json(found) for key, found in faults.items()}
    return {key: listed[key] for key in sorted(listed)}


def _lists(info: DeviceInfo, product: Product) -> dict[str, str]:
    """The lists of chips of one line."""

    def text(chips: Iterable[int]) -> str:
        return render_chips(chips, product, lexicographic=True)

    listed = {product.resource: text(info.available)}
    if _is_inference(product):
        # they have no lists for these: a chip that recovers is not to be used yet
        listed[f"{product.resource}-Unhealthy"] = text(
            {*info.unhealthy, *info.recovering}
        )
    else:
        listed |= {
            f"{product.resource}-NetworkUnhealthy": text(info.network_unhealthy),
            f"{product.resource}-Recovering": text(info.recovering),
            f"{product.resource}-Unhealthy": text(info.unhealthy),
        }
    return listed


def _is_inference(product: Product) -> bool:
    return product.resource in _INFERENCE


def _fault_key(product: Product) -> str:
    """Where the faults stand: those of the 310 under the name of the 310P.

    Source:
        MindCluster device plugin, `pkg/common/constants.go`.
    """
    resource = product.resource
    return f"{'huawei.com/Ascend310P' if resource in _INFERENCE else resource}-Fault"


def check_code(device_list: Mapping[str, str], update_time: int) -> str:
    """The CheckCode: SHA-256 of DeviceInfo alone, as Go writes it, in hexadecimal."""
    ordered = {key: device_list[key] for key in sorted(device_list)}
    text = go_json({"DeviceList": ordered, "UpdateTime": update_time})
    return hashlib.sha256(text.encode()).hexdigest()


def render_affinity(affinity: Affinity, product: Product) -> str:
    """The text under `AscendAffinity`; `lost` only when there is any."""
    return _affinity(
        [Line(product=product, info=DeviceInfo(update_time=0), affinity=affinity)]
    )


def _affinity(lines: Sequence[Line]) -> str:
    """The text that names the chips of all lines, those of one after the other."""

    def names(chips_of: Callable[[Affinity], Iterable[int]]) -> list[str]:
        return [
            chip_name(chip, line.product)
            for line in lines
            for chip in sorted(chips_of(line.affinity))
        ]

    document: dict[str, object] = {
        "version": _AFFINITY_VERSION,
        "held": names(lambda said: said.held),
        "releasing": names(lambda said: said.releasing),
        "sequence": sum(line.affinity.sequence for line in lines),
    }
    lost = names(lambda said: said.lost)
    if lost:
        document["lost"] = lost
    return go_json(document)


def parse_device_info(text: str, product: Product) -> DeviceInfo:
    """What the text under `DeviceInfoCfg` says.

    Lists that are absent are empty (older agents wrote three of the five); the
    CheckCode is not compared, as no scheduler does. What it says of the node's other
    product lines is left out.

    Raises:
        WireError: Not JSON, a field of the wrong type, a chip that is not one.
    """
    root = as_object(parse_json(text, DEVICE_INFO_KEY), DEVICE_INFO_KEY)
    path = f"{DEVICE_INFO_KEY}.DeviceInfo"
    device_info = as_object(root.get("DeviceInfo"), path)
    listed = as_object(device_info.get("DeviceList"), f"{path}.DeviceList")

    def chips(suffix: str) -> tuple[int, ...]:
        key = product.resource + suffix
        where = f"{path}.DeviceList[{key!r}]"
        names = as_string(listed.get(key, ""), where)
        return parse_chip_names(names.split(","), product, path=where) if names else ()

    return DeviceInfo(
        available=chips(""),
        unhealthy=chips("-Unhealthy"),
        network_unhealthy=chips("-NetworkUnhealthy"),
        recovering=chips("-Recovering"),
        faults=_parse_faults(listed, product, f"{path}.DeviceList"),
        update_time=as_integer(device_info.get("UpdateTime"), f"{path}.UpdateTime"),
        super_pod_id=as_integer(
            root.get("SuperPodID", -2), f"{DEVICE_INFO_KEY}.SuperPodID"
        ),
        server_index=as_integer(
            root.get("ServerIndex", -2), f"{DEVICE_INFO_KEY}.ServerIndex"
        ),
    )


def sealed_at(text: str) -> int | None:
    """When a report was written whose CheckCode is right; None for any other text.

    A program computes a CheckCode, a hand that edits a report does not.
    """
    path = DEVICE_INFO_KEY
    try:
        root = as_object(parse_json(text, path), path)
        inner = as_object(root.get("DeviceInfo"), f"{path}.DeviceInfo")
        listed = as_object(inner.get("DeviceList"), f"{path}.DeviceInfo.DeviceList")
        texts = {key: as_string(each, f"{path}[{key}]") for key, each in listed.items()}
        moment = as_integer(inner.get("UpdateTime"), f"{path}.DeviceInfo.UpdateTime")
    except WireError:
        return None
    return moment if root.get("CheckCode") == check_code(texts, moment) else None


def parse_affinity(text: str, product: Product) -> Affinity:
    """What the text under `AscendAffinity` says; keys that we do not know are left.

    Its lists name the chips of all lines of the node; others than the product's are
    left out.

    Raises:
        WireError: Not JSON, another version, a field of the wrong type.
    """
    root = as_object(parse_json(text, AFFINITY_KEY), AFFINITY_KEY)
    if root.get("version") != _AFFINITY_VERSION:
        raise WireError(
            f"{AFFINITY_KEY}.version",
            expected=str(_AFFINITY_VERSION),
            found=root.get("version"),
        )

    def chips(key: str) -> tuple[int, ...]:
        path = f"{AFFINITY_KEY}.{key}"
        names = as_array(root.get(key, []), path)
        return parse_chip_names(names, product, path=path, of_node=True)

    return Affinity(
        held=chips("held"),
        releasing=chips("releasing"),
        sequence=as_integer(root.get("sequence"), f"{AFFINITY_KEY}.sequence"),
        lost=chips("lost"),
    )


def _fault_objects(faults: Iterable[Fault], product: Product) -> list[object]:
    """One object per chip and kind, network first, as the reference groups them."""

    def kind(fault: Fault) -> tuple[int, bool]:
        return fault.chip, not fault.network

    return [
        _fault_object(tuple(group), product)
        for _, group in groupby(sorted(faults, key=kind), key=kind)
    ]


def _fault_object(faults: tuple[Fault, ...], product: Product) -> dict[str, object]:
    worst = min((fault.level for fault in faults), key=seriousness)
    first = faults[0]
    coded = {fault.code.upper(): fault for fault in faults if fault.code}
    return {
        "fault_type": "CardNetworkUnhealthy" if first.network else "CardUnhealthy",
        "npu_name": chip_name(first.chip, product),
        "large_model_fault_level": worst,
        "fault_level": worst,
        "fault_handling": worst,
        "fault_code": ",".join(coded),
        "fault_time_and_level_map": {
            code: {"fault_time": coded[code].time_ms, "fault_level": coded[code].level}
            for code in sorted(coded)
        },
    }


def _parse_faults(
    listed: Mapping[str, object], product: Product, path: str
) -> tuple[Fault, ...]:
    key = _fault_key(product)
    path = f"{path}[{key!r}]"
    text = as_string(listed.get(key, ""), path)
    if not text:
        return ()
    return tuple(
        fault
        for index, item in enumerate(as_array(parse_json(text, path), path))
        for fault in _parse_fault(item, product, f"{path}[{index}]")
    )


def _parse_fault(item: object, product: Product, path: str) -> Iterable[Fault]:
    fields = as_object(item, path)
    name = fields.get("npu_name")
    if is_of_another_line(name, product):  # the 310 and the 310P share their key
        return
    chip = parse_chip(name, product, path=f"{path}.npu_name")
    network = fields.get("fault_type") == "CardNetworkUnhealthy"
    worst = as_string(fields.get("fault_level"), f"{path}.fault_level")
    details = as_object(
        fields.get("fault_time_and_level_map", {}), f"{path}.fault_time_and_level_map"
    )
    codes = as_string(fields.get("fault_code"), f"{path}.fault_code")
    for code in codes.split(","):
        where = f"{path}.fault_time_and_level_map[{shown(code)}]"
        detail = as_object(details.get(code, {}), where)
        yield Fault(
            chip=chip,
            code=code,
            level=as_string(detail.get("fault_level", worst), f"{where}.fault_level"),
            time_ms=as_integer(detail.get("fault_time", 0), f"{where}.fault_time"),
            network=network,
        )
