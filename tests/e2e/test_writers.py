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
_OURS = {"group": "ascend-affinity", "resource": "chips"}
#: {account of an installation: the right by which the policies know it}
RIGHTS = {AGENT: _OURS | {"verb": "serve"}, EXTENDER: _OURS | {"verb": "schedule"}}
_BINDS = {"resource": "pods", "subresource": "binding", "verb": "create"}
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


@pytest.mark.parametrize("form", ["home", "moved"])
@pytest.mark.parametrize("installation", INSTALLATIONS)
async def test_its_writers_may_write_and_nobody_else(
    site: Site, tmp_path: Path, installation: str, form: str
) -> None:
    folder = installations.write(tmp_path, installation, form)
    writers = {(FORMS[form], name) for name in WRITERS[installation]}

    async with accounts(site.cluster, folder, writers) as clients:
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
    cluster: BareCluster, folder: Path, writers: set[Account]
) -> AsyncIterator[Mapping[Account, ApiClient]]:
    """Have the accounts and rights of a kustomization while the context lasts.

    Beside them agents and extenders of both namespaces. The policies stay.
    """
    shown = [*yaml.safe_load_all(cluster.kubectl("kustomize", folder))]
    policies = [each for each in shown if each["kind"].startswith("Validating")]
    access = [each for each in shown if each["kind"] in _ACCESS]
    ours = [each["metadata"] for each in access if each["kind"] == "ServiceAccount"]
    found = {(each["namespace"], each["name"]) for each in ours}
    everybody = sorted(found | {(n, a) for n in (HOME, OTHER) for a in MAY})
    missing = [_service_account(*who) for who in everybody if who not in found]
    rights = [*access, *missing, *_people(everybody)]
    applied = yaml.safe_dump_all([*policies, *rights])
    cluster.kubectl("apply", "-f", "-", stdin=applied)
    try:
        await _in_force(cluster, everybody, writers)
        async with AsyncExitStack() as stack:
            yield {
                who: await stack.enter_async_context(await _client(cluster, *who))
                for who in everybody
            }
    finally:
        cluster.kubectl("delete", "-f", "-", stdin=yaml.safe_dump_all(rights))
        cluster.kubectl("delete", "pods", "-A", "--all", "--force")


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


async def _in_force(
    cluster: BareCluster, everybody: list[Account], writers: set[Account]
) -> None:
    """Wait until the authorizer has the rights of all accounts."""

    async def have_come() -> bool:
        for namespace, name in everybody:
            user = f"system:serviceaccount:{namespace}:{name}"
            is_writer = (namespace, name) in writers
            if not await _has_right(cluster, user, _BINDS):
                return False
            for account, right in RIGHTS.items():
                expected = is_writer and account == name
                if await _has_right(cluster, user, right) != expected:
                    return False
        return True

    await until(have_come, "the rights that were applied")


async def _has_right(cluster: BareCluster, user: str, right: Mapping[str, str]) -> bool:
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "resourceAttributes": {**right}},
    }
    return bool((await cluster.api.create(_REVIEWS, body))["status"]["allowed"])


async def _client(cluster: BareCluster, namespace: str, name: str) -> ApiClient:
    """A client with an account's token; the agent's is bound to a pod of HERE."""
    token = (
        await policed.agents_token(cluster, HERE, namespace)
        if name == AGENT
        else await policed.token(cluster, name, namespace=namespace)
    )
    return ApiClient(cluster.api_url, token, authority=cluster.authority)
