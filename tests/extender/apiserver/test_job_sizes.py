"""How many pods a job has, read from an API server that serves it or does not."""

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from extender.apiserver.wake import SchedulerWaker
from extender.apiserver.writers import KubeJobs
from extender.gang.membership import SizeSource, membership
from extender.gang.size import Size
from extender.metrics import Metrics
from kube import credentials
from kube.client import Client
from kube.events import Recorder
from tests.extender.gang.test_membership import CASES
from tests.support.servers import listening

KIND = "PodGroup of Kubernetes"
GROUP = "/apis/scheduling.k8s.io"


def source() -> SizeSource:
    found = membership(CASES[KIND][0])
    assert found is not None
    assert found.size_source is not None
    return found.size_source


@asynccontextmanager
async def jobs_on(objects: Mapping[str, object]) -> AsyncIterator[KubeJobs]:
    """Requests about jobs to an API server that has these objects, by their paths."""

    async def answer(request: web.Request) -> web.Response:
        if request.path not in objects:
            return web.Response(status=404, text="404 page not found\n")
        return web.json_response(objects[request.path])

    async def wake_nobody(_node: str) -> None:
        raise AssertionError("no node is to be annotated")

    application = web.Application()
    application.router.add_get("/{path:.*}", answer)
    async with (
        listening(application) as url,
        Client(credentials.from_url(url)) as client,
    ):
        recorder = Recorder(client, component="test", spacing_s=0)
        metrics = Metrics(CollectorRegistry())
        yield KubeJobs(client, recorder, SchedulerWaker(wake_nobody), metrics)


def group(*versions: str) -> dict[str, object]:
    return {"versions": [{"version": version} for version in versions]}


@pytest.mark.parametrize("version", ["v1alpha2", "v1alpha3", "v1beta1"])
async def test_a_group_of_kubernetes_is_read_in_each_version(version: str) -> None:
    path = source().path.replace("{version}", version)
    spec = {"schedulingPolicy": {"gang": {"minCount": 3}}}
    objects = {GROUP: group("v1", version), path: {"spec": spec}}

    async with jobs_on(objects) as jobs:
        size = await jobs.size(source())

    assert size == Size(count=None, least=3, counts_all=True)


async def test_a_group_that_no_version_serves_is_refused_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        async with jobs_on({GROUP: group("v1")}) as jobs:
            size = await jobs.size(source())

    assert size == (
        "its PodGroup of Kubernetes cannot be read, "
        "which says how many pods the job has"
    )
    (record,) = caplog.records
    assert (record.message, vars(record)["error"]) == (
        "job not read",
        f"{GROUP} is served in v1; the extender reads v1beta1, v1alpha3, v1alpha2",
    )
