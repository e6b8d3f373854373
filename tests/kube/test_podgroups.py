import pytest

from kube.errors import ConflictError, MalformedError
from kube.podgroups import PodGroupRequests
from tests.kube.server import Answer, Request, Script

PATH = "/apis/scheduling.volcano.sh/v1beta1/namespaces/ml/podgroups/train"
CONDITION = {"type": "Unschedulable", "status": "True", "reason": "Why", "more": [1]}


async def test_of_a_podgroup_version_and_conditions_are_read(script: Script) -> None:
    meta = {"name": "train", "resourceVersion": "7"}
    status = {"phase": "Pending", "conditions": [CONDITION]}
    script.will(Answer(body={"metadata": meta, "status": status}))

    found = await PodGroupRequests(script.client).read("ml", "train")

    assert script.requests[0].path == PATH
    assert found == ("7", [CONDITION])


async def test_a_new_podgroup_has_no_conditions(script: Script) -> None:
    script.will(Answer(body={"metadata": {"name": "train"}}))

    assert await PodGroupRequests(script.client).read("ml", "train") == ("", ())


async def test_conditions_that_are_none_are_malformed(script: Script) -> None:
    script.will(Answer(body={"status": {"conditions": "many"}}))

    with pytest.raises(MalformedError, match=r"conditions"):
        await PodGroupRequests(script.client).read("ml", "train")


async def test_conditions_are_written_on_top_of_one_version_only(
    script: Script,
) -> None:
    script.will(Answer(status=409, body={"reason": "Conflict"}))

    with pytest.raises(ConflictError):
        await PodGroupRequests(script.client).write("ml", "train", "7", [CONDITION])

    body = {
        "metadata": {"resourceVersion": "7"},
        "status": {"conditions": [CONDITION]},
    }
    assert script.requests == [Request(method="PATCH", path=PATH, query={}, body=body)]
