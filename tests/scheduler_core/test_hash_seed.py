"""The same decisions in every process: no order of a set of texts reaches them."""

import os
from collections import Counter
from pathlib import Path

from tests.support.programs import run_python

ROOT = Path(__file__).parents[2]


def printed(hash_seed: str) -> list[str]:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    words = "-m", "tests.scheduler_core.many_placements"
    return run_python(*words, cwd=ROOT, env=environment).stdout.splitlines()


def test_decisions_of_every_kind_do_not_depend_on_the_hash_seed() -> None:
    first, second = printed("1"), printed("2")

    assert first == second
    kinds = Counter(tuple(line.split("(")[0].split()) for line in first)
    assert set(kinds) == {
        ("single_pods", "Placement"),
        ("single_pods", "Rejection"),
        ("gangs", "JobPlacement"),
        ("gangs", "Rejection"),
        ("networks", "JobPlacement"),
        ("networks", "Rejection"),
        ("helps", "Advice"),
        ("helps", "Eviction"),
        ("helps", "None"),
    }
    assert min(kinds.values()) >= 3
