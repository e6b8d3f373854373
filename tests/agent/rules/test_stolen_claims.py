"""Two claims name one chip: no scheduler of ours does that. Rule 2, of theft."""

from dataclasses import replace

from agent.claims.events import PodUpdated
from scheduler_core.wire.pods import RawContainer, RawEnv
from tests.agent.node import RESOURCE, current, pod, slots
from tests.agent.rules.kubelet import mounts, refusal, shows

#: Mounts what its annotation says, whatever it is answered.
READER = RawContainer(
    "main",
    limits={RESOURCE: "1"},
    env=(
        RawEnv(
            "ASCEND_VISIBLE_DEVICES",
            field_path=f"metadata.annotations['{RESOURCE}']",
        ),
    ),
)
REST = pod("rest", [2, 3, 4, 5, 6, 7], 50)


def test_who_claims_a_chip_of_another_gets_one_that_is_nobodys() -> None:
    now = current(pod("victim", [0, 1], 100), pod("thief", [0], 1))

    assert mounts(now, 0) == (2,)
    assert mounts(now, 0, 1) == (0, 1)


def test_a_claim_of_the_same_size_is_no_better() -> None:
    now = current(pod("victim", [0], 100), pod("thief", [0], 1))

    first, second = mounts(now, 0), mounts(now, 1)
    shows(now, "thief", main=(0,))
    shows(now, "victim", main=(1,))

    assert {first, second} == {(0,), (1,)}
    assert slots(now) == {"thief": first, "victim": second}


def test_where_no_other_chip_is_free_it_is_refused_in_words() -> None:
    victim, thief = pod("victim", [0, 1], 100), pod("thief", [0], 1)
    now = current(victim, REST, thief)

    assert "Ascend910-0 claimed by another pod before" in refusal(now, 0)
    assert mounts(now, 0, 1) == (0, 1)


def test_a_claim_of_the_same_size_is_not_exchanged_for_it() -> None:
    victim, thief = pod("victim", [0, 1], 100), pod("thief", [0, 1], 1)
    now = current(victim, REST, thief)

    assert "claimed by another pod before" in refusal(now, 0, 1)
    now.apply(PodUpdated(replace(thief, phase="Failed")))
    assert mounts(now, 0, 1) == (0, 1)


def test_one_that_mounts_what_it_says_itself_is_refused_though_others_are_free() -> (
    None
):
    thief = pod("thief", [0], 1, containers=[READER])
    now = current(pod("victim", [0, 1], 100), thief)

    assert "claimed by another pod before" in refusal(now, 0)


def test_a_claim_that_is_rewritten_comes_behind_those_that_are_there() -> None:
    thief = pod("thief", [7], 1)
    now = current(thief, pod("victim", [0, 1], 100))
    now.apply(PodUpdated(pod("thief", [0], 1)))

    assert mounts(now, 0) == (2,)
    assert mounts(now, 0, 1) == (0, 1)


def test_chips_that_a_pod_left_behind_are_no_claim() -> None:
    gone = pod("gone", [0], 1)
    now = current(gone, pod("next", [0], 2))
    now.apply(PodUpdated(replace(gone, phase="Succeeded")))

    assert mounts(now, 0) == (0,)
