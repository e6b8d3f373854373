"""The writers of an installation pass the policies, wherever it is; nobody else does.

Asked of a real API server. All accounts have the rights of a person who edits pods, so
that only the policies are in their way.
"""

from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from sandbox.apiclient import ApiClient, ApiStatusError, Object
from tests.daemonset import installations
from tests.daemonset.installations import FORMS, HOME, INSTALLATIONS, OTHER, WRITERS
from tests.e2e import policed
from tests.e2e.bare import BareCluster, until
from tests.e2e.policed import NODES, Site, annotated, binding

pytestmark = pytest.mark.asyncio(loop_scope="module")

HERE, THERE = NODES
CLAIM = {"huawei.com/Ascend910": "Ascend910-0", "predicate-time": "7"}
MOUNTED = {"huawei.com/AscendReal": "Ascend910-0"}
PLACE = {"isHealthy": "0", "hccl/rankIndex": "0"}
AGENT, EXTENDER, SCHEDULER = "ascend-agent", "ascend-extender", "ascend-scheduler"
#: What people may, whose pods these are.
PEOPLES = {"bind", "label a pod", "mark a node"}
#: {account of an installation: what the policies let it do}
MAY = {
    AGENT: {"claim here", "mounted here"},
    EXTENDER: {
        *PEOPLES,
        *("bind with claim", "bind with place"),
        *("claim here", "claim there", "place here"),
    },
}
_ACCESS = {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}
_RBAC = "rbac.authorization.k8s.io"
_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
#: namespace and name
Account = tuple[str, str]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site() -> AsyncIterator[Site]:
    """A cluster with the policies in force, where no account is installed."""
    async with policed.policed() as site:
        names = [f"clusterrolebinding/{name}" for name in (AGENT, EXTENDER)]
        site.cluster.kubectl("delete", *names)
        site.cluster.kubectl("delete", "pods,sa", "-n", HOME, "--all", "--force")
        site.cluster.kubectl("create", "namespace", OTHER)
        yield site


@pytest.mark.xfail(
    strict=True,
    raises=AssertionError,
    reason="F9: the policies name kube-system, and accounts that are not installed",
)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("installation", INSTALLATIONS)
async def test_its_writers_may_write_and_nobody_else(
    site: Site, tmp_path: Path, installation: str, form: str
) -> None:
    folder = installations.write(tmp_path, installation, form)
    writers = {(FORMS[form], name) for name in WRITERS[installation]}

    async with accounts(site.cluster, folder) as clients:
        may = {who: await allowed(site, client) for who, client in clients.items()}

    strangers: dict[str, set[str]] = {AGENT: set()}
    assert may == {
        who: MAY[who[1]] if who in writers else strangers.get(who[1], PEOPLES)
        for who in clients
    }


async def allowed(site: Site, client: ApiClient) -> set[str]:
    """What the policies let somebody do."""
    return {
        what
        for what, attempt in (await attempts(site, client)).items()
        if await is_allowed(attempt)
    }


async def attempts(site: Site, client: ApiClient) -> dict[str, Awaitable[Any]]:
    """{what somebody tries: the call}, each with a pod of its own."""
    label = {"metadata": {"labels": {"app": "x"}}}
    calls: dict[str, Awaitable[Any]] = {
        "mark a node": client.patch(f"/api/v1/nodes/{THERE}", label)
    }
    for what, notes in {
        "bind": {},
        "bind with claim": CLAIM,
        "bind with mounted": MOUNTED,
        "bind with place": PLACE,
    }.items():
        pod = await site.pod()
        body = binding(pod.rpartition("/")[2], HERE, notes)
        calls[what] = client.create(f"{pod}/binding", body)
    for what, node, change in (
        ("label a pod", HERE, label),
        ("claim here", HERE, annotated(CLAIM)),
        ("claim there", THERE, annotated(CLAIM)),
        ("mounted here", HERE, annotated(MOUNTED)),
        ("mounted there", THERE, annotated(MOUNTED)),
        ("place here", HERE, annotated({"isHealthy": "0"})),
    ):
        calls[what] = client.patch(await site.pod(node=node), change)
    return calls


async def is_allowed(attempt: Awaitable[Any]) -> bool:
    """Whether it is; what refuses it is a policy."""
    try:
        await attempt
    except ApiStatusError as error:
        if "ValidatingAdmissionPolicy" not in error.message:
            raise
        return False
    return True


@asynccontextmanager
async def accounts(
    cluster: BareCluster, folder: Path
) -> AsyncIterator[Mapping[Account, ApiClient]]:
    """Have the accounts and rights of a kustomization while the context lasts.

    Beside them agents and extenders of both namespaces.
    """
    shown = yaml.safe_load_all(cluster.kubectl("kustomize", folder))
    access = [each for each in shown if each["kind"] in _ACCESS]
    ours = [each["metadata"] for each in access if each["kind"] == "ServiceAccount"]
    found = {(each["namespace"], each["name"]) for each in ours}
    everybody = sorted(found | {(n, a) for n in (HOME, OTHER) for a in MAY})
    missing = [_service_account(*who) for who in everybody if who not in found]
    applied = yaml.safe_dump_all([*access, *missing, *_people(everybody)])
    cluster.kubectl("apply", "-f", "-", stdin=applied)
    try:
        async with AsyncExitStack() as stack:
            yield {
                who: await stack.enter_async_context(await _client(cluster, *who))
                for who in everybody
            }
    finally:
        cluster.kubectl("delete", "-f", "-", stdin=applied)
        for place in (HOME, OTHER):
            cluster.kubectl("delete", "pods", "-n", place, "--all", "--force")


def _people(everybody: list[Account]) -> list[Object]:
    """The rights of people, for all of them."""
    rules = [
        {"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["patch"]},
        {"apiGroups": [""], "resources": ["pods/binding"], "verbs": ["create"]},
    ]
    meta = {"name": "people"}
    role = {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": meta}
    subjects = [
        {"kind": "ServiceAccount", "namespace": namespace, "name": name}
        for namespace, name in everybody
    ]
    return [
        role | {"rules": rules},
        role
        | {"kind": "ClusterRoleBinding", "subjects": subjects}
        | {"roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": "people"}},
    ]


def _service_account(namespace: str, name: str) -> Object:
    meta = {"namespace": namespace, "name": name}
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}


async def _client(cluster: BareCluster, namespace: str, name: str) -> ApiClient:
    """A client with an account's token, once its rights are in force."""
    user = f"system:serviceaccount:{namespace}:{name}"
    asked = {"group": "", "resource": "pods", "subresource": "binding"}
    asked["verb"] = "create"

    async def may() -> bool:
        spec = {"user": user, "resourceAttributes": asked}
        body = {"spec": spec, "kind": "SubjectAccessReview"}
        body["apiVersion"] = "authorization.k8s.io/v1"
        return bool((await cluster.api.create(_REVIEWS, body))["status"]["allowed"])

    await until(may, f"the rights of {user}")
    token = (
        await policed.agents_token(cluster, HERE, namespace)
        if name == AGENT
        else await policed.token(cluster, name, namespace=namespace)
    )
    return ApiClient(cluster.api_url, token, authority=cluster.authority)
