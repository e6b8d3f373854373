"""Run mutmut over one part of the product: which changes of it does no test notice?

    .venv/bin/python -m pip install -c constraints.txt mutmut
    .venv/bin/python tests/mutation.py agent.claims               # all of it
    .venv/bin/python tests/mutation.py agent.claims NAME…         # some, by their names
    .venv/bin/python tests/mutation.py --slow agent.claims NAME…  # on its slow tests
    .venv/bin/python tests/mutation.py --show agent.claims        # what has survived

Works on a copy of the tree below build/, and remembers there what it has tried: after
a change, only functions that differ are tried again. What came out, and why some may
survive, is in tests/mutation.md.
"""

import argparse
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "mutation"
#: What the tests import or read, besides what is mutated.
BESIDE = (
    *("agent", "extender", "kube", "kubelet_api", "sandbox", "scheduler_core"),
    *("service", "tests", "docs", "daemonset"),
)
#: Examples of a state machine for one mutant: more would take a night.
EXAMPLES = "200"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What is mutated, and the tests that are to notice."""

    package: str  #: first folder of it
    mutated: tuple[str, ...]  #: globs
    tests: tuple[str, ...]  #: fast ones: they are run for each mutant
    slow: tuple[str, ...]  #: what survives these is tried on


PARTS = {
    "agent.claims": Part(
        package="agent",
        mutated=("agent/claims/*",),
        tests=(
            "tests/agent/claims",
            "tests/agent/rules",
            "tests/agent/test_annotation_readers.py",
            "tests/agent/test_pairing_rules.py",
            "tests/agent/test_standalone_plans.py",
        ),
        slow=(
            "tests/agent/claims/test_annotations.py",
            "tests/agent/claims/test_state_machine.py",
        ),
    ),
    "scheduler_core": Part(
        package="scheduler_core",
        mutated=(
            "scheduler_core/node/chips.py",
            "scheduler_core/node/layouts.py",
            "scheduler_core/node/order.py",
            "scheduler_core/topology/leaf_order.py",
            "scheduler_core/topology/shared_leaves.py",
            "scheduler_core/topology/leaves.py",
            "scheduler_core/topology/superpods.py",
        ),
        tests=(
            "tests/scheduler_core/node/test_chips.py",
            "tests/scheduler_core/node/test_layouts.py",
            "tests/scheduler_core/node/test_orders_of_the_reference.py",
            "tests/scheduler_core/products/test_columns.py",
            "tests/scheduler_core/node/test_order.py",
            "tests/scheduler_core/topology/test_superpods.py",
            "tests/scheduler_core/topology/test_switch_rules.py",
            "tests/scheduler_core/topology/test_leaf_order.py",
        ),
        slow=(
            "tests/scheduler_core/products/test_columns.py",
            "tests/scheduler_core/test_corpus.py",
            "tests/scheduler_core/explain/test_fragmentation.py",
            "tests/scheduler_core/placement/test_gang.py",
            "tests/scheduler_core/placement/test_gang_on_superpods.py",
            "tests/scheduler_core/topology/test_switch_rules.py",
        ),
    ),
}


def main() -> None:
    """Copy the tree, and have mutmut work on the copy."""
    asked = _arguments()
    part = PARTS[asked.part]
    where = BUILD / (asked.part + ("-slow" if asked.slow else ""))
    if asked.show:
        _mutmut(where, "results")
        return
    _copy(where)
    (where / "setup.cfg").write_text(_settings(part, slow=asked.slow))
    _mutmut(where, "run", "--max-children", str(asked.jobs), *asked.names)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, usage="see tests/mutation.py")
    parser.add_argument("--slow", action="store_true")
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("part", choices=sorted(PARTS))
    parser.add_argument("names", nargs="*")
    return parser.parse_args()


def _copy(where: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z"],  # noqa: S607  # the developer's own git
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        source, target = ROOT / name, where / name
        if not source.is_file():
            continue  # deleted and not committed
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists() or target.read_bytes() != source.read_bytes():
            shutil.copy2(source, target)


def _settings(part: Part, *, slow: bool) -> str:
    lists = {
        "source_paths": (part.package,),
        "only_mutate": part.mutated,
        "also_copy": tuple(each for each in BESIDE if each != part.package),
        "pytest_add_cli_args": (
            *("-p", "no:cacheprovider"),
            *("-p", "no:randomly"),  # each mutant meets the same tests first
            *(() if slow else ("-m", "not property")),
        ),
        "pytest_add_cli_args_test_selection": part.slow if slow else part.tests,
    }
    lines = ["[mutmut]", "timeout_constant=20"]
    for key, entries in lists.items():
        lines += [f"{key}=", *(f"    {entry}" for entry in entries)]
    return "\n".join(lines) + "\n"


def _mutmut(where: Path, *arguments: str) -> None:
    environment = {**os.environ, "LEDGER_EXAMPLES": EXAMPLES}
    command = [sys.executable, "-m", "mutmut", *arguments]
    done = subprocess.run(command, cwd=where, env=environment, check=False)  # noqa: S603
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
