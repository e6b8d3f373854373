"""What the cluster changes on the machine: seen before, put back after, compared.

The record is written before the first change, so that a run which was killed can be
cleaned up by the next. Everything here may be done again at any time.
"""

import glob
import json
import os
import shutil
import socket
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.e2e.commands import run, until
from tests.e2e.places import KUBELET_ROOT, RECORD, RUNTIME, Places

#: What a kubelet, containerd, buildah, CNI plugins or our agent make outside of ours.
#: Whatever of it was not there before is ours; there is no other kubelet.
_MADE = (
    "/etc/cni",
    "/opt/containerd",
    "/run/ascend-agent",
    "/run/containerd",
    "/run/containerd/s/*",
    "/run/mount",
    "/run/netns",
    "/run/netns/cni-*",
    "/run/runc",
    "/usr/libexec/kubernetes",
    # Where buildah remembers layers, whatever store it is given.
    "/var/lib/containers",
    "/var/lib/containers/cache",
    "/var/lib/ascend-agent",
    "/var/lib/cni",
    "/var/lib/cni/results",
    "/var/lib/cni/results/*",
    f"{KUBELET_ROOT}",
    f"{KUBELET_ROOT}/*",
    "/var/log/containers",
    "/var/log/containers/*",
    "/var/log/pods",
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
_UNMOUNT_ROUNDS = 5
_SYS = Path("/proc/sys")
_CGROUPS = Path("/sys/fs/cgroup")


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
        paths=_made(),
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
    made = [Path(path) for path in _made() if path not in before.paths]
    tops = (places.cache, RUNTIME, KUBELET_ROOT, *made)
    _unmount(tops, before.mounts)
    for path in made:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    for cgroup in _pod_cgroups():
        if str(cgroup) not in before.cgroups:
            _remove_cgroup(cgroup)
    for name, value in before.settings.items():
        setting = _SYS / name
        if setting.exists() and setting.read_text(encoding="ascii").strip() != value:
            setting.write_text(value, encoding="ascii")


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
        then, now = Counter(getattr(before, what)), Counter(getattr(after, what))
        found += [f"{what}: {entry} is left" for entry in sorted(now - then)]
        found += [f"{what}: {entry} is gone" for entry in sorted(then - now)]
    return found


def pod_processes() -> list[int]:
    """Processes inside containers of the kubelet's pods."""
    found = []
    for cgroup in _pod_cgroups():
        # Unlike Path.rglob, it does not mind what goes while it walks.
        for folder, _, names in os.walk(cgroup):
            if "cgroup.procs" in names:
                found += _pids(Path(folder) / "cgroup.procs")
    return found


def _pids(procs: Path) -> list[int]:
    try:
        lines = procs.read_text(encoding="ascii").split()
    except OSError:  # its last container has just ended
        return []
    return [int(line) for line in lines if line != "0"]  # 0: of another namespace


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


def _made() -> list[str]:
    """What is there of `_MADE`: folders before what is in them."""
    found = [
        Path(name)
        for pattern in _MADE
        for name in glob.glob(pattern)  # noqa: PTH207  # patterns are absolute
    ]
    return [str(path) for path in found if not _is_anothers(path)]


def _is_anothers(path: Path) -> bool:
    if path.parent.name == "containers":
        return not path.is_symlink() or not path.readlink().is_relative_to(RUNTIME)
    if path.is_socket():
        # A shim's; ours have been killed, so nobody listens there any more.
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(path)) == 0
    return False


def _unmount(tops: Sequence[Path], before: Sequence[str]) -> None:
    # With one mount others may go, hence a fresh look each time. Counted, because the
    # kubelet mounts its folder upon itself, and that may be a mount already.
    for _ in range(_UNMOUNT_ROUNDS):
        found = [
            path
            for path in map(Path, Counter(_mounts()) - Counter(before))
            if any(map(path.is_relative_to, tops))
        ]
        if not found:
            return
        for path in sorted(found, key=lambda path: len(path.parts), reverse=True):
            if str(path) in _mounts():
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

    def removed() -> bool:
        if cgroup.exists():
            cgroup.rmdir()  # busy until the kernel has done with its last process
        return True

    until(removed, f"{cgroup} removed", within_s=30)
