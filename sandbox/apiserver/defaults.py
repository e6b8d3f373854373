"""What the server fills in, so that a client gets back more than it sent.

Only what clients notice; each function changes the document that it is given.

Source: Kubernetes v1.36.3, `pkg/apis/core/v1/defaults.go`, the pods' `strategy.go`,
and the admission plugins DefaultTolerationSeconds, Priority and ServiceAccount.
"""

from sandbox.apiserver import jobs
from sandbox.apiserver.objects import Object, containers_of, metadata_of
from sandbox.apiserver.resources import Resource
from scheduler_core.wire import quantities

_EVICTION_AFTER_S = 300
_NODE_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_GATED = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
}
_COUNTS_OF_BUDGETS = (
    *("currentHealthy", "desiredHealthy"),
    *("disruptionsAllowed", "expectedPods"),
)
_EMPTIED = ("labels", "annotations", "ownerReferences", "finalizers")


def apply(resource: Resource, document: Object) -> None:
    """Fill in the defaults of `document`, at each write.

    Raises:
        QuantityError: A resource list holds something else than quantities.
    """
    document["apiVersion"] = resource.api_version
    document["kind"] = resource.kind
    _drop_empty(document.setdefault("metadata", {}), *_EMPTIED)
    match resource.kind:
        case "Pod":
            _pod(document)
        case "Node":
            _node(document)
        case "ConfigMap":
            _drop_empty(document, "data", "binaryData")
        case "Namespace":
            document.setdefault("spec", {}).setdefault("finalizers", ["kubernetes"])
        case "Event":
            _event(document)
        case "Job":
            jobs.default(document)
            _pod_spec(document["spec"]["template"])
        case _:
            pass


def on_create(resource: Resource, document: Object) -> None:
    """Set what only the server may say about a new object."""
    match resource.kind:
        case "Pod":
            document["metadata"]["generation"] = 1
            quality = quality_of_service(document)
            document["status"] = {"phase": "Pending", "qosClass": quality}
            if document["spec"].get("schedulingGates"):
                document["status"]["conditions"] = [dict(_GATED)]
            _admit(document)
        case "Namespace":
            document["status"] = {"phase": "Active"}
            labels = document["metadata"].setdefault("labels", {})
            labels["kubernetes.io/metadata.name"] = metadata_of(document)["name"]
        case "Node":
            document.setdefault("status", {})
        case "Job":
            jobs.on_create(document)
        case "PodDisruptionBudget":
            document["metadata"]["generation"] = 1
            document["status"] = dict.fromkeys(_COUNTS_OF_BUDGETS, 0)
        case _:
            pass


def quality_of_service(pod: Object) -> str:
    """Return a pod's class: Guaranteed, Burstable or BestEffort.

    Only CPU and memory count.
    """
    guaranteed, named = True, False
    for _, container in containers_of(pod):
        needs = container.get("resources") or {}
        limits, requests = needs.get("limits") or {}, needs.get("requests") or {}
        for name in ("cpu", "memory"):
            named = named or name in limits or name in requests
            same = requests.get(name, limits.get(name)) == limits.get(name)
            guaranteed = guaranteed and name in limits and same
    if not named:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _drop_empty(document: Object, *fields: str) -> None:
    for field in fields:
        if not document.get(field, True):
            del document[field]


def _pod(document: Object) -> None:
    _pod_spec(document)
    document["spec"].setdefault("enableServiceLinks", True)
    for _, container in containers_of(document):
        needs = container["resources"]
        if limits := needs.get("limits"):
            needs["requests"] = {**limits, **(needs.get("requests") or {})}


def _pod_spec(document: Object) -> None:
    """Fill in what a pod's spec does not say, and that in a template."""
    spec = document.setdefault("spec", {})
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("schedulerName", "default-scheduler")
    for _, container in containers_of(document):
        _container(container)


def _container(container: Object) -> None:
    container.setdefault("imagePullPolicy", _pull_policy(container.get("image", "")))
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    needs = container.setdefault("resources", {})
    for field in ("limits", "requests"):
        _canonical(needs, field)
    for variable in container.get("env") or ():
        reference = (variable.get("valueFrom") or {}).get("fieldRef")
        if reference is not None:
            reference.setdefault("apiVersion", "v1")


def _pull_policy(image: str) -> str:
    tag = image.rpartition("/")[2].partition("@")[0].partition(":")[2]
    latest = tag == "latest" or (not tag and "@" not in image)
    return "Always" if latest else "IfNotPresent"


def _canonical(owner: Object, field: str) -> None:
    if owner.get(field) is not None:
        owner[field] = {
            name: quantities.parse(value).canonical
            for name, value in sorted(owner[field].items())
        }


def _admit(pod: Object) -> None:
    spec = pod["spec"]
    spec.setdefault("priority", 0)
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
    spec.setdefault("serviceAccountName", "default")
    spec["serviceAccount"] = spec["serviceAccountName"]
    tolerate(spec)


def tolerate(spec: Object) -> None:
    """Let a pod stay a while on a node that is in trouble, unless it says otherwise.

    Also when it is changed: who replaces a pod does not take that away.
    """
    tolerations = spec.setdefault("tolerations", [])
    for key in _NODE_TAINTS:
        if not any(item.get("key") in {key, None} for item in tolerations):
            tolerations.append(
                {
                    "key": key,
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": _EVICTION_AFTER_S,
                }
            )


def _node(document: Object) -> None:
    document.setdefault("spec", {})
    status = document.setdefault("status", {})
    for field in ("capacity", "allocatable"):
        _canonical(status, field)
    if "capacity" in status:
        status.setdefault("allocatable", dict(status["capacity"]))


def _event(document: Object) -> None:
    document.setdefault("involvedObject", {})
    document.setdefault("source", {})
    for field in ("reportingComponent", "reportingInstance"):
        document.setdefault(field, "")
