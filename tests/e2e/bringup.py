"""A cluster from nothing, and nothing from a cluster."""

import os
import shutil
import signal
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e import (
    certificates,
    configurations,
    images,
    machine,
    programs,
    requirements,
)
from tests.e2e.assembly import Assembly
from tests.e2e.cluster import Cluster
from tests.e2e.components import argv, end, marked
from tests.e2e.places import (
    EXTENDER_PORT,
    KUBELET_ROOT,
    LOCK,
    POD_LOGS,
    PORTS,
    Places,
)
from tests.e2e.stages import CannotError, stage

_SETTLED_WITHIN_S = 60.0


@contextmanager
def alone() -> Iterator[None]:
    """Let nobody else bring a cluster up or down, or test one, on this machine.

    Raises:
        CannotError: Somebody does already.
    """
    # An abstract socket: it goes with its process, and leaves no file.
    with socket.socket(socket.AF_UNIX) as lock:
        try:
            lock.bind(LOCK)
        except OSError:
            raise CannotError(
                "another run of these tests is under way on this machine, and there "
                "can be one only: a kubelet's plugin directory is fixed"
            ) from None
        yield


def up(places: Places) -> Cluster:
    """Bring the cluster up, until its node is ready.

    What a run that was killed has left is removed first.

    Raises:
        CannotError: The machine lacks something, or another kubelet is in the way.
    """
    requirements.check()
    if machine.read_record() is not None:
        down("removing what an interrupted run left")
    _refuse_others()
    programs.build(places)
    address = _node_address()
    machine.write_record(machine.look(), places)
    images.make(places)
    with stage("certificates and configuration"):
        _configure(places, address)
    cluster = Cluster.at(places, address)
    _start(cluster.programs, places)
    with stage("node ready"):
        cluster.wait_node_ready()
    return cluster


def down(title: str = "taking the cluster down") -> None:
    """Remove the cluster and put everything back.

    Raises:
        CannotError: Something is not as it was before.
    """
    recorded = machine.read_record()
    if recorded is None:
        return
    places, before = recorded
    with stage(title):
        _end_processes()
        machine.put_back(places, before)
        left = _left(before)
        machine.forget(places)
    if left:
        raise CannotError("not as it was before:\n  " + "\n  ".join(left))


def _left(before: machine.Picture) -> list[str]:
    # The kernel takes a link away some time after its network namespace.
    end = time.monotonic() + _SETTLED_WITHIN_S
    while (left := machine.differences(before, machine.look())) and (
        time.monotonic() < end
    ):
        time.sleep(0.2)
    return left


def _refuse_others() -> None:
    strangers = [
        pid
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit()
        for pid in [int(entry.name)]
        if [Path(word).name for word in argv(pid)[:1]] == ["kubelet"]
        and _sees_our_folders(pid)
    ]
    if strangers:
        raise CannotError(
            f"a kubelet runs on this machine (pid {strangers[0]}); there can be one "
            "only, since its plugin directory is fixed"
        )
    if KUBELET_ROOT.is_dir() and any(KUBELET_ROOT.iterdir()):
        raise CannotError(
            f"{KUBELET_ROOT} belongs to a kubelet that is not ours; the cluster would "
            "mix with it"
        )
    for port in PORTS:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("0.0.0.0", port))  # noqa: S104  # asks for all addresses
            except OSError as error:
                raise CannotError(f"port {port} is in use: {error.strerror}") from None


def _sees_our_folders(pid: int) -> bool:
    """Whether a process has our mounts: a kubelet in a container has its own."""
    space = Path("/proc") / str(pid) / "ns" / "mnt"
    try:
        return space.readlink() == Path("/proc/self/ns/mnt").readlink()
    except FileNotFoundError:
        return False


def _node_address() -> str:
    # As the kubelet does: the address by which others would be reached. No packet
    # is sent for a datagram socket's connect.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            raise CannotError(
                "the kubelet needs an address that is not a loopback one, and this "
                "machine has no default route"
            ) from None
        return str(probe.getsockname()[0])


def _configure(places: Places, address: str) -> None:
    for old in (places.run, places.logs):
        shutil.rmtree(old, ignore_errors=True)
    for folder in (places.logs, POD_LOGS, places.run / "cni"):
        folder.mkdir(parents=True)
    certificates.make(places, address)
    extender = os.environ.get("E2E_EXTENDER", f"http://{address}:{EXTENDER_PORT}")
    texts = {
        places.configuration("containerd", "toml"): configurations.containerd(places),
        places.run / "cni" / "10-e2e.conflist": configurations.cni(places),
        places.configuration("kubelet"): configurations.kubelet(places),
        places.configuration("scheduler"): configurations.scheduler(places, extender),
    }
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")


def _start(assembly: Assembly, places: Places) -> None:
    with stage("containerd and its images"):
        assembly.containerd.start()
        images.load(images.pause_archive(places))
        images.load(images.base_archive(places))
    for component in assembly.all[1:]:
        with stage(component.name):
            component.start()


def _end_processes() -> None:
    """The kubelet first, so that it does not start again what is being ended.

    Nobody is asked: what they would put in order goes as a whole anyway.
    """
    _kill([pid for pid, name in marked() if name == "kubelet"])
    _kill(machine.pod_processes())
    _kill([pid for pid, _ in marked()])
    # A shim may have started a process between two looks.
    _kill([*machine.pod_processes(), *(pid for pid, _ in marked())])


def _kill(pids: Iterable[int]) -> None:
    for pid in pids:
        end(pid, signal.SIGKILL, within_s=60)
