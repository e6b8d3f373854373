import pytest

from tests.contract.apiserver.client import Api, pod

pytestmark = pytest.mark.contract

EVICTION = {
    "apiVersion": "policy/v1",
    "kind": "Eviction",
    "metadata": {"name": "p"},
}
_DISRUPTED = "DisruptionTarget"


async def test_an_eviction_deletes(api: Api) -> None:
    await api.create("pods", pod("p"))

    code, status = await api.post("pods/p/eviction", EVICTION)
    gone, _ = await api.get("pods/p")

    assert (code, status["status"], gone) == (201, "Success", 404)


async def test_an_eviction_of_a_pod_that_runs_says_so_on_it(
    api: Api, node: str
) -> None:
    await api.bound(node)

    code, _ = await api.post("pods/p/eviction", EVICTION)
    _, left = await api.get("pods/p")

    assert code == 201
    assert "deletionTimestamp" in left["metadata"]
    (said,) = [c for c in left["status"]["conditions"] if c["type"] == _DISRUPTED]
    assert (said["status"], said["reason"]) == ("True", "EvictionByEvictionAPI")


async def test_an_eviction_names_the_pod_by_uid(api: Api, node: str) -> None:
    await api.bound(node)
    meant = {"deleteOptions": {"preconditions": {"uid": "another"}}}

    code, status = await api.post("pods/p/eviction", {**EVICTION, **meant})
    _, left = await api.get("pods/p")

    assert (code, status["reason"]) == (409, "Conflict")
    assert "deletionTimestamp" not in left["metadata"]


async def test_a_budget_that_lets_nobody_go_refuses_evictions(
    api: Api, node: str
) -> None:
    await _run(api, node)
    path = f"/apis/policy/v1/namespaces/{api.namespace}/poddisruptionbudgets"
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "p"}}}
    code, made = await api.post(path, {"metadata": {"name": "b"}, "spec": spec})
    assert code == 201, made
    assert made["metadata"]["generation"] == 1
    # A disruption controller says the same, where there is one.
    said = {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1}
    said |= {"expectedPods": 1, "observedGeneration": 1}
    await api.patch(f"{path}/b/status", {"status": said})

    code, status = await api.post("pods/p/eviction", EVICTION)
    _, left = await api.get("pods/p")

    assert (code, status["reason"]) == (429, "TooManyRequests")
    text = "Cannot evict pod as it would violate the pod's disruption budget."
    assert status["message"] == text
    assert status["details"]["causes"] == [
        {
            "reason": "DisruptionBudget",
            "message": "The disruption budget b needs 1 healthy pods and has "
            "1 currently",
        }
    ]
    assert "deletionTimestamp" not in left["metadata"]


async def test_a_rehearsed_eviction_asks_the_budget_and_changes_nothing(
    api: Api, node: str
) -> None:
    await _run(api, node)
    path = "pods/p/eviction"

    code, _ = await api.call("POST", path, EVICTION, query={"dryRun": "All"})
    _, left = await api.get("pods/p")

    assert code == 201
    assert "deletionTimestamp" not in left["metadata"]
    assert _DISRUPTED not in {c["type"] for c in left["status"]["conditions"]}


async def _run(api: Api, node: str) -> None:
    """A pod that is ready, as its kubelet would say."""
    await api.bound(node, metadata={"labels": {"app": "p"}})
    ready = [{"type": "Ready", "status": "True"}]
    running = {"status": {"phase": "Running", "conditions": ready}}
    code, found = await api.patch("pods/p/status", running)
    assert code == 200, found
