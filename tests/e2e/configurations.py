"""The configuration files of the cluster's programs."""

import json
from pathlib import Path

import yaml

from tests.e2e.places import (
    CNI_PLUGINS,
    CONTAINERD_SOCKET,
    DNS_ADDRESS,
    KUBELET_HEALTH_PORT,
    KUBELET_PORT,
    POD_LOGS,
    POD_NETWORK,
    RUNTIME,
    STREAMING_PORT,
    Places,
)

PAUSE_IMAGE = "registry.k8s.io/pause:3.10"
RESOURCE = "huawei.com/Ascend910"
_READY = (
    Path(__file__).parents[2]
    / "daemonset/overlays/kube-scheduler/scheduler-configuration.yaml"
)


def containerd(places: Places) -> str:
    """A containerd of our own: no folder or socket is shared with another."""
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    return f"""\
version = 2
root = "{places.run / "containerd"}"
state = "{RUNTIME / "containerd"}"
disabled_plugins = [
  "io.containerd.internal.v1.opt",
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
]
[grpc]
  address = "{CONTAINERD_SOCKET}"
[{cri}]
  # Without CAP_SYS_RESOURCE, which containers on build machines lack, no process
  # may lower its score; with it, this changes nothing.
  restrict_oom_score_adj = true
  disable_apparmor = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "{STREAMING_PORT}"
  sandbox_image = "{PAUSE_IMAGE}"
[{cri}.cni]
  bin_dir = "{CNI_PLUGINS}"
  conf_dir = "{places.run / "cni"}"
[{cri}.containerd]
  snapshotter = "overlayfs"
  default_runtime_name = "runc"
[{cri}.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[{cri}.containerd.runtimes.runc.options]
  SystemdCgroup = false
  Root = "{RUNTIME / "runc"}"
"""


def cni(places: Places) -> str:
    """A point-to-point link for each pod; no address translation, so no rules."""
    ipam = {
        "type": "host-local",
        "dataDir": str(places.run / "addresses"),
        "ranges": [[{"subnet": POD_NETWORK}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    return json.dumps(
        {
            "cniVersion": "0.4.0",
            "name": "ascend-e2e",
            "plugins": [{"type": "ptp", "ipMasq": False, "ipam": ipam}],
        }
    )


def kubelet(places: Places) -> str:
    """Defaults, but where they would need or change something of the machine."""
    return json.dumps(
        {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
            "port": KUBELET_PORT,
            "healthzPort": KUBELET_HEALTH_PORT,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(places.certificates / "ca.crt")},
            },
            "authorization": {"mode": "Webhook"},
            # Nobody is there; without it, every pod has a warning in its events.
            "clusterDNS": [DNS_ADDRESS],
            "clusterDomain": "cluster.local",
            "cgroupDriver": "cgroupfs",
            "failCgroupV1": False,
            "failSwapOn": False,
            "enforceNodeAllocatable": [],
            # A full disk or little memory is the machine's affair, not the tests'.
            "evictionHard": {"memory.available": "10Mi", "nodefs.available": "1%"},
            "imageGCHighThresholdPercent": 100,
            # No iptables chains, no folders that stay: what is not made need not go.
            "makeIPTablesUtilChains": False,
            "podLogsDir": str(POD_LOGS),
            "volumePluginDir": str(places.run / "volume-plugins"),
            # Five minutes by default, for whoever has been killed a few times.
            "crashLoopBackOff": {"maxContainerRestartPeriod": "1s"},
            # Ten seconds by default: what a test would wait for each new resource.
            "nodeStatusUpdateFrequency": "1s",
        },
        indent=1,
    )


def kubeconfig(user: str, token: str, *, server: str, authority: Path) -> str:
    """The kubeconfig of a user; `authority` is what its server is checked with."""
    cluster = {"server": server, "certificate-authority": str(authority)}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "e2e", "cluster": cluster}],
            "users": [{"name": user, "user": {"token": token}}],
            "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": user}}],
            "current-context": "e2e",
        },
        indent=1,
    )


def scheduler(places: Places, extender_url: str) -> str:
    """The stock scheduler with one extender, or with none if the URL is empty."""
    (shipped,) = yaml.safe_load(_READY.read_text())["extenders"]
    extender = shipped | {"urlPrefix": extender_url}
    return json.dumps(
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {
                "kubeconfig": str(places.kubeconfig("scheduler")),
                "qps": 1000,
                "burst": 2000,
            },
            "leaderElection": {"leaderElect": False},
            "percentageOfNodesToScore": 100,
            "extenders": [extender] if extender_url else [],
        },
        indent=1,
    )
