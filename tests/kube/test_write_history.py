"""Pauses after writes of one object, by what became of each."""

import asyncio

import pytest

from kube.write_history import (
    FREE_REPEATS,
    LONGEST_PAUSE_S,
    UNDONE_WITHIN_S,
    WriteHistory,
)

pytestmark = pytest.mark.looptime

SENT = {"a": "1", "b": "2"}


async def test_writes_of_new_texts_have_no_pause() -> None:
    history = WriteHistory(
        "node n",
    )

    pauses = [history.add({"a": str(n)}, {"a": str(n)}) for n in range(100)]

    assert set(pauses) == {0.0}


async def test_an_answer_that_lacks_a_key_is_paused_after_at_once_and_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    history = WriteHistory("node n")

    pauses = [history.add(SENT, {"a": "1", "b": "9"}) for _ in range(10)]

    assert 0.5 <= pauses[0] <= 1.0
    assert LONGEST_PAUSE_S / 2 <= pauses[-1] <= LONGEST_PAUSE_S
    assert {(vars(r)["object"], vars(r)["keys"]) for r in caplog.records} == {
        ("node n", "b")
    }


async def test_a_repeated_text_is_paused_after_once_it_is_no_chance(
    caplog: pytest.LogCaptureFixture,
) -> None:
    history = WriteHistory("node n")

    pauses = [history.add({"a": "1"}, SENT) for _ in range(10)]

    assert set(pauses[: 1 + FREE_REPEATS]) == {0.0}
    assert 0.5 <= pauses[1 + FREE_REPEATS] <= 1.0
    assert LONGEST_PAUSE_S / 2 <= pauses[-1] <= LONGEST_PAUSE_S
    assert {vars(r)["keys"] for r in caplog.records} == {"a"}


@pytest.mark.parametrize("other", [{"a": "2"}, {"b": "2"}])
async def test_a_write_of_something_else_begins_the_count_again(
    other: dict[str, str],
) -> None:
    history = WriteHistory("node n")
    for _ in range(10):
        history.add({"a": "1"}, SENT)

    after = history.add(other, other)
    again = [history.add(other, other) for _ in range(FREE_REPEATS + 1)]

    assert after == 0.0
    assert again[:-1] == [0.0] * FREE_REPEATS
    assert 0.5 <= again[-1] <= 1.0


async def test_what_is_undone_after_a_long_time_has_no_pause() -> None:
    history = WriteHistory("node n")
    pauses = []
    for _ in range(10):
        pauses.append(history.add(SENT, SENT))
        await asyncio.sleep(UNDONE_WITHIN_S + 1)

    assert set(pauses) == {0.0}


async def test_no_pause_is_longer_than_the_time_for_which_a_write_is_remembered() -> (
    None
):
    """Otherwise the pauses would begin again with the shortest."""
    assert LONGEST_PAUSE_S < UNDONE_WITHIN_S
