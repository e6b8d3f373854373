"""The rows of everything that is no pod.

Source: Kubernetes v1.36.3, `pkg/printers/internalversion/printers.go`.
"""

from typing import Any

from sandbox.apiserver.objects import Object
from sandbox.apiserver.tables import ages
from sandbox.apiserver.tables.columns import AGE, CONTAINERS, IMAGES, NAME, Column

_NONE = "<none>"
_UNKNOWN = "<unknown>"
_ROLE_PREFIX = "node-role.kubernetes.io/"
_ROLE = "kubernetes.io/role"
_NODE_STATUS = "api.core.v1.NodeStatus"
_NODE_INFO = "api.core.v1.NodeSystemInfo"
_EVENT = "api.core.v1.Event"

NODE_COLUMNS = (
    NAME,
    Column(name="Status", text="The status of the node"),
    Column(name="Roles", text="The roles of the node"),
    AGE,
    Column(name="Version", of=(_NODE_INFO, "kubeletVersion")),
    Column(name="Internal-IP", is_wide=True, of=(_NODE_STATUS, "addresses")),
    Column(name="External-IP", is_wide=True, of=(_NODE_STATUS, "addresses")),
    Column(name="OS-Image", is_wide=True, of=(_NODE_INFO, "osImage")),
    Column(name="Kernel-Version", is_wide=True, of=(_NODE_INFO, "kernelVersion")),
    Column(
        name="Container-Runtime",
        is_wide=True,
        of=(_NODE_INFO, "containerRuntimeVersion"),
    ),
)
NAMESPACE_COLUMNS = (
    NAME,
    Column(name="Status", text="The status of the namespace"),
    AGE,
)
CONFIG_MAP_COLUMNS = (
    NAME,
    Column(name="Data", of=("api.core.v1.ConfigMap", "data")),
    AGE,
)
LEASE_COLUMNS = (
    NAME,
    Column(name="Holder", of=("api.coordination.v1.LeaseSpec", "holderIdentity")),
    AGE,
)
BUDGET_COLUMNS = (
    NAME,
    Column(
        name="Min Available",
        text="The minimum number of pods that must be available.",
    ),
    Column(
        name="Max Unavailable",
        text="The maximum number of pods that may be unavailable.",
    ),
    Column(
        name="Allowed Disruptions",
        type="integer",
        text="Calculated number of pods that may be disrupted at this time.",
    ),
    AGE,
)
EVENT_COLUMNS = (
    Column(name="Last Seen", of=(_EVENT, "lastTimestamp")),
    Column(name="Type", of=(_EVENT, "type")),
    Column(name="Reason", of=(_EVENT, "reason")),
    Column(name="Object", of=(_EVENT, "involvedObject")),
    Column(
        name="Subobject",
        is_wide=True,
        of=("api.core.v1.ObjectReference", "fieldPath"),
    ),
    Column(name="Source", is_wide=True, of=(_EVENT, "source")),
    Column(name="Message", of=(_EVENT, "message")),
    Column(name="First Seen", is_wide=True, of=(_EVENT, "firstTimestamp")),
    Column(name="Count", is_wide=True, of=(_EVENT, "count")),
    Column(name="Name", is_wide=True, format="name", of=NAME.of),
)

_DAEMONS = "api.apps.v1.DaemonSetStatus"
_REPLICAS = "api.apps.v1.DeploymentStatus"
# Of workloads, which are listed and never there, only columns are drawn.
DAEMON_SET_COLUMNS = (
    NAME,
    Column(name="Desired", type="integer", of=(_DAEMONS, "desiredNumberScheduled")),
    Column(name="Current", type="integer", of=(_DAEMONS, "currentNumberScheduled")),
    Column(name="Ready", type="integer", of=(_DAEMONS, "numberReady")),
    Column(name="Up-to-date", type="integer", of=(_DAEMONS, "updatedNumberScheduled")),
    Column(name="Available", type="integer", of=(_DAEMONS, "numberAvailable")),
    Column(name="Node Selector", of=("api.core.v1.PodSpec", "nodeSelector")),
    AGE,
    CONTAINERS,
    IMAGES,
    Column(name="Selector", is_wide=True, of=("api.apps.v1.DaemonSetSpec", "selector")),
)
DEPLOYMENT_COLUMNS = (
    NAME,
    Column(name="Ready", text="Number of the pod with ready state"),
    Column(name="Up-to-date", of=(_REPLICAS, "updatedReplicas")),
    Column(name="Available", of=(_REPLICAS, "availableReplicas")),
    AGE,
    CONTAINERS,
    IMAGES,
    Column(
        name="Selector", is_wide=True, of=("api.apps.v1.DeploymentSpec", "selector")
    ),
)


def node(document: Object, _now_s: float) -> list[Any]:
    """Return the cells of a node's row."""
    status = document.get("status") or {}
    told = status.get("nodeInfo") or {}
    kernel = told.get("kernelVersion") or _UNKNOWN
    if told.get("architecture"):
        kernel += f" ({told['architecture']})"
    return [
        _node_state(document, status),
        ",".join(_roles(document)) or _NONE,
        told.get("kubeletVersion", ""),
        _address(status, "InternalIP"),
        _address(status, "ExternalIP"),
        told.get("osImage") or _UNKNOWN,
        kernel,
        told.get("containerRuntimeVersion") or _UNKNOWN,
    ]


def namespace(document: Object, _now_s: float) -> list[Any]:
    """Return the cells of a namespace's row."""
    return [(document.get("status") or {}).get("phase", "")]


def config_map(document: Object, _now_s: float) -> list[Any]:
    """Return the cells of a ConfigMap's row."""
    return [sum(len(document.get(part) or ()) for part in ("data", "binaryData"))]


def nothing(_document: Object, _now_s: float) -> list[Any]:
    """Return no cells: for a kind without any, or one that there never is."""
    return []


def lease(document: Object, _now_s: float) -> list[Any]:
    """Return the cells of a lease's row."""
    return [(document.get("spec") or {}).get("holderIdentity") or ""]


def budget(document: Object, _now_s: float) -> list[Any]:
    """Return the cells of a disruption budget's row."""
    spec = document.get("spec") or {}
    allowed = (document.get("status") or {}).get("disruptionsAllowed", 0)
    bounds = [str(spec.get(key, "N/A")) for key in ("minAvailable", "maxUnavailable")]
    return [*bounds, allowed]


def event(document: Object, now_s: float) -> list[Any]:
    """Return the cells of an event's row."""
    first = document.get("firstTimestamp") or document.get("eventTime")
    last, count = document.get("lastTimestamp") or first, document.get("count") or 1
    if series := document.get("series"):
        last, count = series.get("lastObservedTime"), series.get("count", 0)
    involved = document.get("involvedObject") or {}
    target = (involved.get("kind", "").lower(), involved.get("name", ""))
    return [
        ages.since(last, now_s),
        document.get("type", ""),
        document.get("reason", ""),
        "/".join(target) if target[1] else target[0],
        involved.get("fieldPath", ""),
        _source(document),
        document.get("message", "").strip(),
        ages.since(first, now_s),
        count,
        document["metadata"].get("name", ""),
    ]


def _node_state(document: Object, status: Object) -> str:
    # Of several conditions of a kind the last counts, as in a map.
    ready = [
        condition.get("status") == "True"
        for condition in status.get("conditions") or ()
        if condition.get("type") == "Ready"
    ]
    state = ("Ready" if ready[-1] else "NotReady") if ready else "Unknown"
    closed = (document.get("spec") or {}).get("unschedulable")
    return f"{state},SchedulingDisabled" if closed else state


def _roles(document: Object) -> list[str]:
    labels = document["metadata"].get("labels") or {}
    named = [key for key in labels if key.startswith(_ROLE_PREFIX)]
    roles = {key.removeprefix(_ROLE_PREFIX) for key in named}
    return sorted((roles | {labels.get(_ROLE, "")}) - {""})


def _address(status: Object, kind: str) -> str:
    for address in status.get("addresses") or ():
        if address.get("type") == kind:
            return str(address.get("address", ""))
    return _NONE


def _source(document: Object) -> str:
    source = document.get("source") or {}
    component = source.get("component") or document.get("reportingComponent", "")
    instance = source.get("host") or document.get("reportingInstance", "")
    return f"{component}, {instance}" if instance else component
