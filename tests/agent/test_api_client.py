"""What is asked in a hurry is bounded, whatever has to be done for it."""

import asyncio

import pytest

from agent.api_client import KUBELET_PODS_S, ApiClient
from agent.claims.annotations import Patch, PatchError
from kube.client import Client
from kube.credentials import Credentials
from kube.errors import UnreachableError
from kube.events import Recorder
from tests.agent.node import NODE, RESOURCE
from tests.kube.server import client_of, refusal, scripted

KUBELET = "http://127.0.0.1:9"


class SlowTokens:
    """A plugin of a kubeconfig that does not come back."""

    async def token(self) -> str:
        await asyncio.sleep(3600)
        return ""

    def expire(self) -> None:
        """Be as slow as ever."""


@pytest.mark.looptime
async def test_a_token_that_does_not_come_is_waited_for_only_so_long() -> None:
    given = Credentials(KUBELET, tokens=SlowTokens())
    client = Client(given)
    api = ApiClient(
        client, Recorder(client, component="c"), credentials=given, url=KUBELET
    )

    started = asyncio.get_running_loop().time()
    with pytest.raises(UnreachableError, match=r"/pods: no answer within 0\.5 s"):
        await api.kubelet_pods(NODE, RESOURCE)

    assert asyncio.get_running_loop().time() - started == pytest.approx(KUBELET_PODS_S)


async def test_a_conflict_of_writers_is_tried_again_and_another_pod_is_not() -> None:
    patch = Patch(uid="u", namespace="ns", name="p", annotations={}, resource=RESOURCE)
    async with scripted() as script, client_of(script) as client:
        given = Credentials(script.url)
        api = ApiClient(
            client, Recorder(client, component="c"), credentials=given, url=""
        )
        script.will(
            refusal(409, "Conflict", "the object has been modified"),
            refusal(409, "Conflict", "Precondition failed: UID in precondition: u"),
            refusal(422, "Invalid", "metadata.uid: Invalid value: field is immutable"),
        )

        with pytest.raises(PatchError, match="the object has been modified"):
            await api.send(patch)
        assert await api.send(patch) is None
        assert await api.send(patch) is None
