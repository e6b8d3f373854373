"""A Job, its pods and the pure step, in simulated time: no sockets, no tasks.

The API server's own rules (defaults, names, finalizers, owners) apply to each write.
"""

import json
import uuid
from itertools import count
from typing import Any

from sandbox.apiclient import STRATEGIC_PATCH, Object
from sandbox.apiserver import paths, requests
from sandbox.apiserver.requests import Request
from sandbox.apiserver.store import Store
from sandbox.inspect import pods as manifests
from sandbox.jobs.failures import Backoff
from sandbox.jobs.pods import INDEX, TRACKING, made_from
from sandbox.jobs.sync import (
    Create,
    Decision,
    Delete,
    Release,
    Remove,
    Tell,
    Write,
    sync,
)

JOBS = "/apis/batch/v1/namespaces/default/jobs"
JOB = f"{JOBS}/train"
PODS = "/api/v1/namespaces/default/pods"
START_S = 1_800_000_000.0
#: Longer than any back-off.
LONG_S = 3600.0
DISRUPTED = {"type": "DisruptionTarget", "status": "True"}


class Cluster:
    """An API server's store with one Job in it, and what a kubelet would say."""

    def __init__(self, count_of_pods: int = 2, **spec: Any) -> None:
        self.now_s = START_S
        numbers = count(1)
        self.store = Store(
            now_s=lambda: self.now_s,
            new_uid=lambda: str(uuid.UUID(int=next(numbers))),
        )
        self.backoff = Backoff()
        self.again_s: float | None = None
        #: whether finalizers can be taken away
        self.releases = True
        body = manifests.job("train", count_of_pods, 1)
        self.kept = {key: value for key, value in spec.items() if value is not None}
        body["spec"] |= self.kept
        for key in spec.keys() - self.kept.keys():
            del body["spec"][key]
        self.send("POST", JOBS, body)

    # -- the API server ------------------------------------------------------

    def send(
        self, method: str, path: str, body: object = None, media_type: str = ""
    ) -> Object:
        target = paths.parse(path)
        assert target is not None
        raw = b"" if body is None else json.dumps(body).encode()
        request = Request(
            method=method, target=target, query={}, media_type=media_type, body=raw
        )
        answer = requests.carry_out(self.store, request)
        found: Object = json.loads(answer.raw)
        assert answer.code < 400, found
        return found

    def has_job(self) -> bool:
        target = paths.parse(JOB)
        assert target is not None
        return target.key in self.store.entries(target.resource)

    @property
    def job(self) -> Object:
        return self.send("GET", JOB)

    @property
    def status(self) -> Object:
        found: Object = self.job["status"]
        return found

    @property
    def pods(self) -> list[Object]:
        found: list[Object] = self.send("GET", PODS)["items"]
        return found

    def of_index(self, index: int) -> list[Object]:
        return [pod for pod in self.pods if index_of(pod) == index]

    def conditions(self) -> dict[str, str]:
        """{type of each condition of the Job: its status}."""
        said = self.status.get("conditions") or ()
        return {each["type"]: each["status"] for each in said}

    # -- the controller ------------------------------------------------------

    def step(self) -> Decision:
        """Decide once, and carry it out."""
        job = self.job
        decision = sync(job, self.pods, self.now_s, self.backoff)
        self.backoff, self.again_s = decision.backoff, decision.again_s
        for write in decision.writes:
            self._carry_out(job, write)
        return decision

    def settle(self) -> None:
        """Step until nothing is left to be done now."""
        for _ in range(20):
            if not self.has_job() or not self.step().writes:
                return
        raise AssertionError(f"no rest: {self.step().writes}")

    def wait(self, seconds: float = LONG_S) -> None:
        self.now_s += seconds
        self.settle()

    def _carry_out(self, job: Object, write: Write) -> None:
        match write:
            case Create(index=index):
                self.send("POST", PODS, made_from(job, index))
            case Delete(pod=pod):
                # One without a node is gone with its finalizer.
                if any(each["metadata"]["uid"] == pod.uid for each in self.pods):
                    self.send("DELETE", path_of(pod.source))
            case Release(pod=pod) if self.releases:
                self.release(pod.source)
            case Release():
                pass
            case Tell(status=status):
                self.send("PUT", f"{JOB}/status", {**job, "status": status})
            case Remove():
                options = {"propagationPolicy": "Foreground"}
                self.send("DELETE", JOB, options)

    def release(self, pod: Object) -> None:
        if any(each["metadata"]["uid"] == pod["metadata"]["uid"] for each in self.pods):
            metadata = {"$deleteFromPrimitiveList/finalizers": [TRACKING]}
            body = {"metadata": metadata}
            self.send("PATCH", path_of(pod), body, STRATEGIC_PATCH)

    # -- the kubelets --------------------------------------------------------

    def run(self, pod: Object) -> None:
        """The pod gets a node and runs there."""
        name = pod["metadata"]["name"]
        binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": "n"}}
        self.send("POST", f"{path_of(pod)}/binding", binding)
        ready = {"type": "Ready", "status": "True"}
        self.say(pod, phase="Running", conditions=[ready])

    def end(self, pod: Object, exit_code: int) -> None:
        """The containers of the pod end."""
        now = self.store.timestamp()
        state = {"terminated": {"exitCode": exit_code, "finishedAt": now}}
        main = {"name": "train", "image": "i", "imageID": "", "ready": False}
        phase = "Failed" if exit_code else "Succeeded"
        statuses = [{**main, "restartCount": 0, "state": state}]
        unready = {"type": "Ready", "status": "False", "lastTransitionTime": now}
        self.say(pod, phase=phase, containerStatuses=statuses, conditions=[unready])

    def finish_deletion(self, pod: Object) -> None:
        """The kubelet ends a pod that is being deleted, and lets it go."""
        if pod["status"]["phase"] not in {"Succeeded", "Failed"}:
            self.end(pod, 143)
        self.send("DELETE", path_of(pod), {"gracePeriodSeconds": 0})

    def disrupt(self, pod: Object) -> None:
        self.say(pod, conditions=[DISRUPTED])

    def delete(self, pod: Object, **options: Any) -> None:
        self.send("DELETE", path_of(pod), options)

    def say(self, pod: Object, **status: Any) -> None:
        path = f"{path_of(pod)}/status"
        self.send("PATCH", path, {"status": status}, STRATEGIC_PATCH)


def path_of(pod: Object) -> str:
    return f"{PODS}/{pod['metadata']['name']}"


def index_of(pod: Object) -> int:
    return int(pod["metadata"].get("annotations", {}).get(INDEX, -1))


def is_active(pod: Object) -> bool:
    has_ended = pod["status"]["phase"] in {"Succeeded", "Failed"}
    return not has_ended and "deletionTimestamp" not in pod["metadata"]


def is_tracked(pod: Object) -> bool:
    return TRACKING in pod["metadata"].get("finalizers", ())
