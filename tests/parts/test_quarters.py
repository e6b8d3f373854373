"""Each test and each target of make has one place: always, the core, or a quarter."""

import re
from collections import Counter

from tests.parts import marks
from tests.parts.quarters import BY_HAND, OPERATORS, QUARTERS, ROOT

E2E = "tests/e2e"
#: Targets that run the same in each change, or choose among what has its place.
ALWAYS = {"test", "check", "demo", "e2e-core"}
CHOICES = {
    *("e2e", "e2e-bare", "e2e-controllers", "e2e-faults", "e2e-operators"),
    *("everything", "gangs", "long", "quarter", "successors"),
}
#: Targets that test nothing.
WORK = {
    *("bench", "clean", "e2e-down", "e2e-up", "entered", "help", "image", "sandbox"),
    *("seeds", "sizes", "stubs"),
}


def files(root_folder: str) -> set[str]:
    found = marks.test_files(ROOT, root_folder)
    return {path.relative_to(ROOT).as_posix() for path in found}


def doubled(names: Counter[str]) -> list[str]:
    return [name for name, count in names.items() if count > 1]


def test_each_file_of_the_real_cluster_is_in_one_quarter() -> None:
    placed = Counter(
        name
        for each in QUARTERS
        for name in (*each.node, *each.bare, *each.controllers)
    )
    placed.update(OPERATORS)

    assert doubled(placed) == []
    assert {*placed} | {*BY_HAND} == files(E2E)
    assert not {*placed} & {*BY_HAND}


def test_each_file_with_long_tests_is_in_one_quarter() -> None:
    placed = Counter(name for each in QUARTERS for name in each.long)
    marked = {name for name in files("tests") if marks.has(ROOT / name, "long")}

    assert doubled(placed) == []
    assert {*placed} == marked


def test_each_target_of_make_has_its_place() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z0-9-]+):.*## ", text, re.MULTILINE))
    placed = Counter(words[0] for each in QUARTERS for words in each.make)

    assert doubled(placed) == []
    groups = (ALWAYS, CHOICES, WORK, {"soak"}, {*placed})
    assert Counter(name for group in groups for name in group) == Counter(targets)


def test_no_test_of_the_core_is_left_to_hands() -> None:
    core = {test.partition("::")[0] for _, test in marks.core(ROOT, E2E)}

    assert not core & {*BY_HAND}


def test_faults_stand_last_because_their_pods_stay_from_first_to_last() -> None:
    for each in QUARTERS:
        are_faults = [name.startswith(f"{E2E}/faults/") for name in each.node]
        assert are_faults == sorted(are_faults)
