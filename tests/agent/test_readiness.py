from agent.readiness import Readiness


def test_it_is_ready_when_no_part_has_a_problem() -> None:
    assert Readiness()() is None


def test_a_part_is_asked_when_all_before_it_is_there() -> None:
    first: list[str | None] = ["pods are not known yet", None, None]
    then: list[str | None] = ["not registered yet", None]
    ready = Readiness(lambda: first.pop(0))
    ready.add_check(lambda: then.pop(0))

    assert [ready(), ready(), ready()] == [
        "pods are not known yet",
        "not registered yet",
        None,
    ]
