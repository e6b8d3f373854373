import io
import os
import re
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from sandbox.faults import drivers, inject, parse
from sandbox.faults.kinds import FAULTS, FaultError, duration_s, read
from sandbox.world import Machine
from sandbox.world.directories import Node

NODES = ("n1", "n2")
PAGE = Path(__file__).parents[3] / "docs" / "scenarios.md"


def test_each_fault_of_the_table_is_done() -> None:
    assert {kind.name for kind in FAULTS} == inject.DOABLE


def test_the_page_for_people_names_each_fault_and_its_parameters() -> None:
    rows = re.findall(r"^\| `([a-z0-9-]+)` \| (.*?) \|", PAGE.read_text(), re.MULTILINE)
    written = {name: re.findall(r"`([a-z-]+)`", words) for name, words in rows}

    expected = {
        kind.name: [parameter.name for parameter in kind.parameters] for kind in FAULTS
    }
    assert {name: written.get(name) for name in expected} == expected


def test_a_fault_is_read_with_what_is_usual() -> None:
    fault = read("agent-killed", {"node": "n2", "nth": "3"}, NODES)

    assert fault.values == {"node": "n2", "at": "now", "nth": 3}
    assert fault.for_s == 1.0


def test_all_that_is_wrong_with_a_fault_is_said_at_once() -> None:
    given = {"node": "n9", "chips": "all", "colour": "red", "for": "soon"}

    with pytest.raises(FaultError) as caught:
        read("chip-broken", given, NODES)

    assert caught.value.problems == (
        "colour: no such key, expected one of name, node, chips, for",
        "node: expected one of n1, n2, found 'n9'",
        "chips: expected chip numbers such as 0,3, found 'all'",
        "for: expected a duration such as 500ms, 10s, 1m, found 'soon'",
    )


def test_an_unknown_fault_is_told_which_there_are() -> None:
    with pytest.raises(FaultError, match=r"^name: expected one of api-slow, .*'x'$"):
        read("x", {}, NODES)


@pytest.mark.parametrize(
    ("told", "seconds"), [("1h", 3600), ("-1.5m", -90), ("8760h", 31_536_000)]
)
def test_a_clock_is_stepped_ahead_or_back(told: str, seconds: float) -> None:
    assert read("clock-stepped", {"by": told}, NODES).values == {
        "user": "*",
        "by": seconds,
    }


@pytest.mark.parametrize("told", ["--1h", "9000h", "an hour", 3600])
def test_a_clock_is_stepped_by_a_year_at_most(told: object) -> None:
    with pytest.raises(FaultError, match="back: -1h; a year at most, found "):
        read("clock-stepped", {"by": told}, NODES)


@pytest.mark.parametrize(
    ("told", "seconds"),
    [("500ms", 0.5), ("10s", 10), ("1.5m", 90), ("1h", 3600), ("10", None), (7, None)],
)
def test_durations(told: object, seconds: float | None) -> None:
    assert duration_s(told) == seconds


def test_what_a_person_types_is_understood_or_explained(tmp_path: Path) -> None:
    assert parse.request(["api-down", "for=10s"]) == {
        "begin": "api-down",
        "given": {"for": "10s"},
    }
    assert parse.request(["--end", "api-down"]) == {"end": "api-down"}
    assert parse.request(["api-down", "10s"]) is None
    out, err = io.StringIO(), io.StringIO()
    environ = {"KUBECONFIG": str(tmp_path / "kubeconfig")}

    assert parse.main(["fault"], environ, out, err) == 2
    assert parse.main(["fault", "api-down"], environ, out, err) == 1
    assert parse.main(["faults"], environ, out, err) == 0
    assert parse.main(["fault", "--help"], environ, out, err) == 0

    assert "expected the KUBECONFIG of a running sandbox" in err.getvalue()
    assert out.getvalue().startswith("api-slow: each request to the API server waits")


@pytest.fixture
def node(tmp_path: Path) -> Node:
    made = Node(
        name="n1",
        root=tmp_path,
        api_url="",
        kubelet_url="",
        service_account_dir=tmp_path,
        machine=Machine(name="n1"),
    )
    made.set_faults(())
    return made


async def test_a_silent_driver_has_nothing_to_read_until_it_is_mended(
    node: Node,
) -> None:
    before = node.driver_file.read_bytes()
    with drivers.silent(node):
        waiting = os.open(node.driver_file, os.O_RDONLY | os.O_NONBLOCK)

        with (
            pytest.raises(FaultError, match="silent or slow already"),
            drivers.silent(node),
        ):
            pass

    assert os.read(waiting, 4096) == before
    assert node.driver_file.read_bytes() == before
    os.close(waiting)


async def test_a_lying_driver_tells_the_truth_again(node: Node) -> None:
    before = node.driver_file.read_bytes()
    with drivers.lying(node, (3,)):
        pass

    assert node.driver_file.read_bytes() == before


async def test_chips_that_break_one_after_the_other_are_mended_one_by_one(
    node: Node,
) -> None:
    first, second = ExitStack(), ExitStack()
    first.enter_context(drivers.broken(node, (0, 3)))
    second.enter_context(drivers.broken(node, (3, 5)))
    both = _broken(node)
    first.close()
    left = _broken(node)
    second.close()

    assert (both, left, _broken(node)) == ([0, 3, 3, 5], [3, 5], [])


def _broken(node: Node) -> list[int]:
    said = yaml.safe_load(node.driver_file.read_text(encoding="utf-8"))
    return [fault["chip"] for fault in said["faults"]]
