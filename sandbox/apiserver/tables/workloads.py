"""The columns of workloads, which the sandbox lists but never has.

A module of its own: the columns of each family of resources have one.

Source: Kubernetes v1.36.3, `pkg/printers/internalversion/printers.go`.
"""

from sandbox.apiserver.tables.columns import AGE, CONTAINERS, IMAGES, NAME, Column

_DAEMONS = "api.apps.v1.DaemonSetStatus"
_REPLICAS = "api.apps.v1.DeploymentStatus"

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
