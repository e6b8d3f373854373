from sandbox.pods import Pod, pod_of
from sandbox.scheduler.queue import Place, SchedulingQueue
from tests.support import objects


def pod(name: str, priority: int = 0, **meta: object) -> Pod:
    return pod_of(objects.pod(name, meta={"uid": name, **meta}, priority=priority))


def filled(*pods: Pod) -> SchedulingQueue:
    queue = SchedulingQueue(backoff_s=1.0)
    for one in pods:
        queue.put(one)
    return queue


def test_higher_priority_goes_first_then_the_older_pod() -> None:
    queue = filled(pod("b"), pod("a"), pod("urgent", priority=9))

    taken = [queue.take(0.0) for _ in range(4)]

    assert [one and one.name for one in taken] == ["urgent", "b", "a", None]


def test_an_unschedulable_pod_waits_for_an_event_and_then_for_its_backoff() -> None:
    queue = filled(pod("a"))
    queue.take(0.0)
    queue.failed("a", 0.0, unschedulable=True)
    assert queue.take(200.0) is None

    queue.failed("a", 200.0, unschedulable=True)
    queue.move()

    assert (queue.take(200.9), queue.next_due()) == (None, 201.0)
    assert queue.take(201.0) == pod("a")


def test_an_event_during_the_attempt_is_not_lost() -> None:
    queue = filled(pod("a"))
    queue.take(0.0)

    queue.move()
    queue.failed("a", 0.0, unschedulable=True)

    assert queue.places() == {"a": Place.BACKOFF}


def test_an_error_is_tried_again_without_an_event() -> None:
    queue = filled(pod("a"))
    queue.take(0.0)

    queue.failed("a", 0.0, unschedulable=False)

    assert queue.take(1.0) == pod("a")


def test_the_backoff_doubles_up_to_ten_seconds() -> None:
    queue = filled(pod("a"))
    pauses = []
    now = 0.0
    for _ in range(6):
        assert queue.take(now) == pod("a")
        queue.failed("a", now, unschedulable=False)
        due = queue.next_due()
        assert due is not None
        pauses.append(due - now)
        now = due

    assert pauses == [1, 2, 4, 8, 10, 10]


def test_an_unschedulable_pod_is_tried_again_after_five_minutes_at_the_latest() -> None:
    queue = filled(pod("a"))
    queue.take(0.0)
    queue.failed("a", 0.0, unschedulable=True)

    assert (queue.take(299.0), queue.take(300.0)) == (None, pod("a"))


def test_a_pods_own_conditions_are_no_reason_to_try_again() -> None:
    queue = filled(pod("a"))
    queue.take(0.0)
    queue.failed("a", 0.0, unschedulable=True)

    queue.put(pod("a"))
    assert queue.places() == {"a": Place.UNSCHEDULABLE}
    queue.put(pod("a", labels={"changed": "yes"}))

    assert queue.places() == {"a": Place.BACKOFF}


def test_a_pod_that_is_gone_does_not_come_back() -> None:
    queue = filled(pod("a"))
    queue.take(0.0)

    queue.drop("a")
    queue.failed("a", 0.0, unschedulable=False)

    assert (queue.places(), queue.next_due()) == ({}, None)
