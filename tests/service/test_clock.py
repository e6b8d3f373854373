from service import clock


def test_a_wall_time_is_written_as_kubernetes_writes_it() -> None:
    assert clock.rfc3339(1_000_000_000.9) == "2001-09-09T01:46:40Z"


def test_both_clocks_tell_the_same_time() -> None:
    before_s, now_ns, after_s = clock.wall_s(), clock.wall_ns(), clock.wall_s()

    assert before_s - 0.001 <= now_ns / 1e9 <= after_s + 0.001
