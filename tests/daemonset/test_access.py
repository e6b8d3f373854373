"""The rights in the manifests are the calls of the code: none missing, none idle.

Two views, which must agree. The programs run through everything they do against an
API server that notes each call; and the source says which functions of `kube` a
program uses at all, so that a new one cannot be forgotten in the run.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from itertools import product
from typing import Any

import aiohttp
import pytest

from extender import app as extender_app
from extender.settings import Settings
from service.settings import load
from tests.agent.site import NODE, RESOURCE, Site, running_site
from tests.daemonset import calls
from tests.daemonset.rendered import Object, needs_kubectl, objects, of_kind
from tests.extender.gang.test_membership import CASES
from tests.support.objects import PODS, bind_args
from tests.support.tasks import in_background
from tests.support.until import equal, until

PROGRAMS = ("agent", "extender")
#: What each use of `kube` asks of the API server: verbs, and the resource.
ASKS = {
    "configmaps.create": ("create", "configmaps"),
    "configmaps.delete": ("delete", "configmaps"),
    "configmaps.find": ("list", "configmaps"),
    "configmaps.get": ("get", "configmaps"),
    "configmaps.patch": ("patch", "configmaps"),
    "events.Recorder": ("create patch", "events"),
    "kubelet_pods.pods": ("", "the kubelet's own API, only with --kubelet-url"),
    "leases.LeaseRequests": ("create get patch", "leases.coordination.k8s.io"),
    "nodes.find": ("list", "nodes"),
    "nodes.patch": ("patch", "nodes"),
    "podgroups.PodGroupRequests": ("", "Volcano's own, whose overlay has the right"),
    "pods.bind": ("create", "pods/binding"),
    "pods.delete": ("delete", "pods"),
    "pods.evict": ("create", "pods/eviction"),
    "pods.get": ("get", "pods"),
    "pods.patch_annotations": ("patch", "pods"),
    "pods.patch_disruption_target": ("patch", "pods/status"),
    "reflector.ListWatch(ConfigMap)": ("list watch", "configmaps"),
    "reflector.ListWatch(ManagedNode)": ("list watch", "nodes"),
    "reflector.ListWatch(Node)": ("list watch", "nodes"),
    "reflector.ListWatch(Pod)": ("list watch", "pods"),
    "workloads.WorkloadRequests": ("", "what makes jobs, of other groups"),
}
#: What both programs use.
SHARED = {
    "configmaps.create",
    "configmaps.patch",
    "events.Recorder",
    "nodes.patch",
    "pods.get",
    "pods.patch_annotations",
    "reflector.ListWatch(ConfigMap)",
    "reflector.ListWatch(Pod)",
}
USES = {
    "agent": {
        *SHARED,
        *("kubelet_pods.pods", "nodes.find", "reflector.ListWatch(ManagedNode)"),
    },
    "extender": {
        *SHARED,
        "reflector.ListWatch(Node)",
        *("leases.LeaseRequests", "workloads.WorkloadRequests"),
        *("podgroups.PodGroupRequests", "pods.bind", "pods.evict"),
        *("configmaps.delete", "configmaps.find", "configmaps.get"),
        *("pods.delete", "pods.patch_disruption_target"),
    },
}
#: API groups of what `kube` asks for by functions of its own; of others it reads jobs.
GROUPS = ("", "coordination.k8s.io")
#: Kinds of the training operators; all other groups have one kind that we read.
OPERATORS = {
    "kubeflow.org": {
        *("jaxjobs", "mpijobs", "paddlejobs"),
        *("pytorchjobs", "tfjobs", "xgboostjobs"),
    },
    "mindxdl.gitee.com": {"ascendjobs"},
}
#: A function could ask for it, but this program gives it no occasion.
IDLE = {
    # An event is patched when it is told again; that a pod was placed is told once.
    # A pod is patched for Volcano only, whose overlay has the right.
    # What jobs make of leaf switches is written with the component `tor-share` only.
    # Pods are evicted with the components `preemption` and `rescheduling` only, which
    # have the right; records of moves are kept with the latter.
    "extender": {
        ("create", "configmaps"),
        ("create", "pods/eviction"),
        ("delete", "configmaps"),
        ("delete", "pods"),
        ("get", "configmaps"),
        ("patch", "pods/status"),
        ("patch", "configmaps"),
        ("patch", "events"),
        ("patch", "pods"),
    },
    "agent": set[tuple[str, str]](),
}


def granted(program: str) -> set[tuple[str, str, str]]:
    """(verb, resource, namespace) that the manifests allow; "" is all of them."""
    return {
        (verb, f"{resource}.{group}".rstrip("."), namespace)
        for namespace, rule in _rules(program)
        for verb, group, resource in _rights(rule)
        if group in GROUPS
    }


def of_other_groups(program: str) -> set[tuple[str, str, str]]:
    """(verb, group, resource) outside the core that the manifests allow."""
    return {
        right
        for _, rule in _rules(program)
        for right in _rights(rule)
        if right[1] not in GROUPS
    }


def _rights(rule: Object) -> Iterator[tuple[str, str, str]]:
    """(verb, group, resource) of all that a rule allows."""
    return product(rule["verbs"], rule["apiGroups"], rule["resources"])


@needs_kubectl
def test_no_other_lease_than_its_own_is_written() -> None:
    rules = [
        (rule["verbs"], rule.get("resourceNames"))
        for _, rule in _rules("extender")
        if "leases" in rule["resources"]
    ]

    # what is to be created has no name yet that a rule could ask for
    assert rules == [(["create"], None), (["get", "patch"], ["ascend-extender"])]


def _rules(program: str) -> list[tuple[str, Object]]:
    """(namespace, rule) of what the program's account may do, by its bindings."""
    account = {"kind": "ServiceAccount", "name": f"ascend-{program}"}
    wanted = [
        each["roleRef"]
        for each in objects("base")
        if any(account.items() <= s.items() for s in each.get("subjects", []))
    ]
    roles = [of_kind("base", ref["kind"])[ref["name"]] for ref in wanted]
    return [
        (role["metadata"].get("namespace", ""), rule)
        for role in roles
        for rule in role["rules"]
    ]


def test_the_classes_that_ask_have_these_calls_only() -> None:
    assert calls.sending_methods() == {
        "events.Recorder": {"_create", "_count_up"},
        "leases.LeaseRequests": {"create", "get", "write"},
        "pager.Listing": {"_page"},
        "podgroups.PodGroupRequests": {"read", "write"},
        "reflector.ListWatch": {"_watch"},
        "workloads.WorkloadRequests": {"_ask_served", "_get"},
    }


@needs_kubectl
@pytest.mark.parametrize("program", PROGRAMS)
def test_rules_name_nothing_by_wildcard(program: str) -> None:
    assert "*" not in {verb for _, rule in _rules(program) for verb in rule["verbs"]}


@needs_kubectl
def test_of_other_groups_only_what_makes_jobs_is_read() -> None:
    """Group and resource stand in the paths of the table of jobs."""
    sources = [membership.size_source for _, membership in CASES.values()]
    paths = [source.path.split("/") for source in sources if source is not None]
    asked = {
        ("get", group, resource)
        for _, _, group, _, _, _, resource, _ in paths
        for resource in OPERATORS.get(group, {resource})
    }
    asked |= {("get", "mindxdl.gitee.com", "ascendjobs")}

    # the group by which the policies know accounts has no objects
    assert of_other_groups("agent") == {("serve", "ascend-affinity", "chips")}
    known_by = ("schedule", "ascend-affinity", "chips")
    assert of_other_groups("extender") == asked | {known_by}


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_programs_ask_through_these_functions_only(program: str) -> None:
    assert calls.uses(program) == USES[program]
    assert calls.own_requests(program) == []


@needs_kubectl
@pytest.mark.parametrize("program", PROGRAMS)
def test_rights_are_what_the_functions_ask_for(program: str) -> None:
    asked = {
        (verb, resource)
        for verbs, resource in (ASKS[use] for use in USES[program])
        for verb in verbs.split()
    }

    rights = {(verb, resource) for verb, resource, _ in granted(program)}

    assert rights == asked - IDLE[program]


@needs_kubectl
def test_for_volcano_pods_and_podgroups_may_be_patched_and_nothing_else() -> None:
    roles = of_kind("overlays/volcano", "ClusterRole")
    beside = roles.keys() - of_kind("base", "ClusterRole").keys()
    bindings = of_kind("overlays/volcano", "ClusterRoleBinding")

    assert beside == {"ascend-extender-volcano"}
    assert roles["ascend-extender-volcano"]["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["patch"]},
        {
            "apiGroups": ["scheduling.volcano.sh"],
            "resources": ["podgroups"],
            "verbs": ["patch"],
        },
    ]
    assert bindings["ascend-extender-volcano"]["subjects"] == [
        {
            "kind": "ServiceAccount",
            "name": "ascend-extender",
            "namespace": "kube-system",
        }
    ]


class Cluster:
    """One node with agent and extender, and an API server that notes their calls."""

    def __init__(self, site: Site, http: aiohttp.ClientSession, url: str) -> None:
        self.site = site
        self._http = http
        self._url = url

    async def filter(self, pod: Object) -> list[str]:
        found = await self._post("filter", {"Pod": pod, "NodeNames": [NODE]})
        names: list[str] = found["NodeNames"] or []
        return names

    async def bind(self, pod: Object) -> str:
        return str((await self._post("bind", bind_args(pod, NODE)))["Error"])

    async def _post(self, verb: str, body: Object) -> Any:
        async with self._http.post(f"{self._url}/{verb}", json=body) as answer:
            return await answer.json()

    async def create(self, name: str, count: int) -> Object:
        return await self.site.api.create(PODS, self.site.pod(name, count))

    async def until_called(self, program: str, verb: str, resource: str) -> None:
        await until(
            lambda: {(v, r) for v, r, _ in self.called(program)},
            lambda called: (verb, resource) in called,
        )

    def called(self, program: str) -> set[tuple[str, str, str]]:
        """(verb, resource, namespace) of all calls of a program."""
        return {
            (call.verb, call.resource, call.namespace)
            for call in self.site.server.calls
            if call.user == f"ascend-{program}"
        }


@pytest.fixture
async def cluster(collector: object) -> AsyncIterator[Cluster]:
    async with AsyncExitStack() as stack:
        told = ("--pod-name", "agent", "--pod-namespace", "kube-system")
        site = await stack.enter_async_context(running_site(*told))
        address = await _start_extender(stack, site)
        http = await stack.enter_async_context(aiohttp.ClientSession())

        async def is_ready() -> bool:
            async with http.get(f"{address}/readyz") as answer:
                return answer.ok

        await until(is_ready)
        yield Cluster(site, http, address)


async def _start_extender(stack: AsyncExitStack, site: Site) -> str:
    account = site.root / "extender"
    account.mkdir()
    (account / "token").write_text("user:ascend-extender")
    address = account / "address"
    arguments = [
        *("--api-server", site.server.url, "--listen", "127.0.0.1:0"),
        *("--service-account-dir", str(account), "--address-file", str(address)),
        *("--lease", "ascend-extender"),
    ]
    work = extender_app.main(load(Settings, arguments, {}))
    _ = await stack.enter_async_context(in_background(work))
    await until(address.exists)
    return f"http://{address.read_text().strip()}"


async def everything_that_they_do(cluster: Cluster) -> None:
    api = cluster.site.api
    # A pod is placed, served, confirmed.
    first = await cluster.create("first", 8)
    await until(lambda: cluster.filter(first), equal([NODE]))
    assert await cluster.bind(first) == ""
    await until(lambda: _is_served(cluster, "first"))
    # A bind of a pod that no watch has brought.
    unseen = {"name": "unseen", "namespace": "default", "uid": "none"}
    assert await cluster.bind({"metadata": unseen}) == "the pod is gone"
    # A pod finds no room, and is tried again when there is some.
    other = first | {"metadata": first["metadata"] | {"uid": "another", "name": "b"}}
    await until(lambda: cluster.filter(other), equal([]))
    await api.delete(f"{PODS}/first")
    await cluster.until_called("extender", "patch", "nodes")
    await until(lambda: _is_empty(cluster))
    # A claim that cannot be read is told, and the same again.
    await cluster.site.bind("second", 1)
    for _ in range(2):
        await until(lambda: _is_served(cluster, "second"))
        note = {"metadata": {"annotations": {RESOURCE: "nonsense"}}}
        await api.patch(f"{PODS}/second", note)
    await cluster.until_called("agent", "patch", "events")
    await cluster.until_called("extender", "create", "events")


async def _is_empty(cluster: Cluster) -> bool:
    return not cluster.site.mounted() and not await cluster.site.problems()


async def _is_served(cluster: Cluster, name: str) -> bool:
    return name in cluster.site.mounted() and not await cluster.site.problems()


@needs_kubectl
async def test_no_right_is_missing_idle_or_too_wide(cluster: Cluster) -> None:
    await everything_that_they_do(cluster)

    for program in PROGRAMS:
        rights, called = granted(program), cluster.called(program)
        covering = {
            call: {right for right in rights if _covers(right, call)} for call in called
        }
        assert [call for call, by in covering.items() if not by] == []
        assert sorted(rights - {r for by in covering.values() for r in by}) == []
        # A right in all namespaces that is used in kube-system only is too wide.
        assert [
            right
            for right in rights
            if right[2] == ""
            and {call[2] for call in called if _covers(right, call)} == {"kube-system"}
        ] == []


def _covers(right: tuple[str, str, str], call: tuple[str, str, str]) -> bool:
    return right[:2] == call[:2] and right[2] in ("", call[2])
