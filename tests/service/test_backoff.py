import random  # noqa: TID251  # a fixed seed: the test knows the jitter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.backoff import Backoff


@pytest.mark.property
@given(seed=st.integers(), failures=st.integers(1, 40))
def test_pauses_double_up_to_the_cap_within_jitter(seed: int, failures: int) -> None:
    backoff = Backoff(rng=random.Random(seed))  # noqa: S311  # jitter, not a secret

    pauses = [backoff.next_s() for _ in range(failures)]

    ceilings = [min(30.0, 2.0**n) for n in range(failures)]
    assert all(c / 2 <= p <= c for p, c in zip(pauses, ceilings, strict=True))


def test_a_success_starts_anew() -> None:
    backoff = Backoff()
    for _ in range(5):
        backoff.next_s()

    backoff.reset()

    assert backoff.next_s() <= 1.0


@pytest.mark.parametrize(("asked", "least"), [(0, 0.5), (12, 12), (1e6, 300)])
def test_the_other_side_may_ask_for_longer_but_not_for_ever(
    asked: float, least: float
) -> None:
    pause_s = Backoff().next_s(asked)

    assert least <= pause_s <= max(1.0, least)
