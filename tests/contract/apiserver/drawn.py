"""Objects in every state that a table tells apart, and the answer reduced to it."""

import re
from typing import Any

from tests.contract.apiserver.client import Object, config, pod

TABLE = (
    "application/json;as=Table;v=v1;g=meta.k8s.io,"
    "application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
)
LONG_AGO = "2020-01-01T00:00:00Z"

_RUNNING = {"running": {"startedAt": LONG_AGO}}
_READY = [{"type": "Ready", "status": "True"}]


def _status(name: str = "main", **rest: Any) -> Object:
    """Return what a kubelet says of one container."""
    made = {"name": name, "image": "i", "imageID": "", "ready": False}
    return {"restartCount": 0, **made, **rest}


def _ended(**terminated: Any) -> Object:
    return {"terminated": {"exitCode": 0, **terminated}}


def _waits(reason: str) -> Object:
    return {"waiting": {"reason": reason}}


def _inits(*names: str, **rest: Any) -> Object:
    containers = [{"name": name, "image": "i", **rest} for name in names]
    return {"initContainers": containers}


#: {name of the pod: what is in its spec}
_SPECS: dict[str, Object] = {
    "gated": {"schedulingGates": [{"name": "example.com/gate"}]},
    "one-of-two": {
        "containers": [
            {"name": "main", "image": "i"},
            {"name": "other", "image": "i"},
        ]
    },
    "init-waits": _inits("a", "b"),
    "init-runs": _inits("a", "b"),
    "init-failed": _inits("a"),
    "init-killed": _inits("a"),
    "sidecar": _inits("a", restartPolicy="Always"),
    "by-gate": {
        "readinessGates": [
            {"conditionType": "example.com/a"},
            {"conditionType": "example.com/b"},
        ]
    },
}
#: {name of the pod: its status}
PODS: dict[str, Object] = {
    "new": {},
    "gated": {},
    "creating": {"containerStatuses": [_status(state=_waits("PullingImage"))]},
    "running": {
        "phase": "Running",
        "conditions": _READY,
        "podIP": "192.0.2.1",
        "podIPs": [{"ip": "192.0.2.1"}],
        "nominatedNodeName": "elsewhere",
        "containerStatuses": [_status(state=_RUNNING, ready=True)],
    },
    "restarted": {
        "phase": "Running",
        "containerStatuses": [
            _status(
                state=_waits("CrashLoopBackOff"),
                restartCount=3,
                lastState=_ended(exitCode=1, finishedAt=LONG_AGO),
            )
        ],
    },
    "ended-well": {
        "phase": "Succeeded",
        "containerStatuses": [_status(state=_ended(reason="Completed"))],
    },
    "ended-badly": {
        "phase": "Failed",
        "containerStatuses": [_status(state=_ended(exitCode=3))],
    },
    "killed": {
        "phase": "Failed",
        "containerStatuses": [_status(state=_ended(exitCode=137, signal=9))],
    },
    "rejected": {"phase": "Failed", "reason": "UnexpectedAdmissionError"},
    "one-of-two": {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "False"}],
        "containerStatuses": [
            _status(state=_ended(reason="Completed")),
            _status("other", state=_RUNNING, ready=True),
        ],
    },
    "init-waits": {
        "initContainerStatuses": [
            _status("a", state=_ended(reason="Completed")),
            _status("b", state=_waits("ImagePullBackOff")),
        ]
    },
    "init-runs": {
        "initContainerStatuses": [
            _status("a", state=_ended(), restartCount=1),
            _status("b", state=_RUNNING),
        ]
    },
    "init-failed": {"initContainerStatuses": [_status("a", state=_ended(exitCode=2))]},
    "init-killed": {
        "initContainerStatuses": [
            _status("a", state=_ended(exitCode=137, reason="OOMKilled"))
        ]
    },
    "sidecar": {
        "phase": "Running",
        "initContainerStatuses": [
            _status(
                "a",
                state=_RUNNING,
                started=True,
                ready=True,
                restartCount=2,
                lastState=_ended(exitCode=1, finishedAt=LONG_AGO),
            )
        ],
        "containerStatuses": [_status(state=_RUNNING, ready=True)],
    },
    "by-gate": {"conditions": [{"type": "example.com/a", "status": "True"}]},
}

#: {name of the node: (labels, spec, status)}
NODES: dict[str, tuple[Object, Object, Object]] = {
    "bare": ({}, {}, {}),
    "worker": (
        {"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "old"},
        {"unschedulable": True},
        {
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [
                {"type": "InternalIP", "address": "192.0.2.7"},
                {"type": "ExternalIP", "address": "203.0.113.7"},
            ],
        },
    ),
    "broken": ({}, {}, {"conditions": [{"type": "Ready", "status": "Unknown"}]}),
}

_OF_NOW: Object = {
    "type": "Normal",
    "eventTime": "2020-01-01T00:00:00.000000Z",
    "reportingComponent": "example.com/some",
    "reportingInstance": "some-1",
    "action": "Do",
}
#: {name of the event: what is in it besides the object}
EVENTS: dict[str, Object] = {
    "plain": {
        "type": "Warning",
        "reason": "Failed",
        "message": "  it did not work\n",
        "source": {"component": "kubelet", "host": "node-1"},
        "firstTimestamp": LONG_AGO,
        "lastTimestamp": LONG_AGO,
        "count": 7,
    },
    "of-now": {**_OF_NOW, "reason": "Done", "message": "it worked"},
    "series": {
        **_OF_NOW,
        "reason": "Again",
        "message": "and again",
        "series": {"count": 4, "lastObservedTime": "2020-02-01T00:00:00.000000Z"},
    },
    "silent": {},
}

OTHERS: dict[str, Object] = {
    "configmaps": config(
        "full", data={"a": "1", "b": "2"}, binaryData={"c": "aGVsbG8="}
    ),
    "serviceaccounts": {"metadata": {"name": "some"}},
}


_LATER = "2020-01-01T00:01:30Z"
_STARTED = {"startTime": LONG_AGO, "uncountedTerminatedPods": {}}


def _said(*kinds: str) -> Object:
    times = {"lastProbeTime": LONG_AGO, "lastTransitionTime": LONG_AGO}
    said = [{"type": kind, "status": "True", **times} for kind in kinds]
    return {"conditions": said}


#: {name of the Job: (what is in its spec, its status)}
JOBS: dict[str, tuple[Object, Object]] = {
    "new": ({}, {}),
    "runs": ({"completions": 3}, {**_STARTED, "active": 1, "succeeded": 1}),
    "any-one": ({"parallelism": 1}, {**_STARTED, "active": 1}),
    "any-of-three": ({"parallelism": 3}, {**_STARTED, "active": 3}),
    "suspended": ({"suspend": True}, _said("Suspended")),
    "will-fail": ({}, {**_STARTED, **_said("FailureTarget")}),
    "failed": ({}, {**_STARTED, **_said("FailureTarget", "Failed"), "failed": 7}),
    "will-complete": ({}, {**_STARTED, **_said("SuccessCriteriaMet")}),
    "complete": (
        {},
        {
            **_STARTED,
            **_said("SuccessCriteriaMet", "Complete"),
            "succeeded": 1,
            "completionTime": _LATER,
        },
    ),
}


def job_of(name: str) -> Object:
    """Return the Job of a name in `JOBS`, without its status; no controller acts."""
    template = {"spec": {**pod(name)["spec"], "restartPolicy": "Never"}}
    spec = {"managedBy": "example.com/nobody", "template": template, **JOBS[name][0]}
    return {"metadata": {"name": name}, "spec": spec}


def pod_of(name: str) -> Object:
    """Return the pod of a name in `PODS`, without its status."""
    return pod(name, spec=_SPECS.get(name, {}))


_AGE = re.compile(r"\d+(s|m|h|d|y)(\d+(s|m|h|d))?")


def normal(cell: Any) -> Any:
    """Return a cell without what differs from run to run: how long ago it was."""
    return _AGE.sub("AGE", cell) if isinstance(cell, str) and _is_age(cell) else cell


def _is_age(cell: str) -> bool:
    return bool(_AGE.fullmatch(cell) or cell.endswith(" ago)"))
