"""Any interleaving: one owner for each chip, and all agree as soon as things rest."""

import os
import sys

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.agent.claims.node_rules import Node, seen

#: How often a hundred examples must reach what they are there for.
LEAST_PER_HUNDRED = {
    "corrected": 10,  # two pods that swapped
    "rechosen chips": 5,
    "rejected after Allocate": 3,
    "an id given twice": 2,
    "checkpoint lost": 3,
    "crash": 10,
    "crash in the middle of a swap": 2,
    "Allocate by a pod worker": 20,
    "bare": 3,
    "name used again": 8,
    "patch failed": 1,
    "look awaited": 5,
    "plain rest": 1,
    "pod checked at rest": 100,
}
#: So many in `make test` and in `make long`; LEDGER_EXAMPLES asks for another number.
FEW, MANY = 150, 1000
EXAMPLES = (
    [int(os.environ["LEDGER_EXAMPLES"])]
    if "LEDGER_EXAMPLES" in os.environ
    else [FEW, pytest.param(MANY, marks=pytest.mark.long)]
)


@pytest.mark.property
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("examples", EXAMPLES)
def test_in_every_interleaving_each_chip_has_one_owner_and_all_agree_at_rest(
    examples: int,
) -> None:
    seen.clear()
    run_state_machine_as_test(
        Node,
        settings=settings(
            max_examples=examples,
            stateful_step_count=40,
            deadline=None,
            derandomize=examples <= MANY,
            database=None,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )
    reached = {str(what): count for what, count in seen.items()}
    sys.stderr.write(f"{sorted(reached.items())}\n")
    missed = {
        what: reached.get(what, 0)
        for what, least in LEAST_PER_HUNDRED.items()
        if reached.get(what, 0) < least * examples / 100
    }
    assert missed == {}
