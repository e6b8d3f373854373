"""Parsers of what Volcano sends: for each verb, as far as its answer.

Of each task the pod is read as well, as it is for one that no watch has shown.
"""

from collections.abc import Mapping
from typing import Any

from extender.cache import decode
from extender.gang import membership
from extender.http.body import BodyError
from extender.volcano import protocol
from extender.volcano.protocol import Code, Status, Task, Vote
from tests.hostile.row import Row, dumped, rows
from tests.hostile.seeds import POD

_UID = POD["metadata"]["uid"]


def _task(status: Status, node: str = "") -> dict[str, Any]:
    meta = POD["metadata"]
    return {
        "UID": _UID,
        "Job": "default/g1",
        "Name": meta["name"],
        "Namespace": meta["namespace"],
        "NodeName": node,
        "Status": int(status),
        "Priority": 7,
        "Pod": POD,
    }


_PENDING = _task(Status.PENDING)
_NODE = {"Name": "n1", "Node": {"metadata": {"name": "n1"}}, "Tasks": {}}
_GROUP = {"spec": {"minMember": 2, "minResources": {"huawei.com/Ascend910": "16"}}}
_JOB = {
    "Name": "g1",
    "Namespace": "default",
    "PgUID": "uid-g1",
    "Tasks": {_UID: _PENDING},
    "PodGroup": _GROUP,
}
#: {verb: a body that is right}
BODIES: Mapping[str, bytes] = {
    verb: dumped(body)
    for verb, body in {
        "predicate": {"task": _PENDING, "node": _NODE},
        "prioritize": {"task": _PENDING, "nodes": [_NODE, _NODE]},
        "jobEnqueueable": {"job": _JOB},
        "allocateFunc": {"task": _task(Status.ALLOCATED, "n1")},
        "deallocateFunc": {"task": _PENDING},
        "preemptable": {
            "evictor": _PENDING,
            "evictees": [_task(Status.RUNNING, "n1")],
        },
    }.items()
}


def _of_task(task: Task) -> object:
    pod = protocol.pod_of(task)
    return decode.npu_pod(pod), membership.membership(pod)


def _predicate(content: bytes) -> object:
    args = protocol.predicate_args(content)
    return _of_task(args.task), protocol.predicate_answer(args.node.name, Code.ERROR)


def _prioritize(content: bytes) -> object:
    args = protocol.prioritize_args(content)
    scores = dict.fromkeys(args.names, 1.0)
    return _of_task(args.task), protocol.scores_answer(scores)


def _job(content: bytes) -> object:
    job = protocol.job_args(content)
    return [str(amount) for amount in job.least.values()], job.tasks


def _changed(content: bytes) -> object:
    return _of_task(protocol.task_args(content))


def _evict(content: bytes) -> object:
    args = protocol.evict_args(content)
    sent = [each.sent for each in args.evictees]
    return _of_task(args.evictor), protocol.victims_answer(Vote.PERMIT, sent)


ROWS: tuple[Row, ...] = rows(
    {
        f"volcano: {verb}": (read, [BODIES[verb]])
        for verb, read in (
            ("predicate", _predicate),
            ("prioritize", _prioritize),
            ("jobEnqueueable", _job),
            ("allocateFunc", _changed),
            ("preemptable", _evict),
        )
    },
    BodyError,
    is_slow=True,
)
