"""Two claims name one chip: no scheduler of ours does that. Rule 2, of theft."""

from dataclasses import replace

from tests.agent.node import current, pod, reading

REST = pod("rest", [2, 3, 4, 5, 6, 7], 50)


def test_who_claims_a_chip_of_another_gets_one_that_is_nobodys() -> None:
    now = current(pod("victim", [0, 1], 100), pod("thief", [0], 1))

    assert now.mounts(0) == (2,)
    assert now.mounts(0, 1) == (0, 1)


def test_a_claim_of_the_same_size_is_no_better() -> None:
    now = current(pod("victim", [0], 100), pod("thief", [0], 1))

    first, second = now.mounts(0), now.mounts(1)
    now.shows("thief", main=(0,))
    now.shows("victim", main=(1,))

    assert {first, second} == {(0,), (1,)}
    assert now.slots() == {"thief": first, "victim": second}


def test_where_no_other_chip_is_free_it_is_refused_in_words() -> None:
    victim, thief = pod("victim", [0, 1], 100), pod("thief", [0], 1)
    now = current(victim, REST, thief)

    assert "Ascend910-0 claimed by another pod before" in now.refusal(0)
    assert now.mounts(0, 1) == (0, 1)


def test_a_claim_of_the_same_size_is_not_exchanged_for_it() -> None:
    victim, thief = pod("victim", [0, 1], 100), pod("thief", [0, 1], 1)
    now = current(victim, REST, thief)

    assert "claimed by another pod before" in now.refusal(0, 1)
    now.update(replace(thief, phase="Failed"))
    assert now.mounts(0, 1) == (0, 1)


def test_one_that_mounts_what_it_says_itself_is_refused_though_others_are_free() -> (
    None
):
    now = current(pod("victim", [0, 1], 100), reading(pod("thief", [0], 1)))

    assert "claimed by another pod before" in now.refusal(0)


def test_a_claim_that_is_rewritten_comes_behind_those_that_are_there() -> None:
    thief = pod("thief", [7], 1)
    now = current(thief, pod("victim", [0, 1], 100))
    now.update(pod("thief", [0], 1))

    assert now.mounts(0) == (2,)
    assert now.mounts(0, 1) == (0, 1)


def test_chips_that_a_pod_left_behind_are_no_claim() -> None:
    gone = pod("gone", [0], 1)
    now = current(gone, pod("next", [0], 2))
    now.update(replace(gone, phase="Succeeded"))

    assert now.mounts(0) == (0,)
