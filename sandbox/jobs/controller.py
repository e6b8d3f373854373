"""Carries out what `sync` decides, for all Jobs of one API server.

A Job is looked at when it or one of its pods has changed, at once and by a fresh list,
so that nothing has to be expected of a cache. Kubernetes' own waits for a second then,
to take several changes together; the fault `job-late` makes this one as slow.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus

from sandbox.apiclient import (
    FAILURES,
    STRATEGIC_PATCH,
    ApiClient,
    ApiStatusError,
    Listed,
    Object,
    pod_path,
)
from sandbox.control_loop import ControlLoop
from sandbox.jobs.failures import FIRST_PAUSE_S, NO_FAILURES, Backoff
from sandbox.jobs.pods import JOB_NAME, TRACKING, made_from
from sandbox.jobs.sync import Create, Delete, Release, Remove, Tell, Write, sync
from service import clock

_RETRY_S = 0.2
#: Changes that come together are one.
_BATCH_S = 0.01
_OURS = (None, "kubernetes.io/job-controller")
#: The pod is gone: 409 and 422 are told of a younger pod of its name.
_GONE = frozenset(
    {HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY}
)
#: (namespace, name) of a Job
_Key = tuple[str, str]


class JobController(ControlLoop):
    """A Job controller for one API server.

    Protects: one step at a time, each on what the API server shows then.
    """

    def __init__(self, api_url: str, token: str) -> None:
        """Describe the controller; `start` starts it.

        Args:
            api_url: Base URL of the API server.
            token: Bearer token for it.
        """
        #: how late a change is noticed; change it at any time. Unit: seconds
        self.delay_s = 0.0
        #: back-off after a Job's first failed pod; change it at any time. Unit: seconds
        self.first_pause_s = FIRST_PAUSE_S
        self._client = ApiClient(api_url, token)
        #: {Job: loop time of its next step}
        self._due: dict[_Key, float] = {}
        self._wake = asyncio.Event()
        #: {Job: (its uid, its failures so far)}
        self._failures: dict[_Key, tuple[str, Backoff]] = {}
        #: {uid: Job} of pods that it has made and does not see; None: it sees all
        self._unseen: dict[str, _Key] | None = None

    def catch_up(self) -> None:
        """Notice at once what was to be noticed later."""
        for key in list(self._due):
            self._note(key, 0.0)

    def lose_cache(self) -> None:
        """Make each pod twice from now on, and see only one of the two."""
        self._unseen = self._unseen or {}

    def find_cache(self) -> None:
        """See all pods again."""
        unseen, self._unseen = self._unseen or {}, None
        for key in unseen.values():
            self._note(key, 0.0)

    # -- when ----------------------------------------------------------------

    async def _run(self) -> None:
        async with self._client, asyncio.TaskGroup() as group:
            group.create_task(self._follow("/apis/batch/v1/jobs", {}, _key_of_job))
            chosen = {"labelSelector": JOB_NAME}
            group.create_task(self._follow("/api/v1/pods", chosen, _key_of_pod))
            loop = asyncio.get_running_loop()
            while True:
                self._wake.clear()
                due = min(self._due.items(), key=lambda each: each[1], default=None)
                if due is not None and due[1] <= loop.time():
                    del self._due[due[0]]
                    await self._look(due[0])
                    continue
                try:
                    async with asyncio.timeout_at(None if due is None else due[1]):
                        await self._wake.wait()
                except TimeoutError:
                    continue

    async def _follow(
        self, path: str, params: Mapping[str, str], key_of: Callable[[Object], _Key]
    ) -> None:
        async for event in self._client.follow(path, params):
            items = event.items if isinstance(event, Listed) else (event.item,)
            for item in items:
                self._note(key_of(item), self.delay_s + _BATCH_S)

    def _note(self, key: _Key, after_s: float) -> None:
        due = asyncio.get_running_loop().time() + after_s
        self._due[key] = min(self._due.get(key, due), due)
        self._wake.set()

    # -- one Job -------------------------------------------------------------

    async def _look(self, key: _Key) -> None:
        try:
            await self._step(key)
        except FAILURES:
            self._note(key, _RETRY_S)

    async def _step(self, key: _Key) -> None:
        namespace, name = key
        # Before its pods: those of a Job that is gone no longer name it if they stay.
        job = await self._read(_job_path(key))
        pods = await self._client.items(
            f"/api/v1/namespaces/{namespace}/pods", labelSelector=f"{JOB_NAME}={name}"
        )
        uid = job["metadata"]["uid"] if job else ""
        for pod in pods:
            if _is_orphan(pod, uid):
                await self._let_go(pod)
        if job is None or job["spec"].get("managedBy") not in _OURS:
            self._failures.pop(key, None)
            return
        decision = sync(
            job,
            [pod for pod in pods if _owner(pod) == uid and self._sees(pod)],
            clock.wall_s(),
            self._failures_of(key, uid),
            first_pause_s=self.first_pause_s,
        )
        if decision.again_s is not None:
            self._note(key, max(decision.again_s - clock.wall_s(), 0.0))
        for write in decision.writes:
            await self._write(key, job, write)
            if isinstance(write, Tell):
                # Failed pods are in the status now, and new to no later step.
                self._failures[key] = uid, decision.backoff
        self._failures[key] = uid, decision.backoff

    async def _write(self, key: _Key, job: Object, write: Write) -> None:
        match write:
            case Create(index=index):
                await self._create(key, made_from(job, index))
            case Delete(pod=pod):
                path = pod_path(pod.source)
                await _unless_gone(self._client.delete(path, uid=pod.uid))
            case Release(pod=pod):
                await self._release(pod.source)
            case Tell(status=status):
                path = f"{_job_path(key)}/status"
                await self._client.request("PUT", path, body={**job, "status": status})
            case Remove():
                path, uid = _job_path(key), job["metadata"]["uid"]
                await _unless_gone(
                    self._client.delete(path, uid=uid, propagation="Foreground")
                )

    async def _create(self, key: _Key, pod: Object) -> None:
        path = f"/api/v1/namespaces/{key[0]}/pods"
        await self._client.create(path, pod)
        if self._unseen is not None:
            twin = await self._client.create(path, pod)
            self._unseen[twin["metadata"]["uid"]] = key

    async def _let_go(self, pod: Object) -> None:
        """Let go of a pod whose Job is gone; one that still names it is deleted.

        It was made while its Job went. Real clusters have a garbage collector for that.
        """
        await self._release(pod)
        if _owner(pod):
            uid = pod["metadata"]["uid"]
            await _unless_gone(self._client.delete(pod_path(pod), uid=uid))

    async def _release(self, pod: Object) -> None:
        """Take the finalizer from a pod."""
        metadata: Object = {
            "uid": pod["metadata"]["uid"],
            "$deleteFromPrimitiveList/finalizers": [TRACKING],
        }
        await _unless_gone(
            self._client.request(
                "PATCH",
                pod_path(pod),
                body={"metadata": metadata},
                content_type=STRATEGIC_PATCH,
            )
        )

    async def _read(self, path: str) -> Object | None:
        try:
            return await self._client.get(path)
        except ApiStatusError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            return None

    def _failures_of(self, key: _Key, uid: str) -> Backoff:
        known, backoff = self._failures.get(key, ("", NO_FAILURES))
        return backoff if known == uid else NO_FAILURES

    def _sees(self, pod: Object) -> bool:
        return pod["metadata"]["uid"] not in (self._unseen or {})


async def _unless_gone(request: Awaitable[object]) -> None:
    try:
        await request
    except ApiStatusError as error:
        if error.status not in _GONE:
            raise


def _job_path(key: _Key) -> str:
    return f"/apis/batch/v1/namespaces/{key[0]}/jobs/{key[1]}"


def _key_of_job(job: Object) -> _Key:
    return job["metadata"]["namespace"], job["metadata"]["name"]


def _key_of_pod(pod: Object) -> _Key:
    return pod["metadata"]["namespace"], pod["metadata"]["labels"][JOB_NAME]


def _owner(pod: Object) -> str:
    """Return the uid of the Job that controls a pod; "" for another owner or none."""
    for reference in pod["metadata"].get("ownerReferences") or ():
        if reference.get("controller") and reference["kind"] == "Job":
            return str(reference["uid"])
    return ""


def _is_orphan(pod: Object, uid: str) -> bool:
    """Whether a pod has a finalizer that the Job with this uid will not take away."""
    metadata = pod["metadata"]
    if TRACKING not in (metadata.get("finalizers") or ()):
        return False
    owner, references = _owner(pod), metadata.get("ownerReferences") or ()
    is_others = any(each.get("controller") for each in references) and not owner
    return not is_others and (not uid or owner != uid)
