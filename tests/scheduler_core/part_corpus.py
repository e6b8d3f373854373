"""Recorded cases about parts of chips, and how they are read.

A chip is named by its model (`B4-1`, `910B4-1`, `A3-20`, `310P`), parts by template
and vGroup.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from scheduler_core.parts import templates
from scheduler_core.parts.index import PartIndex, PartNode
from scheduler_core.parts.request import (
    DVPP,
    LEVEL,
    Cut,
    PartRequestError,
    WholeChips,
    Wish,
    resolve,
    templates_for,
    wish_of,
)
from scheduler_core.parts.room import Part, Room, empty_room, join, room_of
from scheduler_core.parts.templates import ChipKind, Dvpp
from scheduler_core.products.table import by_key
from scheduler_core.wire.parts import (
    ChosenPart,
    parse_choice,
    parse_mounted,
    render_choice,
)
from tests.scheduler_core.corpus import Case


def _chip(model: str) -> ChipKind:
    chip = templates.by_key(f"910{model}" if model.startswith("B") else model)
    assert chip is not None, model
    return chip


def _room(chip: ChipKind, parts: list[dict[str, Any]]) -> Room:
    return room_of(
        chip, [Part(chip.template(part["template"]), part["group"]) for part in parts]
    )


def _wish(cores: int, given: Mapping[str, Any]) -> Wish:
    """A pod's wish; a label without a value is not set."""
    return wish_of(cores, {k: given[k] for k in (LEVEL, DVPP) if given.get(k)})


def check_vnpu_fits(case: Case) -> None:
    chip = _chip(case["input"]["chip"])
    room = _room(chip, case["input"]["parts"])
    answer = {"may_add": [], "whole": room == empty_room(chip)}
    answer["may_add"] = [
        template.name for template in chip.asked if join(chip, room, template)
    ]
    wanted = {**case["expect"], "may_add": sorted(case["expect"]["may_add"])}

    assert {key: answer[key] for key in wanted} == wanted


def check_vnpu_choice(case: Case) -> None:
    given = case["input"]
    chip = _chip(case["product"].partition(" ")[0])
    wish = _wish(given["request"]["npu-core"], given["request"])
    try:
        cut = resolve(chip, wish)
    except PartRequestError:
        assert case["expect"] == {"refused": True}
        return
    assert isinstance(cut, Cut), "whole chips go by the row of the server"
    nodes = (
        PartNode(name, chip, tuple((i, _room(chip, p)) for i, p in enumerate(chips)))
        for name, chips in given["nodes"].items()
    )
    choice = PartIndex(nodes).best(wish)
    if choice is None:
        answer: dict[str, object] = {"refused": True}
    else:
        text = render_choice(ChosenPart(choice.chip, choice.template.name))
        answer = {"node": choice.node, "annotation": text}

    assert answer == case["expect"]


def check_vnpu_resource(case: Case) -> None:
    given, wanted = case["input"], case["expect"]
    chip = _chip(case["product"].partition(" ")[0])
    wish = _wish(given["aicore"], given)
    if "error_contains" in wanted:
        # for an illegal number of cores, the sentence is ours
        known = wish.dvpp in tuple(Dvpp)
        text = "ask for" if known else wanted["error_contains"]
        with pytest.raises(PartRequestError, match=re.escape(text)):
            resolve(chip, wish)
        return
    got = resolve(chip, wish)
    if isinstance(got, WholeChips):  # no part, so no AI CPUs are counted for it
        answer = {"aicore": given["aicore"], "aicpu": 0, "dvpp": "null"}
    else:
        template = got.template
        cores, ai_cpus = template.amounts.cores, template.amounts.ai_cpus
        answer = {"aicore": cores, "aicpu": ai_cpus, "dvpp": template.dvpp.value}

    assert answer == wanted


def check_vnpu_template(case: Case) -> None:
    given = case["input"]
    chip = _chip(given["chip"])
    found = templates_for(chip, _wish(given["aicore"], given))

    assert (found[0].name if found else "") == (case["expect"]["template"] or "")


def check_vnpu_annotation(case: Case) -> None:
    row = by_key("atlas-310p")
    answer: dict[str, object] = {}
    if "device" in case["input"]:
        device = case["input"]["device"]
        answer["physical"] = f"{row.chip_prefix}{parse_mounted(device, row).chip}"
    else:
        choice = parse_choice(case["input"]["huawei.com/npu-core"], row)
        answer["whole_card"] = not isinstance(choice, ChosenPart)

    assert answer == case["expect"]


def check_job_valid(case: Case) -> None:
    """A request is valid by chip; 310P takes multiples of 8, not of 10 as well."""
    given = case["input"]
    chip = _chip(case["product"].rpartition(" ")[2])
    cores = given["aicore"]
    is_valid = case["expect"]["valid"]
    if chip.key == "310P" and cores % 10 == 0:
        is_valid = cores > 0 and cores % 8 == 0
    if is_valid and cores:
        resolve(chip, _wish(cores, given))
    else:
        with pytest.raises(PartRequestError):
            resolve(chip, _wish(cores, given))


CHECKS: Mapping[str, Callable[[Case], None]] = {
    "vnpu_annotation": check_vnpu_annotation,
    "vnpu_choice": check_vnpu_choice,
    "vnpu_fits": check_vnpu_fits,
    "vnpu_resource": check_vnpu_resource,
    "vnpu_template": check_vnpu_template,
}
