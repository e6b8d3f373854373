"""Jobs in the sandbox's API server: what becomes of pods, and what is refused."""

import pytest

from sandbox.inspect import pods
from tests.contract.apiserver.client import Api, Object, binding, pod, problem

JOBS = "/apis/batch/v1/namespaces/default/jobs"
TRACKING = "batch.kubernetes.io/job-tracking"


async def made(api: Api) -> str:
    """A Job with a pod that runs and one that waits; return the Job's uid."""
    code, job = await api.post(JOBS, pods.job("train", 2, 1))
    assert code == 201, job
    uid = str(job["metadata"]["uid"])
    for name in ("runs", "waits"):
        await api.create("pods", owned(name, uid))
    await api.post(api.path("pods", "runs", "binding"), binding("runs", "n"))
    return uid


def owned(name: str, uid: str, **metadata: object) -> Object:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": uid}
    return pod(name, metadata={"ownerReferences": [owner], **metadata})


async def terminating(api: Api) -> dict[str, bool]:
    """{pod: whether it is being deleted}."""
    _, listed = await api.get("pods")
    return {
        item["metadata"]["name"]: "deletionTimestamp" in item["metadata"]
        for item in listed["items"]
    }


async def delete(api: Api, propagation: str) -> Object:
    code, found = await api.delete(f"{JOBS}/train", {"propagationPolicy": propagation})
    assert code == 200, found
    return found


async def is_gone(api: Api) -> bool:
    return (await api.get(f"{JOBS}/train"))[0] == 404


async def test_pods_go_after_their_job(api: Api) -> None:
    await made(api)

    await delete(api, "Background")

    assert await is_gone(api)
    assert await terminating(api) == {"runs": True}


async def test_pods_go_before_their_job(api: Api) -> None:
    await made(api)

    marked = await delete(api, "Foreground")
    waiting = not await is_gone(api)
    left = await terminating(api)
    await api.delete(api.path("pods", "runs"), {"gracePeriodSeconds": 0})

    assert marked["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert (waiting, left) == (True, {"runs": True})
    assert await is_gone(api)


async def test_pods_stay_without_their_job(api: Api) -> None:
    await made(api)

    await delete(api, "Orphan")

    assert await is_gone(api)
    assert await terminating(api) == {"runs": False, "waits": False}
    _, left = await api.get(api.path("pods", "runs"))
    assert "ownerReferences" not in left["metadata"]


async def test_a_pod_of_two_owners_loses_the_one_that_is_gone(api: Api) -> None:
    uid = await made(api)
    both = owned("shared", uid)
    both["metadata"]["ownerReferences"].append(
        {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "other"}
    )
    await api.create("pods", both)

    await delete(api, "Background")

    _, left = await api.get(api.path("pods", "shared"))
    assert [each["uid"] for each in left["metadata"]["ownerReferences"]] == ["other"]


async def test_a_job_with_a_finalizer_keeps_its_pods_until_it_is_gone(
    api: Api,
) -> None:
    await made(api)
    path = f"{JOBS}/train"
    await api.patch(path, {"metadata": {"finalizers": ["example.com/stay"]}})

    await delete(api, "Background")
    before = await terminating(api)
    await api.patch(path, {"metadata": {"finalizers": None}})

    assert before == {"runs": False, "waits": False}
    assert await is_gone(api)
    assert await terminating(api) == {"runs": True}


async def test_a_later_wish_replaces_an_earlier_one(api: Api) -> None:
    await made(api)

    await delete(api, "Foreground")
    await delete(api, "Background")

    assert await is_gone(api)
    assert await terminating(api) == {"runs": True}


async def test_a_namespace_goes_with_the_finalizer_of_the_last_pod(api: Api) -> None:
    await api.post("/api/v1/namespaces", {"metadata": {"name": "team"}})
    api.namespace = "team"
    await api.create("pods", pod("p", metadata={"finalizers": [TRACKING]}))
    body = pods.job("train", 1, 1)
    body["metadata"]["namespace"] = "team"
    await api.post("/apis/batch/v1/namespaces/team/jobs", body)

    await api.delete("/api/v1/namespaces/team")
    waiting, _ = await api.get("/api/v1/namespaces/team")
    await api.patch(api.path("pods", "p"), {"metadata": {"finalizers": None}})
    gone, _ = await api.get("/api/v1/namespaces/team")

    assert (waiting, gone) == (200, 404)


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        (
            "backoffLimitPerIndex",
            1,
            "the sandbox's Job controller does not serve this field",
        ),
        (
            "successPolicy",
            {"rules": [{"succeededCount": 1}]},
            "the sandbox's Job controller does not serve this field",
        ),
        (
            "manualSelector",
            True,
            "the sandbox's Job controller selects by generated labels only",
        ),
    ],
)
async def test_what_the_controller_does_not_serve_is_refused(
    api: Api, field: str, value: object, text: str
) -> None:
    body = pods.job("train", 1, 1)
    body["spec"][field] = value

    _, status = await api.post(JOBS, body)

    told = f'Job.batch "train" is invalid: spec.{field}: Forbidden: {text}'
    assert problem(status) == (422, "Invalid", told)
