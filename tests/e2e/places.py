"""Where everything of the real cluster lies, and at which addresses.

There can be one such cluster on a machine, because the kubelet's plugin directory
is fixed; so ports and socket paths are fixed as well, and only what is costly to
make (programs, images) has a place that can be chosen.
"""

import os
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]

#: The release that the Go module `controlplane` pins.
PINNED = "v1.36.3"
NODE = "node1"
#: Who may join with a kubelet of the sandbox: the API server knows their tokens.
SIMULATED_NODES = tuple(f"sim-{number:02}" for number in range(1, 21))
KUBELET_ROOT = Path("/var/lib/kubelet")
#: Sockets, below here because their paths must stay below 108 bytes.
RUNTIME = Path("/run/ascend-e2e")
#: What `up` found before it changed anything, and where the cluster came from.
RECORD = RUNTIME / "record.json"
#: There if a cluster was left on purpose.
KEPT = RUNTIME / "kept"
#: Held by whoever brings a cluster up or down, or tests it.
LOCK = "\0ascend-e2e"

ETCD_PORT = 26441
ETCD_PEER_PORT = 26442
API_PORT = 26443
LONE_API_PORT = 26444
KUBELET_PORT = 26450
KUBELET_HEALTH_PORT = 26448
CONTROLLER_PORT = 26457
SCHEDULER_PORT = 26459
STREAMING_PORT = 26460
#: Of who stands between scheduler and extender in some tests.
BETWEEN_PORT = 26470
#: The extender's default port, on the node's address.
EXTENDER_PORT = 8888
PORTS = (
    ETCD_PORT,
    ETCD_PEER_PORT,
    API_PORT,
    LONE_API_PORT,
    KUBELET_PORT,
    KUBELET_HEALTH_PORT,
    CONTROLLER_PORT,
    SCHEDULER_PORT,
    STREAMING_PORT,
    BETWEEN_PORT,
    EXTENDER_PORT,
)

POD_NETWORK = "10.213.0.0/16"
SERVICE_NETWORK = "10.214.0.0/24"
#: The first address of SERVICE_NETWORK: the API server's own Service.
API_SERVICE_ADDRESS = "10.214.0.1"
DNS_ADDRESS = "10.214.0.10"
CNI_PLUGINS = Path("/usr/lib/cni")


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The folders of one cluster."""

    #: what is made once and kept: programs, images
    cache: Path

    @property
    def programs(self) -> Path:
        """The control plane's programs, given ready or built here."""
        given = os.environ.get("KUBEBUILDER_ASSETS")
        other = "" if kubernetes() == PINNED else f"-{kubernetes()}"
        return Path(given) if given else self.cache / f"bin{other}"

    @property
    def images(self) -> Path:
        """Images as archives, and buildah's own store."""
        return self.cache / "images"

    @property
    def run(self) -> Path:
        """What one cluster writes; new for each."""
        return self.cache / "run"

    @property
    def certificates(self) -> Path:
        """Keys and certificates of one cluster."""
        return self.run / "pki"

    @property
    def logs(self) -> Path:
        """One log for each component; they stay until the next `up`."""
        return self.cache / "logs"

    def kubeconfig(self, user: str = "admin") -> Path:
        """The kubeconfig of a user of the cluster."""
        return self.run / f"{user}.kubeconfig"

    def configuration(self, component: str, suffix: str = "yaml") -> Path:
        """The configuration file of a component."""
        return self.run / f"{component}.{suffix}"

    def log(self, component: str) -> Path:
        """The log of a component."""
        return self.logs / f"{component}.log"


CONTAINERD_SOCKET = RUNTIME / "containerd.sock"
#: What containers write.
POD_LOGS = RUNTIME / "pods"
DEVICE_PLUGIN_DIR = KUBELET_ROOT / "device-plugins"
POD_RESOURCES_SOCKET = KUBELET_ROOT / "pod-resources" / "kubelet.sock"


def kubernetes() -> str:
    """The release of Kubernetes that is built; KUBERNETES names another than ours."""
    return os.environ.get("KUBERNETES") or PINNED


def minor() -> int:
    """The second number of that release: 36 of v1.36.3."""
    return int(kubernetes().split(".")[1])


def chosen() -> Places:
    """The places that the environment names; E2E_CACHE can be shared by checkouts."""
    return Places(
        cache=Path(os.environ.get("E2E_CACHE", REPOSITORY / ".e2e")).resolve()
    )
