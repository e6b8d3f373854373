"""The rows of everything that is no pod and no workload.

Source: Kubernetes v1.36.3, `pkg/printers/internalversion/printers.go`.
"""

from typing import Any

from sandbox.apiserver.objects import Object
from sandbox.apiserver.tables import ages
from sandbox.apiserver.tables.columns import AGE, NAME, Column

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
SERVICE_ACCOUNT_COLUMNS = (NAME, AGE)
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


def node(document: Object, now_s: float) -> list[Any]:
    """Return the cells of a node's row."""
    status = document.get("status") or {}
    told = status.get("nodeInfo") or {}
    kernel = told.get("kernelVersion") or _UNKNOWN
    if told.get("architecture"):
        kernel += f" ({told['architecture']})"
    return [
        _name(document),
        _node_state(document, status),
        ",".join(_roles(document)) or _NONE,
        _age(document, now_s),
        told.get("kubeletVersion", ""),
        _address(status, "InternalIP"),
        _address(status, "ExternalIP"),
        told.get("osImage") or _UNKNOWN,
        kernel,
        told.get("containerRuntimeVersion") or _UNKNOWN,
    ]


def namespace(document: Object, now_s: float) -> list[Any]:
    """Return the cells of a namespace's row."""
    phase = (document.get("status") or {}).get("phase", "")
    return [_name(document), phase, _age(document, now_s)]


def config_map(document: Object, now_s: float) -> list[Any]:
    """Return the cells of a ConfigMap's row."""
    count = sum(len(document.get(part) or ()) for part in ("data", "binaryData"))
    return [_name(document), count, _age(document, now_s)]


def service_account(document: Object, now_s: float) -> list[Any]:
    """Return the cells of a service account's row."""
    return [_name(document), _age(document, now_s)]


def lease(document: Object, now_s: float) -> list[Any]:
    """Return the cells of a lease's row."""
    holder = (document.get("spec") or {}).get("holderIdentity") or ""
    return [_name(document), holder, _age(document, now_s)]


def budget(document: Object, now_s: float) -> list[Any]:
    """Return the cells of a disruption budget's row."""
    spec = document.get("spec") or {}
    allowed = (document.get("status") or {}).get("disruptionsAllowed", 0)
    bounds = [str(spec.get(key, "N/A")) for key in ("minAvailable", "maxUnavailable")]
    return [_name(document), *bounds, allowed, _age(document, now_s)]


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
        _name(document),
    ]


def _name(document: Object) -> str:
    name: str = document["metadata"].get("name", "")
    return name


def _age(document: Object, now_s: float) -> str:
    return ages.since(document["metadata"].get("creationTimestamp"), now_s)


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
    roles = {key.removeprefix(_ROLE_PREFIX) for key in labels if _names_role(key)}
    return sorted((roles | {labels.get(_ROLE, "")}) - {""})


def _names_role(key: str) -> bool:
    return key.startswith(_ROLE_PREFIX)


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
