"""The controller against the sandbox's API server, without nodes."""

from collections.abc import AsyncIterator

import pytest

from sandbox.apiclient import ApiClient, Object
from sandbox.apiserver import ApiServer
from sandbox.inspect import pods as manifests
from sandbox.jobs import JobController
from sandbox.jobs.pods import TRACKING
from tests.sandbox.jobs.cluster import JOB, JOBS, PODS
from tests.support.servers import api_server
from tests.support.until import equal, until


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with api_server() as server:
        yield server


@pytest.fixture
async def api(server: ApiServer) -> AsyncIterator[ApiClient]:
    async with ApiClient(server.url, "user:admin") as api:
        yield api


@pytest.fixture
async def controller(server: ApiServer) -> AsyncIterator[JobController]:
    made = JobController(server.url, "user:job-controller")
    made.first_pause_s = 0.05
    await made.start()
    yield made
    await made.stop()


async def names(api: ApiClient) -> list[str]:
    return [pod["metadata"]["name"] for pod in await api.items(PODS)]


async def status(api: ApiClient) -> Object:
    found: Object = (await api.get(JOB))["status"]
    return found


async def until_pods(api: ApiClient, count: int) -> list[str]:
    return await until(lambda: names(api), lambda found: len(found) == count)


async def end(api: ApiClient, name: str, phase: str) -> None:
    await api.patch(f"{PODS}/{name}/status", {"status": {"phase": phase}})


async def test_a_job_is_run_to_its_end(
    api: ApiClient, controller: JobController
) -> None:
    await api.create(JOBS, manifests.job("train", 2, 1))
    first, second = await until_pods(api, 2)
    await end(api, first, "Failed")
    *_, third = sorted(set(await until_pods(api, 3)) - {first, second})
    for name in (second, third):
        await end(api, name, "Succeeded")

    found = await until(lambda: status(api), lambda s: "completionTime" in s)

    assert (found["succeeded"], found["failed"]) == (2, 1)
    assert found["completedIndexes"] == "0,1"
    assert {first[:8], third[:8]} == {"train-0-"}


async def test_pods_of_a_job_that_is_gone_keep_no_finalizer(
    api: ApiClient, controller: JobController
) -> None:
    await api.create(JOBS, manifests.job("train", 2, 1))
    kept = await until_pods(api, 2)

    await api.delete(JOB, propagation="Orphan")

    async def finalizers() -> list[str]:
        found = await api.items(PODS)
        return [name for pod in found for name in pod["metadata"].get("finalizers", ())]

    await until(finalizers, equal([]))
    assert await until(lambda: names(api), equal(kept)) == kept


async def test_a_job_of_another_controller_is_left_alone(
    api: ApiClient, controller: JobController
) -> None:
    body = manifests.job("train", 2, 1)
    body["spec"]["managedBy"] = "example.com/another"
    await api.create(JOBS, body)
    await api.create(JOBS, manifests.job("ours", 1, 1))

    (made,) = await until_pods(api, 1)

    assert made.startswith("ours-0-")
    assert await status(api) == {}


async def test_pods_of_other_owners_keep_their_finalizers(
    api: ApiClient, controller: JobController
) -> None:
    other = {"apiVersion": "example.com/v1", "kind": "Other", "name": "o", "uid": "u"}
    pod = manifests.manifest("other", 1)
    pod["metadata"] |= {
        "labels": {"batch.kubernetes.io/job-name": "train"},
        "finalizers": [TRACKING],
        "ownerReferences": [{**other, "controller": True}],
    }
    await api.create(PODS, pod)
    await api.create(JOBS, manifests.job("train", 1, 1))
    await until_pods(api, 2)

    await api.delete(JOB, propagation="Background")
    await until_pods(api, 1)

    left = await api.get(f"{PODS}/other")
    assert left["metadata"]["finalizers"] == [TRACKING]


async def test_a_controller_that_has_lost_its_cache_makes_pods_twice(
    api: ApiClient, controller: JobController
) -> None:
    controller.lose_cache()
    await api.create(JOBS, manifests.job("train", 2, 1))
    doubled = await until_pods(api, 4)
    told = await until(lambda: status(api), lambda s: s.get("active"))

    controller.find_cache()
    left = await until_pods(api, 2)

    assert [name[:8] for name in doubled] == ["train-0-"] * 2 + ["train-1-"] * 2
    assert told["active"] == 2
    assert [name[:8] for name in left] == ["train-0-", "train-1-"]
    assert "failed" not in await status(api)


async def test_a_late_controller_does_the_same_later(
    api: ApiClient, controller: JobController
) -> None:
    controller.delay_s = 0.5
    await api.create(JOBS, manifests.job("train", 1, 1))
    await api.create(JOBS, manifests.job("other", 1, 1))
    at_once = await names(api)

    controller.delay_s = 0.0
    late = await until_pods(api, 2)

    assert (at_once, len(late)) == ([], 2)


async def test_what_the_server_refuses_is_tried_again(
    server: ApiServer, api: ApiClient, controller: JobController
) -> None:
    await api.create(JOBS, manifests.job("train", 1, 1))
    (first,) = await until_pods(api, 1)

    await server.pause()
    await server.resume()
    await api.delete(f"{PODS}/{first}")

    (second,) = await until(
        lambda: names(api), lambda found: len(found) == 1 and found != [first]
    )
    assert second.startswith("train-0-")
