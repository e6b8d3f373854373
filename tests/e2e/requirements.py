"""What the machine must have, and which package brings what is missing."""

import os
import shutil
import sys
from pathlib import Path

from tests.e2e.commands import fetch, run
from tests.e2e.places import CNI_PLUGINS
from tests.e2e.stages import CannotError, stage

#: What is looked for, and Debian's package that has it.
_PROGRAMS = {
    "containerd": "containerd",
    "containerd-shim-runc-v2": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "buildah": "buildah",
    "debootstrap": "debootstrap",
    "openssl": "openssl",
    "faketime": "faketime",
    "ip": "iproute2",
    "iptables": "iptables",
    "mount": "mount",
    str(CNI_PLUGINS / "ptp"): "containernetworking-plugins",
    str(CNI_PLUGINS / "host-local"): "containernetworking-plugins",
}
_GO = (1, 26)


def missing() -> list[str]:
    """Debian packages that have to be installed."""
    return sorted(
        {package for name, package in _PROGRAMS.items() if shutil.which(name) is None}
    )


def check() -> None:
    """Make sure that the machine can run the cluster.

    E2E_INSTALL=1 lets it install packages; nothing else here changes the machine.

    Raises:
        CannotError: It cannot; the text names what is missing.
    """
    if sys.platform != "linux":
        raise CannotError(f"this needs Linux, and found {sys.platform}")
    if os.geteuid() != 0:
        raise CannotError("a kubelet and containers need root: run this with sudo")
    packages = missing()
    if packages and os.environ.get("E2E_INSTALL") == "1":
        with stage(f"installing {' '.join(packages)}"):
            quiet = {"DEBIAN_FRONTEND": "noninteractive"}
            apt = ("apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300")
            fetch(*apt, "update", env=quiet)
            install = ("install", "-y", "--no-install-recommends")
            fetch(*apt, *install, *packages, env=quiet)
        packages = missing()
    if packages:
        raise CannotError(
            "the real cluster needs programs that are not here; on Debian:\n"
            f"    apt-get install --no-install-recommends {' '.join(packages)}\n"
            "or let it do that: make e2e E2E_INSTALL=1"
        )
    if not Path("/proc/sys/net/ipv4/ip_forward").exists():
        raise CannotError("this kernel has no IPv4, which pods need")


def check_go() -> None:
    """Make sure that the control plane can be built.

    Raises:
        CannotError: There is no Go, or it is too old.
    """
    wanted = ".".join(map(str, _GO))
    if shutil.which("go") is None:
        raise CannotError(
            f"the control plane is built with Go {wanted} or newer, and there is none "
            "on PATH: https://go.dev/dl/; or KUBEBUILDER_ASSETS=a folder that has "
            "etcd, kube-apiserver and the others ready"
        )
    found = run("go", "env", "GOVERSION").strip().removeprefix("go")
    numbers = tuple(int(part) for part in found.split(".")[:2] if part.isdigit())
    if numbers < _GO:
        raise CannotError(f"the control plane needs Go {wanted}, found {found}")
