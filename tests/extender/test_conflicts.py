"""Refusals of the API server that speak of another pod, and those that do not."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from extender.apiserver.wake import SchedulerWaker
from extender.apiserver.writers import KubeJobs
from extender.metrics import Metrics
from extender.preemption.attempt import Outcome, Victim
from extender.volcano.claims import ClaimWriter
from kube import credentials
from kube.client import Client
from kube.errors import ConflictError
from kube.events import Recorder
from tests.extender.volcanos import Pods
from tests.support.servers import listening
from tests.support.watched import pod

#: Texts of kube-apiserver.
#: Source: `storage.Preconditions.Check`, `errors.NewConflict`.
OTHER_UID = (
    "Precondition failed: UID in precondition: uid-fluid, UID in object meta: uid-new"
)
WRITTEN_MEANWHILE = (
    'Operation cannot be fulfilled on pods "fluid-uid-0": the object has been '
    "modified; please apply your changes to the latest version and try again"
)
VICTIM = Victim(uid="uid-fluid", namespace="default", name="fluid-uid-0")


@asynccontextmanager
async def jobs_refused(status: int, message: str) -> AsyncIterator[KubeJobs]:
    """Requests about jobs to an API server that gives one answer to all."""
    body = {"kind": "Status", "status": "Failure", "message": message, "code": status}

    async def refuse(_request: web.Request) -> web.Response:
        return web.Response(
            status=status, body=json.dumps(body), content_type="application/json"
        )

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", refuse)
    async with (
        listening(application) as url,
        Client(credentials.from_url(url)) as client,
    ):
        metrics = Metrics(CollectorRegistry())
        recorder = Recorder(client, component="test", spacing_s=0)
        yield KubeJobs(client, recorder, SchedulerWaker(_wake_nobody), metrics)


async def _wake_nobody(_node: str) -> None:
    raise AssertionError("no node is to be annotated")


@pytest.mark.parametrize(
    ("status", "message", "outcome"),
    [
        (409, OTHER_UID, Outcome.GONE),
        (404, 'pods "fluid-uid-0" not found', Outcome.GONE),
        (409, WRITTEN_MEANWHILE, Outcome.FAILED),
        (500, "etcdserver: request timed out", Outcome.FAILED),
    ],
)
async def test_only_a_victim_that_is_not_there_any_more_has_gone(
    status: int, message: str, outcome: Outcome
) -> None:
    async with jobs_refused(status, message) as jobs:
        assert await jobs.evict(VICTIM, rehearse=False) is outcome


@pytest.mark.parametrize("message", [WRITTEN_MEANWHILE, OTHER_UID])
async def test_a_claim_is_given_up_only_if_its_pod_has_gone(message: str) -> None:
    pods = Pods()
    claims = ClaimWriter(pods.mark)
    await claims.put(pod("a"), {"huawei.com/AscendReal": "Ascend910-0"})
    pods.fates.append(ConflictError(409, "Conflict", message))

    if message == OTHER_UID:
        await claims.remove("uid-a")
    else:
        with pytest.raises(ConflictError):
            await claims.remove("uid-a")

    claims.retry()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(pods.writes) == (2 if message == OTHER_UID else 3)
