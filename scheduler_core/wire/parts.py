"""Texts about parts of chips: annotations of pods, device ids, a label, the report.

    annotation huawei.com/npu-core     0-vir02_1c, or whole chips: 0,1
    annotation huawei.com/AscendReal   Ascend310P-2c.1cpu-100-0_1: kind, number of the
                                       virtual device, chip, vGroup
    annotation huawei.com/kltDev       npu-core-8,npu-core-9: an id for each AI core
    label servertype                   Ascend310P-8: family, AI cores of a chip

The report's `AscendAffinity` has the parts that lie on chips, and what the driver says
is free there; the number of AI cores alone does not tell what fits (`parts/room.py`).

Source:
    MindCluster ascend-device-plugin and ascend-for-volcano.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from scheduler_core.parts.request import NPU_CORE
from scheduler_core.parts.templates import is_template_name
from scheduler_core.products.table import Product
from scheduler_core.wire.annotations import (
    ASCEND_REAL,
    KLT_DEV,
    WireError,
    annotation_path,
    chip_name,
    is_of_another_line,
    parse_chip,
    parse_number,
)
from scheduler_core.wire.typed import as_array, as_integer, as_object, as_string

#: label of a Node, read by MindCluster's scheduler
SERVER_TYPE = "servertype"

_CORE_ID_PREFIX = "npu-core-"
#: most AI cores of a node, and the largest number of a virtual device
_MOST_CORES = 10_000
_MOST_DEVICES = 2**31
_MOST_GROUPS = 100
_KIND = r"[0-9]{1,2}c(\.[0-9]cpu)?(\.[0-9]{1,2}g)?(\.n?dvpp)?"
_REAL = re.compile(
    rf"(?P<kind>{_KIND})-(?P<device>[0-9]{{1,10}})-(?P<chip>[0-9]{{1,5}})"
    r"(_(?P<group>[0-9]{1,2}))?"
)
_SERVER = re.compile(r"(?P<family>Ascend[0-9A-Za-z]{1,16})-(?P<cores>[1-9][0-9]{0,2})")


class ChosenPart(NamedTuple):
    """Part that the scheduler chose."""

    #: physical id
    chip: int
    #: name of the template; chips of another kind may not have it
    template: str


class MountedPart(NamedTuple):
    """Part that was mounted."""

    #: kind of the virtual device, as `2c.1cpu`
    kind: str
    #: its number at the driver
    device: int
    #: physical id of its chip
    chip: int
    #: its vGroup; None from writers that leave it out
    group: int | None


class PartState(StrEnum):
    """What holds a part that lies on a chip."""

    HELD = "held"
    #: its pod is deleted, and it is not destroyed yet
    RELEASING = "releasing"


@dataclass(frozen=True, slots=True)
class PublishedPart:
    """Part on a chip, in the report of its node."""

    #: physical id
    chip: int
    template: str
    #: number at the driver
    device: int
    #: its vGroup; None on chips without vGroups
    group: int | None
    state: PartState


@dataclass(frozen=True, slots=True)
class FreeAmounts:
    """What the driver says is free on a chip that is cut."""

    cores: int
    ai_cpus: int
    #: mask of the vGroups that no part has; None on chips without vGroups
    groups: int | None


def render_choice(choice: ChosenPart | Sequence[int]) -> str:
    """Render the annotation `huawei.com/npu-core` of a part, or of whole chips."""
    if isinstance(choice, ChosenPart):
        return f"{choice.chip}-{choice.template}"
    return ",".join(map(str, sorted(choice)))


def parse_choice(text: str, product: Product) -> ChosenPart | tuple[int, ...]:
    """Parse the annotation `huawei.com/npu-core`.

    Returns:
        A part, or the physical ids of whole chips, ascending.

    Raises:
        WireError: Neither `<chip>-<template>` nor a list of chips, each once.
    """
    path = annotation_path(NPU_CORE)
    chip_text, dash, template = text.partition("-")
    if dash:
        if not is_template_name(template):
            raise WireError(path, expected="<chip>-<template>", found=text)
        return ChosenPart(_chip(chip_text, product, path, text), template)
    chips = [_chip(item, product, path, text) for item in text.split(",")]
    if len(set(chips)) < len(chips):
        raise WireError(path, expected="each chip once", found=text)
    return tuple(sorted(chips))


def render_mounted(part: MountedPart, product: Product) -> str:
    """Render the annotation `huawei.com/AscendReal` of a part."""
    group = "" if part.group is None else f"_{part.group}"
    return f"{product.chip_prefix}{part.kind}-{part.device}-{part.chip}{group}"


def parse_mounted(text: str, product: Product) -> MountedPart:
    """Parse the annotation `huawei.com/AscendReal` of a part.

    Raises:
        WireError: Not `<chips><kind>-<device>-<chip>_<vGroup>`; the vGroup may miss.
    """
    path = annotation_path(ASCEND_REAL)
    match = _REAL.fullmatch(text.removeprefix(product.chip_prefix))
    if match is None or not text.startswith(product.chip_prefix):
        raise WireError(
            path,
            expected=f"{product.chip_prefix}<kind>-<device>-<chip>_<vGroup>",
            found=text,
        )
    device = _number(match["device"], path, _MOST_DEVICES, text)
    chip = _chip(match["chip"], product, path, text)
    group = match["group"]
    return MountedPart(
        match["kind"],
        device,
        chip,
        None if group is None else _number(group, path, _MOST_GROUPS, text),
    )


def render_core_ids(cores: Iterable[int]) -> str:
    """Render the annotation `huawei.com/kltDev` of AI cores, by name as text."""
    return ",".join(sorted(f"{_CORE_ID_PREFIX}{core}" for core in cores))


def parse_core_ids(text: str) -> tuple[int, ...]:
    """Parse the annotation `huawei.com/kltDev` of AI cores.

    Returns:
        Numbers of the AI cores on the node, ascending.

    Raises:
        WireError: An element is no `npu-core-<number>`, or is repeated.
    """
    path = annotation_path(KLT_DEV)
    cores = []
    for name in text.split(","):
        if not name.startswith(_CORE_ID_PREFIX):
            raise WireError(path, expected=f"{_CORE_ID_PREFIX}<number>", found=name)
        digits = name.removeprefix(_CORE_ID_PREFIX)
        cores.append(_number(digits, path, _MOST_CORES, name))
    if len(set(cores)) < len(cores):
        raise WireError(path, expected="each AI core once", found=text)
    return tuple(sorted(cores))


def render_server_type(family: str, cores: int) -> str:
    """Render the label `servertype`: family of the chips, AI cores of one."""
    return f"{family}-{cores}"


def parse_server_type(text: str) -> tuple[str, int] | None:
    """Parse the label `servertype`: family of the chips, AI cores of one.

    None for any other text: people and other programs set this label, too.
    """
    match = _SERVER.fullmatch(text)
    return match and (match["family"], int(match["cores"]))


def part_objects(parts: Iterable[PublishedPart], product: Product) -> list[object]:
    """Return the objects under `AscendAffinity.parts`, by chip and number."""
    return [
        {
            "chip": chip_name(part.chip, product),
            "template": part.template,
            "vdev": part.device,
            **({} if part.group is None else {"group": part.group}),
            "state": part.state.value,
        }
        for part in sorted(parts, key=lambda part: (part.chip, part.device))
    ]


def free_objects(
    free: Mapping[int, FreeAmounts], product: Product
) -> dict[str, object]:
    """Return the object under `AscendAffinity.chips`, by chip."""
    return {
        chip_name(chip, product): {
            "cores": amounts.cores,
            "aicpu": amounts.ai_cpus,
            **({} if amounts.groups is None else {"groups": bin(amounts.groups)}),
        }
        for chip, amounts in sorted(free.items())
    }


def parse_part_objects(
    value: object, product: Product, path: str
) -> tuple[PublishedPart, ...]:
    """Parse the objects under `AscendAffinity.parts` for one product line.

    Raises:
        WireError: A field of the wrong type, an unknown chip, template or state, or
            two parts with one number.
    """
    parts: dict[int, PublishedPart] = {}
    for index, item in enumerate(as_array(value, path)):
        where = f"{path}[{index}]"
        part = as_object(item, where)
        name = as_string(part.get("chip"), f"{where}.chip")
        if is_of_another_line(name, product):
            continue
        template = as_string(part.get("template"), f"{where}.template")
        if not is_template_name(template):
            raise WireError(
                f"{where}.template", expected="a template's name", found=template
            )
        state = as_string(part.get("state"), f"{where}.state")
        if state not in tuple(PartState):
            raise WireError(
                f"{where}.state", expected=" or ".join(PartState), found=state
            )
        device = as_integer(part.get("vdev"), f"{where}.vdev")
        if device in parts:
            raise WireError(f"{where}.vdev", expected="each number once", found=device)
        group = part.get("group")
        parts[device] = PublishedPart(
            chip=parse_chip(name, product, path=f"{where}.chip"),
            template=template,
            device=device,
            group=None if group is None else as_integer(group, f"{where}.group"),
            state=PartState(state),
        )
    return tuple(sorted(parts.values(), key=lambda part: (part.chip, part.device)))


def parse_free_objects(
    value: object, product: Product, path: str
) -> dict[int, FreeAmounts]:
    """Parse the object under `AscendAffinity.chips` for one product line, by chip.

    Raises:
        WireError: A field of the wrong type, or an unknown chip.
    """
    free: dict[int, FreeAmounts] = {}
    for name, item in as_object(value, path).items():
        if is_of_another_line(name, product):
            continue
        where = f"{path}[{name!r}]"
        amounts = as_object(item, where)
        groups = amounts.get("groups")
        free[parse_chip(name, product, path=path)] = FreeAmounts(
            cores=as_integer(amounts.get("cores"), f"{where}.cores"),
            ai_cpus=as_integer(amounts.get("aicpu"), f"{where}.aicpu"),
            groups=None if groups is None else _mask(groups, f"{where}.groups"),
        )
    return free


def _mask(value: object, path: str) -> int:
    text = as_string(value, path)
    if not re.fullmatch("0b[01]{1,16}", text):
        raise WireError(path, expected="a mask of vGroups, as 0b1101", found=text)
    return int(text, 2)


def _chip(digits: str, product: Product, path: str, found: str) -> int:
    chip = _number(digits, path, product.chip_count, found)
    if not product.all_chips >> chip & 1:
        raise WireError(path, expected="a chip of this server", found=found)
    return chip


def _number(digits: str, path: str, below: int, found: str) -> int:
    is_short = len(digits) <= len(str(_MOST_DEVICES))
    number = parse_number(digits, below) if is_short else None
    if number is None:
        raise WireError(path, expected=f"numbers from 0 to {below - 1}", found=found)
    return number
