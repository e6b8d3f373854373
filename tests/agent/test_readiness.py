from agent.readiness import Readiness


def test_it_is_ready_when_nothing_is_missing() -> None:
    ready = Readiness(driver="the driver has not been read yet")

    before = ready()
    ready.set_ready("driver")

    assert (before, ready()) == ("the driver has not been read yet", None)


def test_a_part_is_asked_when_all_else_is_there() -> None:
    ready = Readiness(pods="pods are not known yet")
    answers: list[str | None] = ["not registered yet", None]
    ready.add_check(lambda: answers.pop(0))

    first = ready()
    ready.set_ready("pods")

    assert [first, ready(), ready()] == [
        "pods are not known yet",
        "not registered yet",
        None,
    ]
