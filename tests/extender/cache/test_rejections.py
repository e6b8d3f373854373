from extender.cache.rejections import Storms

OWNER = "ReplicaSet/default/web"


def rejected(*moments_s: float) -> Storms:
    storms = Storms()
    for moment_s in moments_s:
        storms.rejected(OWNER, moment_s)
    return storms


def test_two_rejections_are_no_storm() -> None:
    assert rejected(0, 1).refusal(OWNER, 1) is None


def test_after_the_third_rejection_the_owner_waits_ten_seconds() -> None:
    storms = rejected(0, 1, 2)

    assert storms.refusal(OWNER, 11.9) == (
        "backing off for 10 s: the kubelet rejected 3 pods of this owner in a row"
    )
    assert storms.refusal(OWNER, 12) is None


def test_each_further_rejection_doubles_the_wait_up_to_five_minutes() -> None:
    waits = []
    storms = rejected(0, 0, 0)
    for _ in range(6):
        waits.append(next(w for w in range(400) if not storms.refusal(OWNER, w)))
        storms.rejected(OWNER, 0)

    assert waits == [10, 20, 40, 80, 160, 300]


def test_rejections_more_than_a_minute_apart_are_no_row() -> None:
    assert rejected(0, 61, 122).refusal(OWNER, 122) is None


def test_a_wait_that_was_imposed_does_not_end_the_row() -> None:
    storms = rejected(0, 0, 0, 0, 0, 0)  # waits 80 s
    storms.rejected(OWNER, 85)

    assert storms.refusal(OWNER, 85 + 159) is not None


def test_other_owners_and_pods_without_one_do_not_wait() -> None:
    storms = rejected(0, 0, 0)
    for _ in range(9):
        storms.rejected("", 0)

    assert storms.refusal("ReplicaSet/default/other", 0) is None
    assert storms.refusal("", 0) is None


def test_rows_that_have_ended_are_forgotten() -> None:
    storms = rejected(0, 0, 0)  # 10 s of waiting, 60 s of remembering
    storms.forget(70)
    assert len(storms) == 1

    storms.forget(70.1)
    assert len(storms) == 0
