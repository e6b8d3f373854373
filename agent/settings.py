"""Settings of the agent, and the check of their directories and credentials at start.

The settings come from flags, environment and a file. The check (`verify`) reports all
missing directories at once, before the agent starts its work.
"""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from scheduler_core.products.table import PRODUCTS
from scheduler_core.wire.deviceinfo import CONFIGMAP_NAMESPACE
from service.logs import LEVELS
from service.settings import REQUIRED, SettingsError, at_least, one_of, option

#: The mode without the Ascend scheduler: the agent chooses chips.
STANDALONE = "standalone"
#: Name of a Kubernetes node (RFC 1123 subdomain), of at most 253 characters.
_NODE_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


def _node_name(name: str) -> str | None:
    expected = "a node name: lower-case letters, digits, '-' and '.'"
    return None if _NODE_NAME.fullmatch(name) else expected


def _product(key: str) -> str | None:
    keys = sorted(row.key for row in PRODUCTS)
    return None if not key or key in keys else f"one of {', '.join(keys)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """ascend-agent: the Ascend device plugin and reporter of one Kubernetes node."""

    PREFIX: ClassVar[str] = "ASCEND_AGENT"

    node_name: str = option(
        REQUIRED, "the node that this agent serves", env="NODE_NAME", check=_node_name
    )
    mode: str = option(
        "scheduled",
        "scheduled: pods get the chips that the Ascend extender wrote on them, others "
        "are refused; standalone: there is no scheduler of ours, and the agent chooses",
        check=one_of("scheduled", STANDALONE),
    )
    numa_topology: bool = option(
        False,  # noqa: FBT003  # the default of a switch
        "tell the kubelet each chip's NUMA node, so that its topology manager aligns "
        "by it; in standalone mode only, for it takes the choice from a scheduler",
    )
    kubelet_dir: Path = option(
        Path("/var/lib/kubelet/device-plugins"),
        "where the kubelet's device plugin socket is",
    )
    pod_resources_socket: Path = option(
        Path("/var/lib/kubelet/pod-resources/kubelet.sock"),
        "the kubelet's pod-resources socket",
    )
    kubelet_url: str = option(
        "", "the kubelet's own API, asked when a pod is not known yet; '' for none"
    )
    api_server: str = option(
        "", "URL of the API server; '' for that of the cluster we run in"
    )
    kubeconfig: Path | None = option(
        None, "a kubeconfig file, instead of a service account"
    )
    service_account_dir: Path = option(
        Path("/var/run/secrets/kubernetes.io/serviceaccount"),
        "folder with the service account's token and ca.crt",
    )
    state_dir: Path = option(
        Path("/var/lib/ascend-agent"), "where the journal of holds is kept"
    )
    memory_dir: Path | None = option(
        None,
        "where the driver dcmi keeps what its chips have told, for the next boot too; "
        "without it in --state-dir",
    )
    driver: str = option(
        "auto",
        "who knows the chips: dcmi (Huawei's libdcmi.so), simulated (a file), or auto: "
        "dcmi where its library is found, else simulated",
        check=one_of("auto", "dcmi", "simulated"),
    )
    dcmi_library: Path | None = option(
        None, "the libdcmi.so of the driver dcmi; '' looks for it"
    )
    product: str = option(
        "",
        "kind of server by which the driver dcmi's chips are given out, a key of "
        "`python -m scheduler_core products`; '' tells it from the chips. Of several "
        "product lines it serves that one's chips alone",
        check=_product,
    )
    driver_file: Path = option(
        Path("/etc/ascend-agent/npu.yaml"),
        "the machine that the simulated driver shows; may be edited at any time",
    )
    mount: str = option(
        "auto",
        "how chips come into containers: runtime (Ascend Docker Runtime), native (the "
        "kubelet, device by device), cdi (by names in a spec), or auto: runtime or "
        "native, whichever is there",
        check=one_of("auto", "runtime", "native", "cdi"),
    )
    cdi_dir: Path = option(
        Path("/var/run/cdi"), "where the container runtime reads CDI specs (mount cdi)"
    )
    driver_poll_s: float = option(
        0.2,
        "how often a driver's file is looked at; also the longest pause between two "
        "looks at chips that recover, or with faults that are counted",
        check=at_least(0.01),
    )
    driver_deadline_s: float = option(
        5.0,
        "how long one look, and one call of libdcmi, may take before what is known "
        "counts as stale",
        check=at_least(0.1),
    )
    survey_wait_s: float = option(
        600.0,
        "how long the driver dcmi is waited for until it shows all chips of a node "
        "that has not been served before: cards come up one by one",
        check=at_least(0),
    )
    recover_s: float = option(
        1.0,
        "how long a chip must be without faults before it is given out again",
        check=at_least(0),
    )
    listen: str = option("127.0.0.1:9410", "address of /healthz, /readyz, /metrics")
    address_file: Path | None = option(
        None, "file that gets the address once we listen"
    )
    pod_name: str = option(
        "",
        "the pod that this agent runs in: its DaemonSet owns the node's ConfigMap, "
        "which goes with it; '' for no owner",
        env="POD_NAME",
    )
    pod_namespace: str = option("", "that pod's namespace", env="POD_NAMESPACE")
    namespace: str = option(CONFIGMAP_NAMESPACE, "where the node's ConfigMap is kept")
    heartbeat_s: float = option(
        300.0, "longest pause between two writes of the ConfigMap", check=at_least(1)
    )
    reconcile_period_s: float = option(
        5.0, "pause between two correction passes", check=at_least(0.1)
    )
    log_level: str = option(
        "info", f"how much is logged: {', '.join(LEVELS)}", check=one_of(*LEVELS)
    )


def _is_read_only(directory: Path) -> bool:
    try:
        return bool(os.statvfs(directory).f_flag & os.ST_RDONLY)
    except OSError:
        return False


def verify(
    settings: Settings, *, is_read_only: Callable[[Path], bool] = _is_read_only
) -> None:
    """Check that settings fit together and that directories and credentials are there.

    The simulated driver's file is not checked: it may appear after the start. A
    read-only file system under `state_dir`, as after a disk fault, is accepted. The
    agent then cannot write its journal (the file with the holds), and logs each failed
    write.

    Args:
        settings: Settings as loaded from flags, environment and file.
        is_read_only: Tells whether the file system of a directory is read-only.

    Raises:
        SettingsError: Lists all problems.
    """
    access = os.R_OK if is_read_only(settings.state_dir) else os.R_OK | os.W_OK
    results = [
        _misplaced_numa(settings),
        _unusable("kubelet-dir", settings.kubelet_dir, os.R_OK | os.W_OK),
        _unusable("state-dir", settings.state_dir, access),
        _no_token(settings.service_account_dir)
        if settings.kubeconfig is None
        else _unusable("kubeconfig", settings.kubeconfig, os.R_OK, is_dir=False),
    ]
    problems = [problem for problem in results if problem]
    if problems:
        raise SettingsError(problems)


def _misplaced_numa(settings: Settings) -> str:
    if settings.numa_topology and settings.mode != STANDALONE:
        return f"--numa-topology: expected --mode {STANDALONE}, found {settings.mode}"
    return ""


def _no_token(directory: Path) -> str:
    problem = _unusable("service-account-dir", directory, os.R_OK | os.X_OK)
    if problem:
        return problem
    return _unusable("service-account-dir", directory / "token", os.R_OK, is_dir=False)


def _unusable(name: str, path: Path, access: int, *, is_dir: bool = True) -> str:
    kind = "directory" if is_dir else "file"
    exists = path.is_dir() if is_dir else path.is_file()
    if exists and os.access(path, access):
        return ""
    reason = "one without permission" if exists else "none"
    return f"--{name}: expected a usable {kind} at {path}, found {reason}"


def boot_id(path: Path = Path("/proc/sys/kernel/random/boot_id")) -> str:
    """Return the kernel's id of the present boot, which changes with each reboot.

    The agent drops holds of an earlier boot, because their containers no longer run.
    """
    return path.read_text(encoding="ascii").strip()
