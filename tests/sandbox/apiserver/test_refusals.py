"""What the sandbox does not do is refused with a sentence that says what to do."""

import pytest

from tests.contract.apiserver.client import Api, pod, problem


@pytest.mark.parametrize(
    ("method", "subresource"),
    [("GET", "log"), ("GET", "exec"), ("POST", "exec"), ("POST", "portforward")],
)
async def test_what_needs_a_process_is_not_there(
    api: Api, method: str, subresource: str
) -> None:
    await api.create("pods", pod("p"))

    code, status = await api.call(method, api.path("pods", "p", subresource))

    assert (code, problem(status)) == (
        501,
        (
            501,
            "NotImplemented",
            (
                f"the sandbox has no pods/{subresource}: its containers run no "
                "program; which chips a pod has mounted is in its annotation "
                "huawei.com/AscendReal"
            ),
        ),
    )


async def test_server_side_apply_is_refused(api: Api) -> None:
    code, status = await api.call(
        "PATCH",
        api.path("configmaps", "a"),
        {"data": {}},
        query={"fieldManager": "kubectl", "force": "false"},
        media_type="application/apply-patch+yaml",
    )

    assert (code, status["message"]) == (
        415,
        (
            "the sandbox has no server-side apply: leave out --server-side, "
            "a plain kubectl apply works"
        ),
    )


async def test_a_protobuf_body_that_cannot_be_read_is_refused(
    api: Api,
) -> None:
    code, status = await api.call(
        "POST",
        "/api/v1/namespaces",
        b"k8s\x00\x0a\x0f",
        media_type="application/vnd.kubernetes.protobuf",
    )

    assert (code, status["message"]) == (
        415,
        (
            "the sandbox cannot read this protobuf body (it ends in the middle "
            "of a field): add --dry-run=client -o yaml to it, and pipe that into "
            "kubectl apply -f -"
        ),
    )


async def test_workloads_are_refused_because_nobody_would_run_them(
    api: Api,
) -> None:
    code, status = await api.post(
        "/apis/apps/v1/namespaces/default/deployments", {"metadata": {"name": "d"}}
    )

    assert (code, status["message"]) == (
        405,
        (
            "the sandbox has no deployments.apps: no controller would make their "
            "pods; create pods or Jobs instead"
        ),
    )
