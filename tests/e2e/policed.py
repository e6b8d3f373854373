"""A control plane with our admission policies, and all who write on pods there."""

import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeAlias

import pytest

from sandbox.apiclient import ApiClient, ApiStatusError, Object
from tests.e2e import npu_nodes, ours
from tests.e2e.bare import BareCluster, until
from tests.e2e.places import REPOSITORY
from tests.support import objects
from tests.support.objects import PODS

NODES = ("node-0", "node-1")
NAMESPACE = "default"
SYSTEM = "kube-system"
_SYSTEM = f"/api/v1/namespaces/{SYSTEM}"
_POLICIES = REPOSITORY / "daemonset" / "components" / "policies"
_KUBELETS = {f"system:node:{name}": ["system:nodes"] for name in NODES}
#: The API server reads a new policy some moments after it was written.
_IN_FORCE_WITHIN_S = 120.0


Notes: TypeAlias = Mapping[str, str]
NONE: Notes = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Who speaks to the API server, each with the rights that it has in life."""

    cluster: BareCluster
    #: an administrator, a person, or any controller: nobody of ours
    user: ApiClient
    extender: ApiClient
    #: {node: its agent}
    agents: Mapping[str, ApiClient]
    #: with a token of the agent's account that is bound to no pod
    stray: ApiClient
    #: {node: its kubelet}
    kubelets: Mapping[str, ApiClient]
    _serial: "itertools.count[int]" = field(default_factory=itertools.count)

    async def pod(self, notes: Notes = NONE, *, node: str = "", count: int = 1) -> str:
        """Make a pod with these annotations, bound to a node or not; its path."""
        body = npu_nodes.pod(f"pod-{next(self._serial)}", count)
        body["metadata"]["annotations"] = {**notes}
        path = f"{PODS}/{(await self.user.create(PODS, body))['metadata']['name']}"
        if node:
            await self.bind(path, node)
        return path

    async def bind(self, path: str, node: str, notes: Notes = NONE) -> None:
        """Have the extender bind the pod of that path, with these annotations."""
        body = binding(path.rpartition("/")[2], node, notes)
        await self.extender.create(f"{path}/binding", body)

    async def claimed(self, notes: Notes) -> str:
        """Make a pod that the extender has bound with a claim; its path."""
        path = await self.pod()
        await self.bind(path, NODES[0], notes)
        return path


def binding(name: str, node: str, notes: Notes = NONE) -> Object:
    """What a scheduler sends to bind a pod."""
    return objects.binding(name, node, annotations={**notes})


def annotated(notes: Mapping[str, str | None]) -> Object:
    """A merge patch; None takes an annotation away."""
    return {"metadata": {"annotations": {**notes}}}


async def refusal(call: Awaitable[Any]) -> str:
    """What the API server says to a call that a policy must refuse.

    Fails the test if it is allowed, or refused for another reason.
    """
    with pytest.raises(ApiStatusError) as caught:
        await call
    error = caught.value
    told = error.message.partition("ValidatingAdmissionPolicy ")[2]
    assert (error.status, bool(told)) == (403, True), error
    return told


@contextlib.asynccontextmanager
async def policed() -> AsyncIterator[Site]:
    """Have such a control plane while the context lasts."""
    async with (
        ours.installed(*NODES, users=_KUBELETS) as cluster,
        contextlib.AsyncExitStack() as stack,
    ):

        async def speaks(token: str) -> ApiClient:
            client = ApiClient(cluster.api_url, token, authority=cluster.authority)
            return await stack.enter_async_context(client)

        site = Site(
            cluster=cluster,
            user=cluster.api,
            extender=await speaks(cluster.tokens[ours.EXTENDER]),
            agents={
                name: await speaks(await agents_token(cluster, name)) for name in NODES
            },
            stray=await speaks(await token(cluster, "ascend-agent")),
            kubelets={
                name: await speaks(cluster.tokens[f"system:node:{name}"])
                for name in NODES
            },
        )
        apply(cluster)
        await _in_force(site)
        yield site


def apply(cluster: BareCluster, *patches: Object) -> None:
    """Apply the component, as a kustomization of a user's own would."""
    folder = cluster.places.cache / "policies"
    folder.mkdir(exist_ok=True)
    link = folder / "component"
    if not link.exists():
        link.symlink_to(_POLICIES)
    document = {"components": ["component"], "patches": list(patches)}
    text = json.dumps(document)
    (folder / "kustomization.yaml").write_text(text, encoding="utf-8")
    cluster.kubectl("apply", "-k", folder)


async def agents_token(cluster: BareCluster, node: str, namespace: str = SYSTEM) -> str:
    """The token that the kubelet mounts into a pod of the account `ascend-agent`."""
    body = objects.pod(
        f"ascend-agent-{node}",
        namespace=namespace,
        node=node,
        serviceAccountName="ascend-agent",
    )
    pods = f"/api/v1/namespaces/{namespace}/pods"
    meta = (await cluster.api.create(pods, body))["metadata"]
    bound = {"kind": "Pod", "apiVersion": "v1"}
    bound |= {key: meta[key] for key in ("name", "uid")}
    spec = {"boundObjectRef": bound}
    return await token(cluster, "ascend-agent", namespace=namespace, spec=spec)


async def token(
    cluster: BareCluster,
    account: str,
    *,
    namespace: str = SYSTEM,
    spec: Mapping[str, Any] = MappingProxyType({}),
) -> str:
    """A token of an account, bound to nothing unless `spec` says so."""
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"audiences": [], **spec},
    }
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    return str((await cluster.api.create(path, body))["status"]["token"])


async def _in_force(site: Site) -> None:
    """Wait until each of the policies refuses something."""
    agent, other = site.agents[NODES[0]], NODES[1]
    tries: Mapping[str, Callable[[], Awaitable[Any]]] = {
        "claims": lambda: site.pod({"predicate-time": "1"}),
        "pods": lambda: agent.patch(f"{_SYSTEM}/pods/ascend-agent-{other}", _NOTHING),
        "nodes": lambda: agent.patch(f"/api/v1/nodes/{other}", _NOTHING),
        "configmaps": lambda: agent.create(
            f"{_SYSTEM}/configmaps", {"metadata": {"generateName": "try-"}}
        ),
        "events": lambda: agent.create(
            f"/api/v1/namespaces/{NAMESPACE}/events",
            {
                "metadata": {"generateName": "try-"},
                "involvedObject": {"kind": "Pod", "namespace": NAMESPACE},
            },
        ),
    }
    for name, attempt in tries.items():

        async def refuses(attempt: Callable[[], Awaitable[Any]] = attempt) -> bool:
            try:
                await attempt()
            except ApiStatusError as error:
                return "ValidatingAdmissionPolicy" in error.message
            return False

        await until(refuses, f"{name} in force", within_s=_IN_FORCE_WITHIN_S)


#: Changes nothing, if it is allowed.
_NOTHING: Object = {"metadata": {"labels": {"try": None}}}
