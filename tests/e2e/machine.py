"""What the cluster changes on the machine: seen before, put back after, compared.

The record is written before the first change, so that a run which was killed can be
cleaned up by the next. Everything here may be done again at any time.
"""

import json
import shutil
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.e2e.commands import run
from tests.e2e.places import KUBELET_ROOT, RECORD, RUNTIME, Places

#: What a kubelet, a containerd, a CNI plugin or our agent makes outside of `Places`.
#: Where such a thing was there before, only what is inside and ours is removed.
_MADE = (
    KUBELET_ROOT,
    Path("/var/lib/cni"),
    Path("/var/log/pods"),
    Path("/var/log/containers"),
    Path("/run/ascend-agent"),
    Path("/run/containerd"),
    Path("/run/netns"),
    Path("/run/runc"),
    Path("/opt/containerd"),
    Path("/etc/cni"),
    Path("/usr/libexec/kubernetes"),
)
#: The kubelet sets these (setupKernelTunables in its container manager).
_TUNED = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
_SYS = Path("/proc/sys")
_CGROUPS = Path("/sys/fs/cgroup")
_NAMESPACES = Path("/run/netns")


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Everything of the machine that a cluster could leave changed."""

    settings: dict[str, str]
    paths: list[str]
    mounts: list[str]
    links: list[str]
    routes: list[str]
    rules: list[str]
    cgroups: list[str]


def look() -> Picture:
    """Look at the machine."""
    return Picture(
        settings={
            name: (_SYS / name).read_text(encoding="ascii").strip()
            for name in _settings()
        },
        paths=[str(path) for path in _MADE if path.exists()],
        mounts=sorted(_mounts()),
        links=sorted(link["ifname"] for link in json.loads(run("ip", "-j", "link"))),
        routes=run("ip", "-4", "route").splitlines(),
        rules=_rules(),
        cgroups=[str(path) for path in _pod_cgroups()],
    )


def write_record(picture: Picture, places: Places) -> None:
    """Keep what was found, and whose cluster it is."""
    RUNTIME.mkdir(mode=0o700, parents=True, exist_ok=True)
    document = {"cache": str(places.cache), "before": asdict(picture)}
    draft = RECORD.with_suffix(".new")
    draft.write_text(json.dumps(document, indent=1), encoding="utf-8")
    draft.replace(RECORD)


def read_record() -> tuple[Places, Picture] | None:
    """Read what the last `up` found; None if it was put back."""
    if not RECORD.exists():
        return None
    document = json.loads(RECORD.read_text(encoding="utf-8"))
    before = Picture(**document["before"])
    return Places(cache=Path(document["cache"])), before


def put_back(places: Places, before: Picture) -> None:
    """Take away whatever programs of the cluster left; they have ended already."""
    ours = (places.run, RUNTIME, KUBELET_ROOT)
    _unmount(path for path in _mounts() if any(map(Path(path).is_relative_to, ours)))
    _remove_namespaces(before)
    for cgroup in _pod_cgroups():
        if str(cgroup) not in before.cgroups:
            _remove_cgroup(cgroup)
    _remove_made(places, before)
    for name, value in before.settings.items():
        path = _SYS / name
        if path.exists() and path.read_text(encoding="ascii").strip() != value:
            path.write_text(value, encoding="ascii")


def forget(places: Places) -> None:
    """Remove the record, last of all: until now the work could be repeated."""
    shutil.rmtree(places.run, ignore_errors=True)
    shutil.rmtree(RUNTIME, ignore_errors=True)


def differences(before: Picture, after: Picture) -> list[str]:
    """Say what is not as it was."""
    found = [
        f"{name} is {after.settings.get(name)}, was {value}"
        for name, value in before.settings.items()
        if after.settings.get(name) != value
    ]
    for what in ("paths", "mounts", "links", "routes", "rules", "cgroups"):
        then, now = set(getattr(before, what)), set(getattr(after, what))
        found += [f"{what}: {entry} is left" for entry in sorted(now - then)]
        found += [f"{what}: {entry} is gone" for entry in sorted(then - now)]
    return found


def pod_processes() -> list[int]:
    """Processes inside containers of the kubelet's pods."""
    return [
        int(line)
        for cgroup in _pod_cgroups()
        for procs in cgroup.rglob("cgroup.procs")
        for line in procs.read_text(encoding="ascii").split()
    ]


def _settings() -> list[str]:
    # Writing ip_forward, as CNI plugins do, resets these of every interface.
    folders = sorted((_SYS / "net/ipv4/conf").iterdir())
    links = [
        f"net/ipv4/conf/{folder.name}/{name}"
        for folder in folders
        if not folder.name.startswith("veth")
        for name in ("forwarding", "accept_redirects")
    ]
    return ["net/ipv4/ip_forward", *links, *_TUNED]


def _mounts() -> list[str]:
    text = Path("/proc/self/mountinfo").read_text(encoding="utf-8")
    return [line.split(" ")[4] for line in text.splitlines()]


def _unmount(paths: Iterable[str]) -> None:
    for path in sorted(paths, key=len, reverse=True):
        # Lazily: a process that is just ending may still stand in it.
        run("umount", "--lazy", path)


def _rules() -> list[str]:
    if shutil.which("iptables-save") is None:
        return []
    lines = run("iptables-save").splitlines()
    return sorted(line for line in lines if line.startswith("-A"))


def _pod_cgroups() -> list[Path]:
    """The kubelet's cgroup in each hierarchy (version 1) or in the only one."""
    return [
        path
        for path in (*_CGROUPS.glob("*/kubepods"), _CGROUPS / "kubepods")
        if path.is_dir()
    ]


def _remove_cgroup(cgroup: Path) -> None:
    for child in cgroup.iterdir():
        if child.is_dir():
            _remove_cgroup(child)
    cgroup.rmdir()


def _remove_namespaces(before: Picture) -> None:
    # CNI's names; a pod's end of a veth goes with its namespace, and so does ours.
    if not _NAMESPACES.is_dir():
        return
    for namespace in _NAMESPACES.glob("cni-*"):
        if str(namespace) not in before.mounts:
            _unmount(path for path in _mounts() if path == str(namespace))
            namespace.unlink(missing_ok=True)


def _remove_made(places: Places, before: Picture) -> None:
    for path in _MADE:
        if path.exists() and str(path) not in before.paths:
            _unmount(each for each in _mounts() if Path(each).is_relative_to(path))
            shutil.rmtree(path)
    links = Path("/var/log/containers")
    if links.is_dir():
        for link in links.iterdir():
            if link.is_symlink() and link.readlink().is_relative_to(places.pod_logs):
                link.unlink()
    results = Path("/var/lib/cni/results")
    for result in results.glob("ascend-e2e-*"):
        result.unlink()
