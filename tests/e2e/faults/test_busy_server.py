"""The API server has no room for what the agent asks about its node: 429, for a while.

What it has no room for is said by its own means: a priority level with a single seat,
which a request of the agent's account has that never ends.
"""

import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

import kubernetes.client
import pytest

from tests.e2e import product, truth
from tests.e2e.cluster import Cluster
from tests.e2e.commands import until
from tests.e2e.faults import ours
from tests.e2e.faults.chronicle import Chronicle, Story
from tests.e2e.namespaces import Namespace
from tests.e2e.places import API_PORT
from tests.e2e.pods import pod

pytestmark = pytest.mark.faults

_CONFIGURATION = "ascend.kubectl.kubernetes.io/ascend-910-configuration"
_NAME = "e2e-no-room"
_ACCOUNT = "ascend-agent"
_KIND = "flowcontrol.apiserver.k8s.io/v1"
_LEVEL = {
    "apiVersion": _KIND,
    "kind": "PriorityLevelConfiguration",
    "metadata": {"name": _NAME},
    "spec": {
        "type": "Limited",
        "limited": {
            "nominalConcurrencyShares": 0,
            "lendablePercent": 0,
            "borrowingLimitPercent": 0,
            "limitResponse": {"type": "Reject"},
        },
    },
}
_SUBJECT = {
    "kind": "ServiceAccount",
    "serviceAccount": {"name": _ACCOUNT, "namespace": product.NAMESPACE},
}
_NODES = {"resources": ["nodes"], "verbs": ["list", "watch"], "clusterScope": True}
_MAPS = {
    "resources": ["configmaps"],
    "verbs": ["create"],
    "namespaces": [product.NAMESPACE],
}
_SCHEMA = {
    "apiVersion": _KIND,
    "kind": "FlowSchema",
    "metadata": {"name": _NAME},
    "spec": {
        "priorityLevelConfiguration": {"name": _NAME},
        "matchingPrecedence": 2,
        "rules": [
            {
                "subjects": [_SUBJECT],
                "resourceRules": [{"apiGroups": [""], **each}],
            }
            for each in (_NODES, _MAPS)
        ],
    },
}


def test_the_agent_starts_while_its_node_is_answered_by_429(
    cluster: Cluster, namespace: Namespace, chronicle: Chronicle
) -> None:
    told: dict[str, list[str]] = {}
    chronicle.told.append(lambda story: _note(story, told))
    agent = ours.agent(cluster)
    namespace.run(pod("before", 1))
    _wait_addresses(told, "before", cluster.address)
    with _no_room(cluster):
        agent.kill()
        agent.wait_not_ready()
        until(
            lambda: _answer(cluster) == HTTPStatus.TOO_MANY_REQUESTS, "429", within_s=9
        )
        namespace.run(pod("meanwhile", 1))
        until(
            lambda: (
                chronicle.named("meanwhile")[0].annotations.get("predicate-time")
                == truth.SERVED
            ),
            "meanwhile served",
            within_s=60,
        )
        was_told = list(told.get("meanwhile", ()))
        was_refused = _answer(cluster)

    _wait_addresses(told, "meanwhile", cluster.address)
    agent.wait_ready()

    assert was_refused == HTTPStatus.TOO_MANY_REQUESTS
    assert was_told == []
    assert told == {"before": [cluster.address], "meanwhile": [cluster.address]}


def _note(story: Story, told: dict[str, list[str]]) -> None:
    """Note each address of its server that a pod's configuration ever had."""
    text = story.annotations.get(_CONFIGURATION)
    if text is None:
        return
    seen = told.setdefault(story.name, [])
    address = json.loads(text)["host_ip"]
    if address not in seen:
        seen.append(address)


def _wait_addresses(told: dict[str, list[str]], name: str, address: str) -> None:
    until(
        lambda: address in told.get(name, ()),
        lambda: f"the address in the configuration of {name}: {told}",
        within_s=90,
    )


@contextmanager
def _no_room(cluster: Cluster) -> Iterator[None]:
    """Have the agent's requests about nodes be refused."""
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(_LEVEL))
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(_SCHEMA))
    with _endless_request(cluster):
        try:
            yield
        finally:
            for kind in ("flowschema", "prioritylevelconfiguration"):
                cluster.kubectl("delete", kind, _NAME)


@contextmanager
def _endless_request(cluster: Cluster) -> Iterator[None]:
    """Begin to create a ConfigMap, and say no more than that."""
    context = ssl.create_default_context(cafile=_authority(cluster))
    plain = socket.create_connection((cluster.address, API_PORT))
    path = f"/api/v1/namespaces/{product.NAMESPACE}/configmaps"
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {cluster.address}\r\n"
        f"Authorization: Bearer {_token(cluster)}\r\n"
        "Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
    )
    with context.wrap_socket(plain, server_hostname=cluster.address) as connection:
        connection.sendall(head.encode())
        yield


def _authority(cluster: Cluster) -> str:
    return str(cluster.places.certificates / "ca.crt")


def _token(cluster: Cluster) -> str:
    made = cluster.core.create_namespaced_service_account_token(
        _ACCOUNT, product.NAMESPACE, {"spec": {"expirationSeconds": 600}}
    )
    return str(made.status.token)


def _answer(cluster: Cluster) -> int:
    """With what the API server answers when the agent lists nodes."""
    configuration = kubernetes.client.Configuration(host=cluster.api_url)
    configuration.ssl_ca_cert = _authority(cluster)
    configuration.api_key = {"authorization": f"Bearer {_token(cluster)}"}
    with kubernetes.client.ApiClient(configuration) as client:
        try:
            kubernetes.client.CoreV1Api(client).list_node(limit=1)
        except kubernetes.client.ApiException as error:
            return int(error.status or 0)
    return int(HTTPStatus.OK)
