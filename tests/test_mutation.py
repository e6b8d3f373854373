"""tests/mutation.py names files that exist: mutants are tried by them."""

from tests.mutation import PARTS, ROOT


def test_what_is_mutated_and_tried_exists() -> None:
    named = {
        glob
        for part in PARTS.values()
        for glob in (part.package, *part.mutated, *part.tests, *part.slow)
    }

    assert len(named) > 20
    assert [glob for glob in sorted(named) if not any(ROOT.glob(glob))] == []
