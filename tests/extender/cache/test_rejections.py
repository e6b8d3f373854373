from extender.cache.rejections import OwnerBackoff

OWNER = "ReplicaSet/default/web"


def rejected(*moments_s: float) -> OwnerBackoff:
    owner_backoff = OwnerBackoff()
    for moment_s in moments_s:
        owner_backoff.record_rejection(OWNER, moment_s)
    return owner_backoff


def test_two_rejections_are_no_storm() -> None:
    assert rejected(0, 1).refusal(OWNER, 1) is None


def test_after_the_third_rejection_the_owner_waits_ten_seconds() -> None:
    owner_backoff = rejected(0, 1, 2)

    assert owner_backoff.refusal(OWNER, 11.9) == (
        "backing off for 10 s: the kubelet rejected 3 pods of this owner in a row"
    )
    assert owner_backoff.refusal(OWNER, 12) is None


def test_each_further_rejection_doubles_the_wait_up_to_five_minutes() -> None:
    waits = []
    owner_backoff = rejected(0, 0, 0)
    for _ in range(6):
        waits.append(next(w for w in range(400) if not owner_backoff.refusal(OWNER, w)))
        owner_backoff.record_rejection(OWNER, 0)

    assert waits == [10, 20, 40, 80, 160, 300]


def test_rejections_more_than_a_minute_apart_are_no_row() -> None:
    assert rejected(0, 61, 122).refusal(OWNER, 122) is None


def test_a_wait_that_was_imposed_does_not_end_the_row() -> None:
    owner_backoff = rejected(0, 0, 0, 0, 0, 0)  # waits 80 s
    owner_backoff.record_rejection(OWNER, 85)

    assert owner_backoff.refusal(OWNER, 85 + 159) is not None


def test_other_owners_and_pods_without_one_do_not_wait() -> None:
    owner_backoff = rejected(0, 0, 0)
    for _ in range(9):
        owner_backoff.record_rejection("", 0)

    assert owner_backoff.refusal("ReplicaSet/default/other", 0) is None
    assert owner_backoff.refusal("", 0) is None


def test_rows_that_have_ended_are_forgotten() -> None:
    owner_backoff = rejected(0, 0, 0)  # 10 s of waiting, 60 s of remembering
    owner_backoff.forget(70)
    assert len(owner_backoff) == 1

    owner_backoff.forget(70.1)
    assert len(owner_backoff) == 0
