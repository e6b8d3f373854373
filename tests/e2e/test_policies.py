"""Who may write what on NPU pods, asked of a real API server."""

import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
import yaml

from sandbox.apiclient import ApiStatusError, Object
from tests.e2e import npu_nodes, policed
from tests.e2e.bare import free_port, until
from tests.e2e.places import REPOSITORY
from tests.e2e.policed import NODES, Site, annotated, binding, refusal
from tests.support.objects import PODS

pytestmark = pytest.mark.asyncio(loop_scope="module")

HERE, THERE = NODES
CHIPS = "huawei.com/Ascend910"
CLAIM = {
    CHIPS: "Ascend910-0",
    "predicate-time": "7",
    "ascend.kubectl.kubernetes.io/ascend-910-configuration": "{}",
}
REAL = {"huawei.com/AscendReal": "Ascend910-0", "huawei.com/kltDev": "Ascend910-0"}
PLACE = {
    "distributed-job": "true",
    "isHealthy": "0",
    "isSharedTor": "1",
    "sharedTorIp": "10.0.0.1",
    "super-pod-id": "1",
    "super-pod-rank": "0",
}
RANK = {"hccl/rankIndex": "0"}
OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "x"}
SYSTEM = "/api/v1/namespaces/kube-system"
_POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
EVENTS = "/api/v1/namespaces/default/events"
#: Resources of which claims are made.
DEVICES = (CHIPS, "huawei.com/Ascend310P", "huawei.com/npu", "huawei.com/Ascend910-4c")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site() -> AsyncIterator[Site]:
    async with policed.policed() as site:
        yield site


@pytest.mark.parametrize("key", [*DEVICES[1:], *CLAIM, *REAL, *PLACE])
async def test_nobody_makes_a_pod_that_says_which_chips_it_has(
    site: Site, key: str
) -> None:
    told = await refusal(site.pod({key: "Ascend910-0"}))

    assert told.startswith("'ascend-claims'")
    assert told.endswith(f": leave out {key}")


async def test_a_refusal_says_what_to_do(site: Site) -> None:
    told, _, keys = (await refusal(site.pod(CLAIM))).partition(": leave out ")

    assert told == (
        "'ascend-claims' with binding 'ascend-claims' denied request: only the Ascend "
        "scheduler, and the agent of the node that a pod is bound to, say which NPU "
        "chips the pod is to have"
    )
    assert {*keys.split(", ")} == {*CLAIM}


@pytest.mark.core("policies")
@pytest.mark.parametrize("key", [*CLAIM, *REAL, *PLACE])
async def test_nobody_gives_a_pod_that_is_there_other_chips(
    site: Site, key: str
) -> None:
    pod = await site.pod(node=HERE)

    for path in (pod, f"{pod}/status"):
        await refusal(site.user.patch(path, annotated({key: "x"})))


async def test_nobody_takes_a_claim_away_or_changes_it(site: Site) -> None:
    pod = await site.claimed(CLAIM)

    for text in (None, "Ascend910-1"):
        await refusal(site.user.patch(pod, annotated({CHIPS: text})))
        await refusal(site.user.patch(f"{pod}/status", annotated({CHIPS: text})))


async def test_what_stands_there_may_stay(site: Site) -> None:
    pod = await site.claimed(CLAIM)
    body = await site.user.get(pod)
    body["metadata"]["labels"] = {"note": "here"}

    changed = await site.user.request("PUT", pod, body=body)
    patched = await site.user.patch(pod, annotated({**CLAIM, "note": "too"}))

    assert changed["metadata"]["annotations"] == CLAIM
    assert patched["metadata"]["annotations"] == {**CLAIM, "note": "too"}


@pytest.mark.parametrize("way", ["pods/{}/binding", "bindings"])
async def test_only_the_extender_writes_a_claim_with_a_binding(
    site: Site, way: str
) -> None:
    name = (await site.pod()).rpartition("/")[2]
    path = f"/api/v1/namespaces/default/{way.format(name)}"

    for notes in (CLAIM, REAL, PLACE, RANK):
        await refusal(site.user.create(path, binding(name, HERE, notes)))
    await refusal(site.bind(f"{PODS}/{name}", HERE, REAL))

    await site.user.create(path, binding(name, HERE))  # as other schedulers do


async def test_the_extender_binds_and_the_agent_of_that_node_corrects(
    site: Site,
) -> None:
    pod = await site.pod()
    decided = {**CLAIM, **PLACE, **RANK}

    await site.bind(pod, HERE, decided)
    done = {CHIPS: "Ascend910-3", "predicate-time": "18446744073709551615", **REAL}
    await site.agents[HERE].patch(pod, annotated(done))

    found = (await site.user.get(pod))["metadata"]["annotations"]
    assert found == {**decided, **done}


@pytest.mark.parametrize("notes", [CLAIM, REAL])
async def test_an_agent_writes_on_no_pod_of_another_node(
    site: Site, notes: dict[str, str]
) -> None:
    elsewhere, nowhere = await site.pod(node=THERE), await site.pod()

    for pod in (elsewhere, nowhere):
        await refusal(site.agents[HERE].patch(pod, annotated(notes)))
        await refusal(site.stray.patch(pod, annotated(notes)))


@pytest.mark.parametrize(
    "change",
    [
        annotated(RANK),
        annotated({"isHealthy": "1"}),
        annotated({"of-another": "x"}),
        {"metadata": {"labels": {"app": "x"}}},
        {"metadata": {"finalizers": ["example.com/stay"]}},
        {"metadata": {"ownerReferences": [OWNER]}},
        {"spec": {"activeDeadlineSeconds": 1}},
    ],
    ids=str,
)
async def test_an_agent_changes_nothing_else_of_a_pod(
    site: Site, change: Object
) -> None:
    pod = await site.pod(node=HERE)

    await refusal(site.agents[HERE].patch(pod, change))


async def test_an_agent_puts_no_other_image_into_a_pod(site: Site) -> None:
    pod = await site.pod(node=HERE)
    body = await site.user.get(pod)
    body["spec"]["containers"][0]["image"] = "theirs"

    await refusal(site.agents[HERE].patch(pod, {"spec": body["spec"]}))


async def test_an_agent_marks_its_own_node_only(site: Site) -> None:
    marks = {"metadata": {"labels": {"accelerator": "huawei-Ascend910"}}}

    await site.agents[HERE].patch(f"/api/v1/nodes/{HERE}", marks)

    await refusal(site.agents[HERE].patch(f"/api/v1/nodes/{THERE}", marks))
    await refusal(site.stray.patch(f"/api/v1/nodes/{HERE}", marks))


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}},
        {"metadata": {"labels": {"kubernetes.io/hostname": None}}},
        {"metadata": {"annotations": {"ascend-affinity/more-free-at": "1"}}},
        {"spec": {"unschedulable": True}},
        {"spec": {"taints": [{"key": "x", "effect": "NoExecute"}]}},
    ],
    ids=str,
)
async def test_an_agent_changes_nothing_else_of_its_node(
    site: Site, change: Object
) -> None:
    await refusal(site.agents[HERE].patch(f"/api/v1/nodes/{HERE}", change))


async def test_an_agent_writes_its_own_configmap_only(site: Site) -> None:
    configs = f"{SYSTEM}/configmaps"
    theirs = f"{configs}/mindx-dl-deviceinfo-{THERE}"
    mine = f"{configs}/mindx-dl-deviceinfo-{HERE}"
    agent = site.agents[HERE]

    await agent.patch(mine, {"data": {"x": "y"}})
    await refusal(agent.patch(theirs, {"data": {"x": "y"}}))
    await refusal(agent.create(configs, {"metadata": {"name": "coredns"}}))
    await refusal(site.stray.patch(mine, {"data": {"x": "y"}}))
    await site.user.delete(mine)
    await agent.create(configs, {"metadata": {"name": f"mindx-dl-deviceinfo-{HERE}"}})


async def test_an_agent_tells_of_its_own_node_only(site: Site) -> None:
    def event(host: str) -> Object:
        return {
            "metadata": {"generateName": "told-"},
            "involvedObject": {"kind": "Pod", "namespace": "default", "name": "x"},
            "source": {"component": "ascend-agent", "host": host},
        }

    agent, theirs = site.agents[HERE], site.agents[THERE]

    made = await agent.create(EVENTS, event(HERE))
    path = f"{EVENTS}/{made['metadata']['name']}"
    await agent.patch(path, {"count": 2})

    await refusal(agent.create(EVENTS, event(THERE)))
    await refusal(theirs.patch(path, {"message": "no"}))
    await refusal(theirs.patch(path, {"source": {"host": THERE}}))


async def test_a_kubelet_writes_what_it_always_wrote(site: Site) -> None:
    pod = await site.claimed(CLAIM)
    kubelet = site.kubelets[HERE]
    running = {"metadata": {}, "status": {"phase": "Running"}}

    told = await kubelet.patch_status(pod, running)

    assert (told["status"]["phase"], told["metadata"]["annotations"]) == (
        "Running",
        CLAIM,
    )
    await refusal(kubelet.patch_status(pod, annotated({**CLAIM, **REAL})))


async def test_an_operator_numbers_its_pods_once(site: Site) -> None:
    """Ascend operator does so on pods that it has found bound."""
    early, late = await site.pod(RANK), await site.pod(node=HERE)

    await site.user.patch(late, annotated(RANK))

    for pod in (early, late):
        await refusal(site.user.patch(pod, annotated({"hccl/rankIndex": "1"})))
    # Whoever binds it knows better.
    await site.bind(early, HERE, {"hccl/rankIndex": "1"})


async def test_a_pod_that_asks_for_no_npus_is_nobodys_business(site: Site) -> None:
    pod = await site.pod({"isHealthy": "yes", "predicate-time": "now"}, count=0)

    await site.user.patch(pod, annotated({"isHealthy": "no"}))


async def test_init_containers_ask_as_well(site: Site) -> None:
    body = npu_nodes.pod("with-init")
    asking = npu_nodes.pod("asking", 1)["spec"]["containers"][0]
    body["spec"]["initContainers"] = [{**asking, "name": "init"}]
    body["metadata"]["annotations"] = CLAIM

    await refusal(site.user.create(PODS, body))


async def test_every_way_onto_a_pod_is_watched(site: Site) -> None:
    """What the API server offers besides has nothing to do with annotations."""
    offered = (await site.user.get("/api/v1"))["resources"]
    writing = {
        each["name"]
        for each in offered
        if each["name"].partition("/")[0] in ("pods", "bindings")
        and {"create", "patch", "update"} & {*each["verbs"]}
    }
    policy = await site.user.get(f"{_POLICIES}/ascend-claims")
    (rule,) = policy["spec"]["matchConstraints"]["resourceRules"]
    connecting = {"pods/attach", "pods/exec", "pods/portforward", "pods/proxy"}
    ways = writing - connecting - {"pods/eviction"}
    since_1_33 = {"pods/resize"}

    assert {*rule["resources"]} in (ways, ways | since_1_33)


async def test_kubernetes_finds_no_fault_with_the_expressions(site: Site) -> None:
    cluster = site.cluster
    cluster.start(
        "kube-controller-manager",
        f"--kubeconfig={cluster.places.kubeconfig()}",
        "--controllers=validatingadmissionpolicy-status-controller",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        f"--secure-port={free_port()}",
    )

    async def are_checked() -> bool:
        found = await site.user.items(_POLICIES)
        return all("typeChecking" in each.get("status", {}) for each in found)

    await until(are_checked, "policies checked", within_s=120)
    found = await site.user.items(_POLICIES)
    assert {
        each["metadata"]["name"]: each["status"]["typeChecking"] for each in found
    } == {each["metadata"]["name"]: {} for each in found}
    assert len(found) == 7


async def test_an_extender_that_moves_pods_writes_only_what_a_move_needs(
    site: Site,
) -> None:
    rights = REPOSITORY / "daemonset" / "components" / "rescheduling" / "access.yaml"
    for each in yaml.safe_load_all(rights.read_text()):
        await site.user.create(_rights_of(each), each)
    pod = await site.pod()
    gone = {"type": "DisruptionTarget", "status": "True", "reason": "AscendFault"}
    ready = {"type": "Ready", "status": "True"}
    record = {"metadata": {"name": "ascend-move-0"}, "data": {"move": "{}"}}

    async def may() -> bool:
        try:
            await site.extender.patch(f"{pod}/status", _status(conditions=[gone]))
        except ApiStatusError:
            return False
        return True

    await until(may, "it may tell of a disruption", within_s=20)
    await site.extender.create(f"{SYSTEM}/configmaps", record)
    await site.extender.patch(f"{SYSTEM}/configmaps/ascend-move-0", {"data": {}})
    await site.extender.delete(f"{SYSTEM}/configmaps/ascend-move-0")

    for other in (
        _status(phase="Failed"),
        _status(reason="Evicted"),
        _status(message="it is not so"),
        _status(conditions=[gone, ready]),
        _status(conditions=[{**gone, "status": "False"}]),
        _status(conditions=[]),
    ):
        told = await refusal(site.extender.patch(f"{pod}/status", other))
        assert told.startswith("'ascend-extender-pods'")
    stranger = {"metadata": {"name": "coredns"}}
    told = await refusal(site.extender.create(f"{SYSTEM}/configmaps", stranger))
    assert told.startswith("'ascend-extender-configmaps'")


def _status(**fields: object) -> Object:
    return {"status": fields}


def _rights_of(each: Object) -> str:
    """Path below which an object about rights is made."""
    namespace = each["metadata"].get("namespace")
    below = f"namespaces/{namespace}/" if namespace else ""
    plural = f"{each['kind'].lower()}s"
    return f"/apis/rbac.authorization.k8s.io/v1/{below}{plural}"


async def test_another_make_can_be_let_in(site: Site) -> None:
    """The patch of docs/install.md."""
    others = "['system:serviceaccount:default:theirs', 'admin']"
    operation = {
        "op": "replace",
        "path": "/spec/variables/0/expression",
        "value": others,
    }
    target = {"kind": "ValidatingAdmissionPolicy", "name": "ascend-claims"}

    policed.apply(site.cluster, {"target": target, "patch": json.dumps([operation])})

    async def may() -> bool:
        try:
            pod = await site.pod({**CLAIM, **REAL, **PLACE})
        except ApiStatusError:
            return False
        await site.user.patch(pod, annotated({"huawei.com/kltDev": None}))
        return True

    await until(may, "they may", within_s=120)
