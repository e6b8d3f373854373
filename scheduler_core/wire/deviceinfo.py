"""ConfigMap `mindx-dl-deviceinfo-<node>`: a node's report about its chips.

`DeviceInfoCfg` and its neighbours are byte for byte as MindCluster writes them,
CheckCode included, since its schedulers and operators read them.
The key `AscendAffinity` is ours: chips that are held or not released yet, the rows of
the product table, and the parts of chips that are cut. It lies outside the CheckCode.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

from scheduler_core.errors import UnknownProductError
from scheduler_core.products.table import Product, by_key
from scheduler_core.wire.annotations import (
    WireError,
    chip_name,
    is_of_another_line,
    parse_chip,
    parse_chip_names,
    render_chips,
)
from scheduler_core.wire.faults import rank_level
from scheduler_core.wire.gojson import go_json
from scheduler_core.wire.parts import (
    FreeAmounts,
    PublishedPart,
    free_objects,
    parse_free_objects,
    parse_part_objects,
    part_objects,
)
from scheduler_core.wire.quote import quote_value
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
#: SuperPoD id and server index of a server that cannot be in a SuperPoD
_NOWHERE = -2
#: resources of chips without a parameter plane; their reports have fewer lists
_INFERENCE = ("huawei.com/Ascend310", "huawei.com/Ascend310P")
_DESCRIPTION = (
    "The list under huawei.com/<resource> is kept for schedulers that read it; it is "
    "going to be removed, because a scheduler keeps the free chips of a node itself."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Fault of one chip."""

    #: physical id
    chip: int
    #: hexadecimal fault code; "" when the driver gave none
    code: str
    #: level of the fault configuration, such as `SeparateNPU`
    level: str
    #: time of detection, in milliseconds since 1970
    time_ms: int = 0
    #: whether the fault is of the chip's network
    network: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceInfo:
    """Content of `DeviceInfoCfg`. Chips are physical ids, ascending."""

    #: chips that are healthy and neither claimed, held nor releasing
    available: tuple[int, ...] = ()
    unhealthy: tuple[int, ...] = ()
    network_unhealthy: tuple[int, ...] = ()
    recovering: tuple[int, ...] = ()
    #: faults by chip, network first, then in the order of occurrence
    faults: tuple[Fault, ...] = ()
    #: seconds since 1970
    update_time: int
    super_pod_id: int = _NOWHERE
    server_index: int = _NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class Affinity:
    """Content of `AscendAffinity` for one product line of the node.

    It has the chips that no claim names and that are not free, and the product rows.
    Chips are physical ids, ascending.
    """

    #: chips given out by Allocate
    held: tuple[int, ...] = ()
    #: chips whose pod is deleted and whose processes still run
    releasing: tuple[int, ...] = ()
    #: number that grows with every change
    sequence: int
    #: chips given out under device ids that the kubelet has forgotten
    lost: tuple[int, ...] = ()
    #: keys of the row of these chips, then of rows that their hardware may be as well;
    #: empty from agents that do not publish rows
    products: tuple[str, ...] = ()
    #: parts that lie on chips; `held` has these chips, for readers that know no parts
    parts: tuple[PublishedPart, ...] = ()
    #: {chip that is cut: what its driver says is free there}
    free: Mapping[int, FreeAmounts] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Report about the chips of one product line of a node."""

    product: Product
    info: DeviceInfo
    affinity: Affinity


class StaticParts(NamedTuple):
    """Report about the parts of one kind that were cut beforehand."""

    #: row of the kind
    product: Product
    #: only its lists of held, releasing and lost parts are published
    affinity: Affinity


def configmap_name(node: str) -> str:
    """Return the name of a node's ConfigMap."""
    return f"mindx-dl-deviceinfo-{node}"


#: Most characters of a node's name of which a ConfigMap's name, 253 at most, is made.
LONGEST_NODE_NAME = 253 - len(configmap_name(""))


def render(
    info: DeviceInfo,
    affinity: Affinity,
    product: Product,
    other_lines: Sequence[Line] = (),
    static_parts: Sequence[StaticParts] = (),
) -> dict[str, str]:
    """Render all data keys of the ConfigMap.

    Args:
        info: Report about the first product line; its time is that of the ConfigMap.
        affinity: Held and releasing chips of the first line.
        product: Row of the first line.
        other_lines: Other product lines of the node. SuperPoD and server are taken from
            the first line that has them. The sequence is the sum over all lines.
        static_parts: Parts of the node that were cut beforehand, by kind.

    Source:
        MindCluster device plugin, `DeviceInfoCfg`: order of keys, lists ordered as
        text, UpdateTime in seconds, JSON as Go writes it.
    """
    lines = (Line(product=product, info=info, affinity=affinity), *other_lines)
    device_list = _device_list(lines)
    infos_with_superpod = (
        line.info for line in lines if line.info.super_pod_id != _NOWHERE
    )
    server = next(infos_with_superpod, info)
    document = {
        "DeviceInfo": {"DeviceList": device_list, "UpdateTime": info.update_time},
        "SuperPodID": server.super_pod_id,
        "ServerIndex": server.server_index,
        "CheckCode": check_code(device_list, info.update_time),
    }
    return {
        DEVICE_INFO_KEY: go_json(document),
        "ManuallySeparateNPU": "",
        "UpgradeFaultReason": "{}",
        "Description": _DESCRIPTION,
        AFFINITY_KEY: _affinity(lines, static_parts),
    }


def _device_list(lines: Sequence[Line]) -> dict[str, str]:
    """Render the entries of all lines, ordered by key; 310 and 310P share one list."""
    entries: dict[str, str] = {}
    faults_by_key: dict[str, list[object]] = {}
    for line in lines:
        entries |= _lists(line.info, line.product)
        fault_objects = faults_by_key.setdefault(_fault_key(line.product), [])
        fault_objects += _fault_objects(line.info.faults, line.product)
    entries |= {
        key: go_json(fault_objects) for key, fault_objects in faults_by_key.items()
    }
    return {key: entries[key] for key in sorted(entries)}


def _lists(info: DeviceInfo, product: Product) -> dict[str, str]:
    """Render the lists of chips of one product line."""

    def text(chips: Iterable[int]) -> str:
        return render_chips(chips, product, lexicographic=True)

    entries = {product.resource: text(info.available)}
    if _is_inference(product):
        # There is no list of recovering chips here, and they must not be used yet.
        entries[f"{product.resource}-Unhealthy"] = text(
            {*info.unhealthy, *info.recovering}
        )
    else:
        entries |= {
            f"{product.resource}-NetworkUnhealthy": text(info.network_unhealthy),
            f"{product.resource}-Recovering": text(info.recovering),
            f"{product.resource}-Unhealthy": text(info.unhealthy),
        }
    return entries


def _is_inference(product: Product) -> bool:
    return product.resource in _INFERENCE


def _fault_key(product: Product) -> str:
    """Return the key of a product's faults; the 310 uses the key of the 310P.

    Source:
        MindCluster device plugin, `pkg/common/constants.go`.
    """
    resource = product.resource
    return f"{'huawei.com/Ascend310P' if resource in _INFERENCE else resource}-Fault"


def check_code(device_list: Mapping[str, str], update_time: int) -> str:
    """Return the CheckCode: SHA-256 of DeviceInfo alone, as Go writes it, in hex."""
    ordered = {key: device_list[key] for key in sorted(device_list)}
    text = go_json({"DeviceList": ordered, "UpdateTime": update_time})
    return hashlib.sha256(text.encode()).hexdigest()


def _affinity(lines: Sequence[Line], static_parts: Sequence[StaticParts]) -> str:
    """Render the text under `AscendAffinity` for all lines, one after the other.

    It has `lost` only if a chip is lost, `products` only if a row is known, `parts` and
    `chips` only if a chip is cut, and `static` only if such a part is in use.
    """

    def names(
        select: Callable[[Affinity], Iterable[int]],
        of: Sequence[Line] | Sequence[StaticParts] = lines,
    ) -> list[str]:
        return [
            chip_name(chip, line.product)
            for line in of
            for chip in sorted(select(line.affinity))
        ]

    document: dict[str, object] = {
        "version": _AFFINITY_VERSION,
        "held": names(lambda affinity: affinity.held),
        "releasing": names(lambda affinity: affinity.releasing),
        "sequence": sum(line.affinity.sequence for line in lines)
        + sum(kind.affinity.sequence for kind in static_parts),
    }
    lost_names = names(lambda affinity: affinity.lost)
    if lost_names:
        document["lost"] = lost_names
    products = [key for line in lines for key in line.affinity.products]
    if products:
        document["products"] = products
    parts = [
        part
        for line in lines
        for part in part_objects(line.affinity.parts, line.product)
    ]
    if parts:
        document["parts"] = parts
    free: dict[str, object] = {}
    for line in lines:
        free |= free_objects(line.affinity.free, line.product)
    if free:
        document["chips"] = free
    static = {
        "held": names(lambda affinity: affinity.held, static_parts),
        "releasing": names(lambda affinity: affinity.releasing, static_parts),
        "lost": names(lambda affinity: affinity.lost, static_parts),
    }
    if any(static.values()):
        # not under `held`: older readers would take these for malformed names of chips
        document["static"] = {key: listed for key, listed in static.items() if listed}
    return go_json(document)


def parse_device_info(text: str, product: Product) -> DeviceInfo:
    """Parse the text under `DeviceInfoCfg` for one product line.

    Absent lists are empty, since older agents wrote three of the five
    (docs/adr/0039).
    The CheckCode is not compared, since no scheduler compares it.

    Raises:
        WireError: Not JSON, a field of the wrong type, or no name of a chip.
    """
    return _parse_device_info(text, product, _parse_faults)


def parse_without_faults(text: str, product: Product) -> DeviceInfo:
    """Parse as `parse_device_info`, but do not read the faults.

    For a text whose lists of chips may be right while its faults are malformed.

    Raises:
        WireError: As `parse_device_info`.
    """
    return _parse_device_info(text, product, lambda *_: ())


def _parse_device_info(
    text: str,
    product: Product,
    parse_faults: Callable[[Mapping[str, object], Product, str], tuple[Fault, ...]],
) -> DeviceInfo:
    root, device_info, device_list = _open(text)
    path = f"{DEVICE_INFO_KEY}.DeviceInfo"

    def chips(suffix: str) -> tuple[int, ...]:
        key = product.resource + suffix
        list_path = f"{path}.DeviceList[{key!r}]"
        names = as_string(device_list.get(key, ""), list_path)
        return (
            parse_chip_names(names.split(","), product, path=list_path) if names else ()
        )

    return DeviceInfo(
        available=chips(""),
        unhealthy=chips("-Unhealthy"),
        network_unhealthy=chips("-NetworkUnhealthy"),
        recovering=chips("-Recovering"),
        faults=parse_faults(device_list, product, f"{path}.DeviceList"),
        update_time=_update_time(device_info),
        super_pod_id=as_integer(
            root.get("SuperPodID", -2), f"{DEVICE_INFO_KEY}.SuperPodID"
        ),
        server_index=as_integer(
            root.get("ServerIndex", -2), f"{DEVICE_INFO_KEY}.ServerIndex"
        ),
    )


def _open(text: str) -> tuple[Mapping[str, object], ...]:
    """Return the objects of a report: its root, `DeviceInfo` and `DeviceList`."""
    path = DEVICE_INFO_KEY
    root = as_object(parse_json(text, path), path)
    path = f"{path}.DeviceInfo"
    device_info = as_object(root.get("DeviceInfo"), path)
    device_list = as_object(device_info.get("DeviceList"), f"{path}.DeviceList")
    return root, device_info, device_list


def _update_time(device_info: Mapping[str, object]) -> int:
    path = f"{DEVICE_INFO_KEY}.DeviceInfo.UpdateTime"
    return as_integer(device_info.get("UpdateTime"), path)


def read_sealed_time(text: str) -> int | None:
    """Return the update time of a report with the right CheckCode, else None.

    A program computes the CheckCode; a person who edits a report does not.
    Unit: seconds since 1970.
    """
    try:
        root, device_info, device_list = _open(text)
        texts = {key: as_string(value, key) for key, value in device_list.items()}
        update_time = _update_time(device_info)
    except WireError:
        return None
    is_sealed = root.get("CheckCode") == check_code(texts, update_time)
    return update_time if is_sealed else None


def parse_affinity(text: str, product: Product) -> Affinity:
    """Parse the text under `AscendAffinity` for one product; unknown keys are ignored.

    Its lists name the chips of all product lines of the node, those under `static` the
    parts of all kinds.

    Raises:
        WireError: Not JSON, another version, a field of the wrong type.
    """
    root = _open_affinity(text)
    if product.chip_row is not None:
        return _parse_static(root, product)

    def chips(key: str) -> tuple[int, ...]:
        path = f"{AFFINITY_KEY}.{key}"
        names = as_array(root.get(key, []), path)
        return parse_chip_names(names, product, path=path, of_node=True)

    return Affinity(
        held=chips("held"),
        releasing=chips("releasing"),
        sequence=as_integer(root.get("sequence"), f"{AFFINITY_KEY}.sequence"),
        lost=chips("lost"),
        products=tuple(
            key for key in _products(root) if _resource_of(key) == product.resource
        ),
        parts=parse_part_objects(
            root.get("parts", []), product, f"{AFFINITY_KEY}.parts"
        ),
        free=parse_free_objects(
            root.get("chips", {}), product, f"{AFFINITY_KEY}.chips"
        ),
    )


def _parse_static(root: Mapping[str, object], product: Product) -> Affinity:
    """Parse what is published of the parts of one kind."""
    path = f"{AFFINITY_KEY}.static"
    lists = as_object(root.get("static", {}), path)

    def parts(key: str) -> tuple[int, ...]:
        names = as_array(lists.get(key, []), f"{path}.{key}")
        own = [name for name in names if str(name).startswith(product.chip_prefix)]
        return parse_chip_names(own, product, path=f"{path}.{key}")

    return Affinity(
        held=parts("held"),
        releasing=parts("releasing"),
        lost=parts("lost"),
        sequence=as_integer(root.get("sequence"), f"{AFFINITY_KEY}.sequence"),
    )


def parse_products(text: str) -> tuple[str, ...]:
    """Parse the keys of product rows in the text under `AscendAffinity`, for all lines.

    Of each resource, the first key is that of the row by which the agent serves, and
    the others are of rows that the same hardware may be. Keys may be unknown here.
    Empty if the text is, or if the agent publishes no rows.

    Raises:
        WireError: Not JSON, another version, a field of the wrong type.
    """
    return _products(_open_affinity(text)) if text else ()


def _open_affinity(text: str) -> Mapping[str, object]:
    root = as_object(parse_json(text, AFFINITY_KEY), AFFINITY_KEY)
    if root.get("version") != _AFFINITY_VERSION:
        raise WireError(
            f"{AFFINITY_KEY}.version",
            expected=str(_AFFINITY_VERSION),
            found=root.get("version"),
        )
    return root


def _products(root: Mapping[str, object]) -> tuple[str, ...]:
    path = f"{AFFINITY_KEY}.products"
    return tuple(
        as_string(key, f"{path}[{index}]")
        for index, key in enumerate(as_array(root.get("products", []), path))
    )


def _resource_of(key: str) -> str:
    """Return the resource of a product row; "" for a key that is not known here."""
    try:
        return by_key(key).resource
    except UnknownProductError:
        return ""


def _fault_objects(faults: Iterable[Fault], product: Product) -> list[object]:
    """Return one object per chip and kind, network first, as MindCluster does."""

    def kind(fault: Fault) -> tuple[int, bool]:
        return fault.chip, not fault.network

    return [
        _fault_object(tuple(group), product)
        for _, group in groupby(sorted(faults, key=kind), key=kind)
    ]


def _fault_object(faults: tuple[Fault, ...], product: Product) -> dict[str, object]:
    worst_level = min((fault.level for fault in faults), key=rank_level)
    first_fault = faults[0]
    fault_by_code = {fault.code.upper(): fault for fault in faults if fault.code}
    return {
        "fault_type": "CardNetworkUnhealthy"
        if first_fault.network
        else "CardUnhealthy",
        "npu_name": chip_name(first_fault.chip, product),
        "large_model_fault_level": worst_level,
        "fault_level": worst_level,
        "fault_handling": worst_level,
        "fault_code": ",".join(fault_by_code),
        "fault_time_and_level_map": {
            code: {
                "fault_time": fault_by_code[code].time_ms,
                "fault_level": fault_by_code[code].level,
            }
            for code in sorted(fault_by_code)
        },
    }


def _parse_faults(
    device_list: Mapping[str, object], product: Product, path: str
) -> tuple[Fault, ...]:
    key = _fault_key(product)
    path = f"{path}[{key!r}]"
    text = as_string(device_list.get(key, ""), path)
    if not text:
        return ()
    return tuple(
        fault
        for index, item in enumerate(as_array(parse_json(text, path), path))
        for fault in _parse_fault(item, product, f"{path}[{index}]")
    )


def _parse_fault(item: object, product: Product, path: str) -> Iterable[Fault]:
    """Yield a fault for each code, and one without a code if the item's level is worse.

    No code has the level of a chip that a person has separated.
    """
    fields = as_object(item, path)
    name = fields.get("npu_name")
    if is_of_another_line(name, product):  # the 310 and the 310P share their key
        return
    chip = parse_chip(name, product, path=f"{path}.npu_name")
    network = fields.get("fault_type") == "CardNetworkUnhealthy"
    fault_level = as_string(fields.get("fault_level"), f"{path}.fault_level")
    details = as_object(
        fields.get("fault_time_and_level_map", {}), f"{path}.fault_time_and_level_map"
    )
    codes = as_string(fields.get("fault_code"), f"{path}.fault_code")
    levels: list[str] = []
    for code in codes.split(","):
        detail_path = f"{path}.fault_time_and_level_map[{quote_value(code)}]"
        detail = as_object(details.get(code, {}), detail_path)
        level = as_string(
            detail.get("fault_level", fault_level), f"{detail_path}.fault_level"
        )
        levels.append(level)
        yield Fault(
            chip=chip,
            code=code,
            level=level,
            time_ms=as_integer(
                detail.get("fault_time", 0), f"{detail_path}.fault_time"
            ),
            network=network,
        )
    if rank_level(fault_level) < min(map(rank_level, levels)):
        yield Fault(chip=chip, code="", level=fault_level, network=network)
