import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from sandbox.faults.kinds import KINDS, Fault
from sandbox.scenario import schema
from sandbox.scenario.parse import (
    Create,
    CreateJob,
    Delete,
    Expect,
    Scenario,
    ScenarioError,
    Step,
    Wait,
    read,
)

ROOT = Path(__file__).parents[3]
SHIPPED = sorted((ROOT / "docs/examples/scenarios").glob("*.yaml"))
ALL = [*SHIPPED, *sorted(Path(__file__).parent.glob("*.yaml"))]
SCHEMA = ROOT / "docs" / "scenario.schema.json"

WRONG = """\
title: 7
nodes: 99
speed: fast
steps:
  - pods: {name: UP, chips: 0, colour: red}
  - dance: now
  - fault: {name: api-down, for: soon}
  - fault: {name: api-up}
  - wait: a while
  - expect: {phase: Happy}
  - expect: {free: 3}
  - end: nothing
  - [pods]
"""


def test_a_scenario_is_read() -> None:
    text = """\
title: One
nodes: [a, b]
rescheduling: evict
steps:
  - pods: {name: p, chips: 2, count: 2, node: b}
  - fault: {name: api-down, for: 2s}
  - wait: 1s
  - expect: {pods: "p-*", node: b, phase: Running, count: 2, within: 20s}
"""

    assert read(text) == Scenario(
        title="One",
        nodes=("a", "b"),
        rescheduling="evict",
        steps=(
            Step(
                line=5,
                text="pods: name p, chips 2, count 2, node b",
                action=Create(names=("p-1", "p-2"), chips=2, node="b"),
            ),
            Step(
                line=6,
                text="fault: name api-down, for 2s",
                action=Fault(kind=KINDS["api-down"], values={}, for_s=2.0),
            ),
            Step(line=7, text="wait: 1s", action=Wait(seconds=1.0)),
            Step(
                line=8,
                text="expect: pods p-*, node b, phase Running, count 2, within 20s",
                action=Expect(
                    pods="p-*", node="b", phase="Running", count=2, within_s=20.0
                ),
            ),
        ),
    )


def test_everything_wrong_is_told_at_once_with_its_line() -> None:
    with pytest.raises(ScenarioError) as caught:
        read(WRONG)

    lines = [line for line, _ in caught.value.flaws]
    assert lines == sorted(lines)
    assert set(lines) == {1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13}
    assert (
        2,
        "nodes: expected 1 to 16, or a list of as many different names, found 99",
    ) in caught.value.flaws
    assert (
        5,
        "steps[0].pods.colour: no such key, expected one of name, chips, count, node",
    ) in caught.value.flaws


def _steps(*steps: str) -> str:
    return "steps:\n" + "".join(f"  - {step}\n" for step in steps)


def test_jobs_come_and_go_and_pods_go_by_force() -> None:
    scenario = read(
        _steps(
            "job: {name: train, pods: 2, chips: 4}",
            "job: {name: moves, pods: 2, chips: 4, fault-scheduling: grace}",
            "delete: train-*",
            "delete: {pods: train-1-*, force: true}",
            "delete: {jobs: train}",
        )
    )

    assert [step.action for step in scenario.steps] == [
        CreateJob(name="train", pods=2, chips=4),
        CreateJob(name="moves", pods=2, chips=4, fault_scheduling="grace"),
        Delete(pattern="train-*"),
        Delete(pattern="train-1-*", is_forced=True),
        Delete(pattern="train", of_jobs=True),
    ]


@pytest.mark.parametrize(
    ("step", "told"),
    [
        ("delete: {}", "steps[0].delete: expected either pods or jobs, found []"),
        (
            "delete: {pods: a, jobs: b}",
            "steps[0].delete: expected either pods or jobs, found ['pods', 'jobs']",
        ),
        (
            "delete: {jobs: a, force: true}",
            "steps[0].delete: expected pods with force, found nothing",
        ),
        (
            "job: {name: a, pods: 0, chips: 1}",
            "steps[0].job.pods: expected a whole number from 1 to 200, found 0",
        ),
        (
            "job: {name: a, pods: 1, chips: 1, fault-scheduling: later}",
            (
                "steps[0].job.fault-scheduling: expected one of grace, force, "
                "found 'later'"
            ),
        ),
    ],
)
def test_a_wrong_job_or_deletion_is_told(step: str, told: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        read(_steps(step))

    assert [text for _, text in caught.value.flaws] == [told]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", 1),
        ("title: [", 1),
        ("title: a\ntitle: b\n", 2),
        ("steps: []", 1),
        ("a: " + "[" * 50 + "]" * 50, 1),
        ("a: " + "[" * 5000, 1),
        ("&a [*a]", 1),
        ("nodes: 1\nsteps: !!python/object:os.system x", 2),
        ("\x00", 1),
    ],
)
def test_what_is_no_scenario_is_told_where(text: str, line: int) -> None:
    with pytest.raises(ScenarioError) as caught:
        read(text)

    assert caught.value.flaws[0][0] == line


def test_at_least_three_ship() -> None:
    assert len(SHIPPED) >= 3


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.name)
def test_shipped_scenarios_are_right_by_reader_and_schema(path: Path) -> None:
    document: Any = yaml.safe_load(path.read_text())

    read(path.read_text())
    jsonschema.validate(document, json.loads(SCHEMA.read_text()))


def test_the_schema_is_what_the_vocabulary_says() -> None:
    assert json.loads(SCHEMA.read_text()) == schema.document()


def test_the_schema_refuses_what_the_reader_refuses() -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(yaml.safe_load(WRONG), schema.document())
