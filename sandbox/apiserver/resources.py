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
    def singular(self) -> str:
        """The name of one object, as in commands."""
        return self.kind.lower()

    @property
    def plural(self) -> str:
        """The name of all objects, as in paths."""
        return f"{self.singular}s"

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
    kind="Node",
    namespaced=False,
    short_names=("no",),
    fields=("spec.unschedulable",),
    has_status=True,
)
NAMESPACES = Resource(
    kind="Namespace",
    namespaced=False,
    short_names=("ns",),
    fields=("status.phase",),
    has_status=True,
    returns_deleted=True,
)
CONFIGMAPS = Resource(kind="ConfigMap", short_names=("cm",))
EVENTS = Resource(
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
    kind="ServiceAccount", short_names=("sa",), returns_deleted=True
)
LEASES = Resource(
    group="coordination.k8s.io",
    kind="Lease",
    unconditional_update=False,
    create_on_update=True,
)
BUDGETS = Resource(
    group="policy",
    kind="PodDisruptionBudget",
    short_names=("pdb",),
    has_status=True,
    unconditional_update=False,
)
JOBS = Resource(
    group="batch",
    kind="Job",
    fields=("status.successful",),
    has_status=True,
    categories=("all",),
)
# Other workloads are listed, always empty: nothing here would run them.
DAEMON_SETS, DEPLOYMENTS = (
    Resource(
        group="apps",
        kind=kind,
        short_names=(short_name,),
        verbs=READ_VERBS,
        categories=("all",),
    )
    for kind, short_name in (("DaemonSet", "ds"), ("Deployment", "deploy"))
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
    JOBS,
    DAEMON_SETS,
    DEPLOYMENTS,
)

#: {(group, version, plural): the row}
BY_PATH = {(row.group, row.version, row.plural): row for row in RESOURCES}
