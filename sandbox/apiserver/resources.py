"""Which resources there are: one table, one row each.

A new resource is a row. What differs between kinds beyond a flag (defaults,
validation) is in `defaults` and `validation`, keyed by kind.

Source of the selectable fields: Kubernetes v1.36.3,
`pkg/apis/core/v1/conversion.go`; of the flags: the kinds' `strategy.go`.
"""

import dataclasses

READ_VERBS = ("get", "list", "watch")
ALL_VERBS = (
    *("create", "delete", "deletecollection", "get"),
    *("list", "patch", "update", "watch"),
)


# Compared by identity: there is one of each, and it is a key of many dictionaries.
@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Resource:
    """One kind of object, and how it is served.

    Attributes:
        fields: What a field selector may name, besides `metadata.name`
            and, for namespaced resources, `metadata.namespace`.
        has_status: Whether status is written through its own subresource only.
        unconditional_update: Whether PUT needs no resource version.
        create_on_update: Whether PUT creates what is missing.
        returns_deleted: Whether DELETE answers the object, not a Status.
        subresources: Beyond `status`, those that take a POST, with their kind.
        categories: Names under which several resources are asked for (`get all`).
    """

    plural: str
    singular: str
    kind: str
    group: str = ""
    version: str = "v1"
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    fields: tuple[str, ...] = ()
    has_status: bool = False
    unconditional_update: bool = True
    create_on_update: bool = False
    returns_deleted: bool = False
    subresources: tuple[tuple[str, str], ...] = ()
    categories: tuple[str, ...] = ()

    @property
    def api_version(self) -> str:
        """The `apiVersion` of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """The plural with its group, as messages name it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def qualified_kind(self) -> str:
        """The kind with its group, as messages name it."""
        return f"{self.kind}.{self.group}" if self.group else self.kind

    @property
    def selectable(self) -> tuple[str, ...]:
        """All fields that a field selector may name."""
        scope = ("metadata.namespace",) if self.namespaced else ()
        return ("metadata.name", *scope, *self.fields)


PODS = Resource(
    plural="pods",
    singular="pod",
    kind="Pod",
    short_names=("po",),
    fields=(
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    has_status=True,
    returns_deleted=True,
    subresources=(("binding", "Binding"), ("eviction", "Eviction")),
    categories=("all",),
)
NODES = Resource(
    plural="nodes",
    singular="node",
    kind="Node",
    namespaced=False,
    short_names=("no",),
    fields=("spec.unschedulable",),
    has_status=True,
)
NAMESPACES = Resource(
    plural="namespaces",
    singular="namespace",
    kind="Namespace",
    namespaced=False,
    short_names=("ns",),
    fields=("status.phase",),
    has_status=True,
    returns_deleted=True,
)
CONFIGMAPS = Resource(
    plural="configmaps",
    singular="configmap",
    kind="ConfigMap",
    short_names=("cm",),
)
EVENTS = Resource(
    plural="events",
    singular="event",
    kind="Event",
    short_names=("ev",),
    fields=(
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
    create_on_update=True,
)
SERVICE_ACCOUNTS = Resource(
    plural="serviceaccounts",
    singular="serviceaccount",
    kind="ServiceAccount",
    short_names=("sa",),
    returns_deleted=True,
)
LEASES = Resource(
    group="coordination.k8s.io",
    plural="leases",
    singular="lease",
    kind="Lease",
    unconditional_update=False,
    create_on_update=True,
)
BUDGETS = Resource(
    group="policy",
    plural="poddisruptionbudgets",
    singular="poddisruptionbudget",
    kind="PodDisruptionBudget",
    short_names=("pdb",),
    has_status=True,
    unconditional_update=False,
)
# Workloads are listed, always empty: nothing here would run them.
DAEMON_SETS = Resource(
    group="apps",
    plural="daemonsets",
    singular="daemonset",
    kind="DaemonSet",
    short_names=("ds",),
    verbs=READ_VERBS,
    categories=("all",),
)
DEPLOYMENTS = Resource(
    group="apps",
    plural="deployments",
    singular="deployment",
    kind="Deployment",
    short_names=("deploy",),
    verbs=READ_VERBS,
    categories=("all",),
)

RESOURCES = (
    PODS,
    NODES,
    NAMESPACES,
    CONFIGMAPS,
    EVENTS,
    SERVICE_ACCOUNTS,
    LEASES,
    BUDGETS,
    DAEMON_SETS,
    DEPLOYMENTS,
)

#: {(group, version, plural): the row}
BY_PATH = {(row.group, row.version, row.plural): row for row in RESOURCES}
