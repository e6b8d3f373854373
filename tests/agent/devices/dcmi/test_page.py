"""docs/driver.md has each call of libdcmi, how often it is made, and each error."""

import ast
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, cast

import pytest

from agent.devices.dcmi import __main__, library, lifecycle, reader
from agent.devices.dcmi.library import MEANINGS, NOT_SUPPORTED, CallError, Library
from agent.devices.dcmi.progress import Call
from agent.devices.dcmi.reader import ChipReader
from agent.health import conditions
from agent.settings import Settings
from service import settings

PAGE = (Path(__file__).parents[4] / "docs" / "driver.md").read_text()
MODULES = {
    "__main__": __main__,
    "conditions": conditions,
    "lifecycle": lifecycle,
    "reader": reader,
}
TREE = ast.parse(Path(library.__file__).read_text())
FUNCTION = re.compile(r"dlopen|dcmi_[a-z0-9_]+")
#: {constant of the module: its text}
CONSTANTS = {
    target.id: node.value.value
    for node in TREE.body
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
    for target in node.targets
    if isinstance(target, ast.Name)
}
MINUTES = 20


def rows(title: str) -> list[list[str]]:
    """The cells of the table of one section, without its head."""
    section = PAGE.split(f"\n## {title}\n")[1].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def functions_in(tree: ast.AST) -> set[str]:
    """Names of C functions that stand in a piece of the library's module."""
    texts = {
        node.value if isinstance(node, ast.Constant) else CONSTANTS.get(node.id)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant | ast.Name)
    }
    return {
        text for text in texts if isinstance(text, str) and FUNCTION.fullmatch(text)
    }


def functions_of_methods() -> dict[str, set[str]]:
    """C functions that each method of the library calls, itself or by another one."""
    (library_class,) = (
        node
        for node in TREE.body
        if isinstance(node, ast.ClassDef) and node.name == Library.__name__
    )
    methods = {
        node.name: node
        for node in library_class.body
        if isinstance(node, ast.FunctionDef)
    }
    found = {name: functions_in(node) for name, node in methods.items()}
    for name, node in methods.items():
        for part in ast.walk(node):
            if isinstance(part, ast.Attribute) and part.attr in found:
                found[name] |= functions_in(methods[part.attr])
    return found


class QuietLibrary:
    """Two chips on each of eight cards: without faults, and all is told or absent."""

    def cards(self) -> tuple[tuple[int, ...], int]:
        return tuple(range(8)), 0

    def device_count(self, card: int) -> int:
        return 2

    def is_chip(self, card: int, device: int) -> bool:
        return True

    def logic_id(self, card: int, device: int) -> int:
        return 2 * card + device

    def physical_id(self, card: int, device: int, logic_id: int) -> int:
        return logic_id

    def chip_info(self, card: int, device: int) -> tuple[str, int]:
        return "910B3", 20

    def board_id(self, card: int, device: int) -> int:
        return 0x30

    def memory_mb(self, card: int, device: int) -> int:
        return 65536

    def check_ready(self, card: int, device: int) -> None:
        """Every chip is ready."""

    def codes(self, card: int, device: int) -> tuple[int, ...]:
        return ()

    def __getattr__(self, method: str) -> Callable[..., NoReturn]:
        def refuse(*_place: int) -> NoReturn:
            raise CallError(Call(function=method), NOT_SUPPORTED)

        return refuse


class Counted:
    """A library whose calls are counted, by the names of its methods."""

    def __init__(self, counted: QuietLibrary) -> None:
        self._counted = counted
        self.calls: Counter[str] = Counter()

    def __getattr__(self, method: str) -> Callable[..., object]:
        def count(*arguments: int) -> object:
            self.calls[method] += 1
            called: Callable[..., object] = getattr(self._counted, method)
            return called(*arguments)

        return count


def calls_a_minute(*, has_events: bool) -> dict[str, float]:
    """C functions that are called in a minute, once all is known."""
    counted, now_s = Counted(QuietLibrary()), 0.0
    chip_reader = ChipReader(
        cast("Library", counted),
        now_s=lambda: now_s,
        nodes=Path("/none"),
        has_events=has_events,
    )
    chip_reader.read_chips()
    counted.calls.clear()
    while now_s < 60.0 * MINUTES:
        now_s += chip_reader.pause_s
        chip_reader.read_chips()
    methods = functions_of_methods()
    functions: Counter[str] = Counter()
    for method, count in counted.calls.items():
        for function in methods[method]:
            functions[function] += count
    return {function: round(n / MINUTES, 1) for function, n in functions.items()}


def test_each_call_in_the_code_has_one_row_and_no_row_is_without_a_call() -> None:
    named = sorted(row[0].strip("`") for row in rows("Calls"))

    assert named == sorted(functions_in(TREE) | {"dlopen"})


def test_each_call_has_its_errors_once() -> None:
    named = sorted(
        name
        for row in rows("What each error leads to")
        for name in re.findall(r"`([a-z0-9_]+)`", row[0])
    )

    assert named == sorted(functions_in(TREE) | {"dlopen"})


@pytest.mark.parametrize("has_events", [False, True], ids=["polled", "with-events"])
def test_calls_are_as_frequent_as_the_page_says(*, has_events: bool) -> None:
    counted = calls_a_minute(has_events=has_events)
    said = {}
    for name, _, minute, _ in rows("Calls"):
        numbers = [float(number) for number in re.findall(r"[\d.]+", minute)]
        times = 1 if "node" in minute else 8 if "card" in minute else 16
        said[name.strip("`")] = times * numbers[has_events] if numbers else 0
    total = sum(counted.values())

    assert {name: counted.get(name, 0) for name in said} == said
    assert (
        f"{total:,.0f}" in PAGE.split("A quiet node of 16 chips")[1].partition("\n")[0]
    )


def test_the_intervals_are_those_of_the_code() -> None:
    intervals = rows("Intervals")
    for _, seconds, constant, _ in intervals:
        module, _, name = constant.strip("`").partition(".")
        assert float(seconds) == getattr(MODULES[module], name), constant
    named = {row[2].strip("`") for row in intervals}

    of_reader = {f"reader.{name}" for name in vars(reader) if name.endswith("_EACH_S")}
    assert of_reader <= named
    defaults = settings.load(Settings, ["--node-name", "node-1"], {})
    assert f"`--driver-deadline-s`, {defaults.driver_deadline_s:g} s" in PAGE
    assert f"{defaults.survey_wait_s:g} s at most (`--survey-wait-s`)" in PAGE


def test_the_errors_are_those_of_the_code() -> None:
    said = {int(code): name.strip("`") for code, name in rows("Errors by name")}

    assert said == dict(MEANINGS)
