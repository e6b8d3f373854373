"""What is asked in a hurry is bounded, whatever has to be done for it."""

import asyncio

import pytest

from agent.api_client import KUBELET_PODS_S, ApiClient
from agent.claims.annotations import Patch
from kube.client import Client
from kube.credentials import Credentials
from kube.errors import KubeError, UnreachableError
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
            refusal(409, "Conflict", "Precondition failed: UID in precondition: u, …"),
            refusal(422, "Invalid", "metadata.uid: Invalid value: field is immutable"),
        )

        with pytest.raises(KubeError, match="the object has been modified"):
            await api.send(patch)
        assert await api.send(patch) is None
        assert await api.send(patch) is None


CONFLICT, INVALID = (409, "Conflict"), (422, "Invalid")


@pytest.mark.parametrize(
    ("status", "name"),
    [
        (CONFLICT, "fluid-worker-0"),
        (CONFLICT, "uid"),
        (CONFLICT, "metadata.uid"),
        (CONFLICT, "uid.in.precondition"),
        (CONFLICT, "worker-0"),
        (INVALID, "fluid-worker-0"),
        (INVALID, "metadata.uid"),
    ],
)
async def test_a_refusal_that_only_names_a_pod_is_tried_again(
    name: str, status: tuple[int, str]
) -> None:
    patch = Patch(uid="u", namespace="ns", name=name, annotations={}, resource=RESOURCE)
    texts = {
        409: f'Operation cannot be fulfilled on pods "{name}": the object has been '
        "modified; please apply your changes to the latest version and try again",
        422: f'Pod "{name}" is invalid: metadata.annotations: Invalid value: "x"',
    }
    async with scripted() as script, client_of(script) as client:
        api = ApiClient(
            client,
            Recorder(client, component="c"),
            credentials=Credentials(script.url),
            url="",
        )
        script.will(refusal(*status, texts[status[0]]))

        with pytest.raises(KubeError, match=name):
            await api.send(patch)


async def test_another_pod_of_that_name_is_known_by_each_wording_of_it() -> None:
    """The wordings are those of kube-apiserver 1.34 to 1.36 and of the sandbox."""
    patch = Patch(uid="u", namespace="ns", name="p", annotations={}, resource=RESOURCE)
    async with scripted() as script, client_of(script) as client:
        api = ApiClient(
            client,
            Recorder(client, component="c"),
            credentials=Credentials(script.url),
            url="",
        )
        immutable = 'metadata.uid: Invalid value: "u": field is immutable'
        replaced = "Precondition failed: UID in precondition: u, UID in object meta: v"
        wordings = (
            (*INVALID, f'Pod "p" is invalid: {immutable}'),
            (*CONFLICT, f'Operation cannot be fulfilled on pods "p": {replaced}'),
        )
        for code, reason, text in wordings:
            script.will(refusal(code, reason, text))

            assert await api.send(patch) is None
