"""Volcano's bodies as they were recorded, and what is read of them."""

import json

import pytest

from extender.http.body import BodyError
from extender.volcano import protocol
from extender.volcano.protocol import Code, Status, Vote
from tests.extender.kube_scheduler.test_protocol import recorded

FIRST = "5f4c6be2-2a71-4669-928c-5e8a2473554e"
SECOND = "92064c29-b5f3-4c87-a5c6-06cee87c1acf"


def test_of_a_recorded_predicate_task_and_node_are_read() -> None:
    args = protocol.predicate_args(recorded("volcano-predicate-1.json"))

    found = args.task.uid, args.task.name, args.task.status, args.node.name
    assert found == (FIRST, "g1-0", Status.PENDING, "node3")
    assert protocol.pod_of(args.task).metadata.uid == FIRST


def test_of_a_recorded_prioritize_the_names_are_read_in_their_order() -> None:
    args = protocol.prioritize_args(recorded("volcano-prioritize.json"))

    assert (args.task.uid, args.names) == (FIRST, ["node1", "node3"])


def test_of_a_recorded_job_tasks_and_least_resources_are_read() -> None:
    job = protocol.job_args(recorded("volcano-jobEnqueueable.json"))

    assert (job.namespace, job.name) == ("default", "g1")
    assert job.group_uid == "914c5278-ac8f-4c57-80aa-48244a055b0f"
    assert set(job.tasks or ()) == {FIRST, SECOND}
    assert job.least == {"huawei.com/Ascend910": "16"}


def test_recorded_tasks_say_how_far_they_are_and_where() -> None:
    put = protocol.task_args(recorded("volcano-allocate-1.json"))
    taken = protocol.task_args(recorded("volcano-deallocate.json"))

    assert (put.uid, put.status, put.node) == (FIRST, Status.ALLOCATED, "node3")
    assert (taken.name, taken.status, taken.node) == ("g2-0", Status.PENDING, "node2")


def test_victims_are_answered_word_for_word() -> None:
    sent = json.loads(recorded("volcano-allocate-2.json"))["task"]
    body = json.dumps({"evictor": sent, "evictees": [sent, sent]}).encode()
    args = protocol.evict_args(body)

    answer = protocol.victims_answer(Vote.PERMIT, [args.evictees[1].sent])

    assert json.loads(answer) == {"status": 1, "victims": [sent]}
    assert args.evictees[0].task.name == "g2-0"


def test_answers_have_volcanos_keys() -> None:
    assert json.loads(protocol.FITS) == {"status": "", "code": 0}
    text = protocol.predicate_answer("no", Code.UNRESOLVABLE)
    assert json.loads(text) == {"status": "no", "code": 3}
    assert json.loads(protocol.scores_answer({"n": 1.0})) == {
        "nodeScore": {"n": 1.0},
        "errorMessage": "",
    }
    assert json.loads(protocol.vote_answer(Vote.REJECT)) == {"status": -1}
    assert json.loads(protocol.task_answer("x")) == {"errorMessage": "x"}


def test_what_go_writes_for_nothing_is_nothing() -> None:
    task = b'{"UID":"u","Pod":null}'
    assert protocol.job_args(b'{"job":{"Tasks":null,"PodGroup":null}}').least == {}
    assert protocol.prioritize_args(b'{"task":%b,"nodes":null}' % task).names == []
    body = b'{"evictor":%b,"evictees":null}' % task
    assert protocol.evict_args(body).evictees == ()


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"{", "body: "),
        (b'{"task":{}}', "body: "),
        (b'{"task":{"UID":1},"node":{"Name":"n"}}', "body.task.UID: "),
        (b'{"task":{"UID":"u"},"node":{"Name":null}}', "body.node.Name: "),
    ],
)
def test_a_body_that_is_none_is_refused_with_its_place(body: bytes, text: str) -> None:
    with pytest.raises(BodyError) as caught:
        protocol.predicate_args(body)

    assert str(caught.value).startswith(text)
