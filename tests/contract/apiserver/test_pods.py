import pytest

from tests.contract.apiserver.client import (
    STRATEGIC,
    Api,
    Object,
    binding,
    pod,
    problem,
)

pytestmark = pytest.mark.contract

NPU = "huawei.com/Ascend910"


def _asking(name: str, resources: Object) -> Object:
    container = {"name": "main", "image": "example/image:1", "resources": resources}
    return pod(name, spec={"containers": [container]})


async def test_a_new_pod_is_pending_and_has_defaults(api: Api) -> None:
    made = await api.create("pods", pod("p", status={"phase": "Running"}))

    spec, container = made["spec"], made["spec"]["containers"][0]
    assert made["status"]["phase"] == "Pending"
    assert made["status"]["qosClass"] == "BestEffort"
    assert made["metadata"]["generation"] == 1
    assert spec["restartPolicy"] == "Always"
    assert spec["schedulerName"] == "default-scheduler"
    assert spec["terminationGracePeriodSeconds"] == 30
    assert spec["priority"] == 0
    assert container["imagePullPolicy"] == "IfNotPresent"
    assert "nodeName" not in spec
    assert [t["key"] for t in spec["tolerations"]] == [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ]


async def test_limits_become_requests_and_numbers_become_text(api: Api) -> None:
    limits = {NPU: 2, "cpu": "2000m", "memory": "1024Mi"}

    made = await api.create("pods", _asking("p", {"limits": limits}))

    canonical = {NPU: "2", "cpu": "2", "memory": "1Gi"}
    resources = made["spec"]["containers"][0]["resources"]
    assert resources == {"limits": canonical, "requests": canonical}
    assert made["status"]["qosClass"] == "Guaranteed"


@pytest.mark.parametrize(
    ("resources", "cause"),
    [
        ({"requests": {NPU: "1"}}, "FieldValueRequired"),
        ({"requests": {NPU: "1"}, "limits": {NPU: "2"}}, "FieldValueInvalid"),
        ({"limits": {NPU: "1500m"}}, "FieldValueInvalid"),
        ({"limits": {NPU: "-1"}}, "FieldValueInvalid"),
    ],
)
async def test_extended_resources_are_whole_and_requests_equal_limits(
    api: Api, resources: Object, cause: str
) -> None:
    code, status = await api.post("pods", _asking("p", resources))

    assert (code, status["reason"]) == (422, "Invalid")
    assert status["details"]["causes"][0]["reason"] == cause


async def test_a_pod_needs_a_container_with_name_and_image(api: Api) -> None:
    none, status = await api.post("pods", pod("p", spec={"containers": []}))
    empty, other = await api.post("pods", pod("p", spec={"containers": [{}]}))

    assert (none, empty) == (422, 422)
    assert status["message"] == ('Pod "p" is invalid: spec.containers: Required value')
    assert {cause["field"] for cause in other["details"]["causes"]} == {
        "spec.containers[0].name",
        "spec.containers[0].image",
    }


async def test_two_containers_of_one_name_are_refused(api: Api) -> None:
    twin = {"name": "main", "image": "example/image:1"}

    code, status = await api.post("pods", pod("p", spec={"containers": [twin, twin]}))

    assert code == 422
    assert status["details"]["causes"] == [
        {
            "reason": "FieldValueDuplicate",
            "message": 'Duplicate value: "main"',
            "field": "spec.containers[1].name",
        }
    ]


async def test_binding_sets_node_annotations_and_labels_at_once(
    api: Api, node: str
) -> None:
    mine = {"annotations": {"kept": "1", "over": "1"}, "labels": {"kept": "1"}}
    made = await api.create("pods", pod("p", metadata=mine))
    body = binding(
        "p",
        node,
        uid=made["metadata"]["uid"],
        annotations={"over": "2", "new": "2"},
        labels={"new": "2"},
    )

    code, status = await api.post("pods/p/binding", body)
    _, bound = await api.get("pods/p")

    assert code == 201
    assert status == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "code": 201,
    }
    assert bound["spec"]["nodeName"] == node
    assert bound["metadata"]["annotations"] == {"kept": "1", "over": "2", "new": "2"}
    assert bound["metadata"]["labels"]["new"] == "2"
    assert bound["metadata"]["labels"]["kept"] == "1"
    scheduled = bound["status"]["conditions"][0]
    assert (scheduled["type"], scheduled["status"]) == ("PodScheduled", "True")


async def test_binding_a_bound_pod_is_a_conflict(api: Api, node: str) -> None:
    await api.bound(node)

    _, status = await api.post("pods/p/binding", binding("p", "x"))

    assert problem(status) == (
        409,
        "Conflict",
        (
            'Operation cannot be fulfilled on pods/binding "p": '
            f'pod p is already assigned to node "{node}"'
        ),
    )


async def test_binding_another_pod_of_that_name_is_a_conflict(
    api: Api, node: str
) -> None:
    await api.create("pods", pod("p"))

    code, status = await api.post("pods/p/binding", binding("p", node, uid="another"))
    _, after = await api.get("pods/p")

    assert (code, status["reason"]) == (409, "Conflict")
    assert "UID in precondition: another" in status["message"]
    assert "nodeName" not in after["spec"]


async def test_a_gated_pod_cannot_be_bound(api: Api, node: str) -> None:
    gates = [{"name": "example.com/wait"}]
    await api.create("pods", pod("p", spec={"schedulingGates": gates}))

    code, status = await api.post("pods/p/binding", binding("p", node))

    assert code == 409
    assert "pod p has non-empty .spec.schedulingGates" in status["message"]


async def test_a_pods_image_may_change_and_its_generation_counts_it(api: Api) -> None:
    await api.create("pods", pod("p"))
    image = {"spec": {"containers": [{"name": "main", "image": "example/image:2"}]}}

    code, patched = await api.patch("pods/p", image, STRATEGIC)

    assert (code, patched["metadata"]["generation"]) == (200, 2)
    assert patched["spec"]["containers"][0]["image"] == "example/image:2"


async def test_status_is_changed_through_its_subresource_only(
    api: Api, node: str
) -> None:
    await api.bound(node)
    running = {"status": {"phase": "Running", "podIP": "192.0.2.7"}}

    _, ignored = await api.patch("pods/p", running)
    code, written = await api.patch("pods/p/status", running)

    assert ignored["status"]["phase"] == "Pending"
    assert (code, written["status"]["phase"]) == (200, "Running")
    assert written["status"]["podIP"] == "192.0.2.7"
    assert written["status"]["qosClass"] == "BestEffort"


async def test_a_status_update_leaves_the_spec_alone(api: Api) -> None:
    made = await api.create("pods", pod("p"))
    made["spec"]["schedulerName"] = "mine"
    made["status"]["message"] = "said"
    made["metadata"]["annotations"] = {"k": "v"}

    code, written = await api.put("pods/p/status", made)

    assert code == 200
    assert written["spec"]["schedulerName"] == "default-scheduler"
    assert written["status"]["message"] == "said"
    assert written["metadata"]["annotations"] == {"k": "v"}


async def test_a_pod_without_a_node_is_deleted_at_once(api: Api) -> None:
    await api.create("pods", pod("p"))

    code, deleted = await api.delete("pods/p")
    gone, _ = await api.get("pods/p")

    assert (code, deleted["kind"], gone) == (200, "Pod", 404)


async def test_a_pod_on_a_node_goes_when_its_kubelet_says_so(
    api: Api, node: str
) -> None:
    bound = await api.bound(node)

    code, marked = await api.delete("pods/p")
    _, waiting = await api.get("pods/p")
    last, _ = await api.delete(
        "pods/p",
        {"gracePeriodSeconds": 0, "preconditions": {"uid": bound["metadata"]["uid"]}},
    )
    gone, _ = await api.get("pods/p")

    assert (code, last, gone) == (200, 200, 404)
    assert waiting["metadata"] == marked["metadata"]
    assert waiting["metadata"]["deletionGracePeriodSeconds"] == 30
    assert (
        waiting["metadata"]["deletionTimestamp"]
        > bound["metadata"]["creationTimestamp"]
    )
    assert waiting["metadata"]["generation"] == 2


async def test_a_grace_period_is_shortened_never_lengthened(
    api: Api, node: str
) -> None:
    await api.bound(node)
    path = "pods/p"

    seen = []
    for grace_s in (20, 25, 5):
        await api.delete(path, {"gracePeriodSeconds": grace_s})
        _, waiting = await api.get(path)
        seen.append(waiting["metadata"]["deletionGracePeriodSeconds"])
    await api.delete(path, {"gracePeriodSeconds": 0})

    assert seen == [20, 20, 5]


async def test_a_pods_own_grace_period_is_the_default(api: Api, node: str) -> None:
    await api.bound(node, spec={"terminationGracePeriodSeconds": 7})

    _, marked = await api.delete("pods/p")
    await api.delete("pods/p", {"gracePeriodSeconds": 0})

    assert marked["metadata"]["deletionGracePeriodSeconds"] == 7


async def test_a_pod_that_has_ended_is_deleted_at_once(api: Api, node: str) -> None:
    await api.bound(node)
    await api.patch("pods/p/status", {"status": {"phase": "Failed"}})

    await api.delete("pods/p")
    gone, _ = await api.get("pods/p")

    assert gone == 404


async def test_a_pod_being_deleted_cannot_be_bound(api: Api, node: str) -> None:
    waiting = pod("p", metadata={"finalizers": ["example.com/wait"]})
    await api.create("pods", waiting)
    await api.delete("pods/p")

    code, status = await api.post("pods/p/binding", binding("p", node))
    await api.patch("pods/p", {"metadata": {"finalizers": None}})
    gone, _ = await api.get("pods/p")

    assert (code, gone) == (409, 404)
    assert "pod p is being deleted, cannot be assigned to a host" in status["message"]


async def test_a_pod_can_be_replaced_by_its_manifest(api: Api) -> None:
    made = await api.create("pods", pod("p"))

    code, replaced = await api.put("pods/p", pod("p"))

    assert code == 200, replaced
    assert replaced["spec"] == made["spec"]
