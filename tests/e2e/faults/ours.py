"""Our own programs where they run: in containers, found by their container's name."""

import os
import shutil
import signal
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.e2e import product
from tests.e2e.cluster import Cluster
from tests.e2e.commands import run, until
from tests.e2e.places import EXTENDER_PORT, KUBELET_ROOT
from tests.e2e.stages import CannotError

#: The agent's plugin socket: there while the kubelet can reach it.
SOCKET = KUBELET_ROOT / "device-plugins" / "Ascend910.sock"
#: The agent's journal and its folder, on the node.
STATE = Path("/run/ascend-agent")
#: The ConfigMap of the simulated driver.
_DRIVER = "ascend-simulated-npus"
_NO_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """The agent or the extender of the node."""

    cluster: Cluster
    #: the container's name
    name: str

    @property
    def pid(self) -> int | None:
        """The number of its process on this machine; None while there is none."""
        wanted = f'labels."io.kubernetes.container.name"=={self.name}'
        ids = set(self.cluster.ctr("containers", "ls", "-q", wanted).split())
        running = self.cluster.container_pids()
        found = [running[each] for each in ids if each in running]
        # The newest: its predecessor may still be ending.
        return max(found, key=_begun, default=None)

    def running_pid(self) -> int:
        """Return the number of its process.

        Raises:
            ProcessLookupError: There is none.
        """
        if (pid := self.pid) is None:
            raise ProcessLookupError(self.name)
        return pid

    def kill(self) -> None:
        """End it as a fault would, kill -9."""
        os.kill(self.running_pid(), signal.SIGKILL)

    def url(self) -> str:
        """Where it serves its health and its metrics."""
        if self.name == "extender":
            return f"http://{self.cluster.address}:{EXTENDER_PORT}"
        pods = self.cluster.core.list_namespaced_pod(
            product.NAMESPACE, label_selector="app.kubernetes.io/name=ascend-agent"
        ).items
        ips = [
            pod.status.pod_ip
            for pod in pods
            if pod.metadata.deletion_timestamp is None and pod.status.pod_ip
        ]
        if not ips:
            raise ConnectionError(f"no pod of the {self.name} has an address")
        return f"http://{ips[-1]}:9410"

    def is_ready(self) -> bool:
        """Whether it says that it can do its work."""
        try:
            if self.pid is None:
                return False
            with _NO_PROXY.open(f"{self.url()}/readyz", timeout=2) as answer:
                return bool(answer.status == 200)
        except (OSError, CannotError):
            return False

    def metrics(self) -> dict[str, float]:
        """What it counts, by name and labels."""
        with _NO_PROXY.open(f"{self.url()}/metrics", timeout=5) as answer:
            text = answer.read().decode()
        rows = [line.rsplit(" ", 1) for line in text.splitlines() if line[:1] != "#"]
        return {name: float(value) for name, value in rows}

    def wait_ready(self) -> None:
        """Wait until it can do its work."""
        until(self.is_ready, f"{self.name} ready", within_s=240, every_s=0.05)

    def wait_not_ready(self) -> None:
        """Wait until it says that it cannot."""
        until(lambda: not self.is_ready(), f"{self.name} not ready", within_s=120)

    def wait_connected(self, since: float) -> None:
        """Wait until it has heard from the API server again.

        Only the agent tells it, and only a watch that had to begin anew hears at once.

        Args:
            since: Monotonic time at which the API server came back.
        """

        def silent_s() -> float:
            return max(
                value
                for name, value in self.metrics().items()
                if name.startswith("ascend_agent_watch_event_age_seconds")
            )

        until(
            lambda: silent_s() < time.monotonic() - since,
            lambda: f"{self.name} connected again; silent for {silent_s():.0f} s",
            within_s=240,
        )

    def replace_pod(self) -> None:
        """Have its pod made anew: with other mounts, or without a crash's memory."""
        self.cluster.kubectl(
            *("delete", "pod", "-n", product.NAMESPACE, "--grace-period=1"),
            *("-l", f"app.kubernetes.io/name=ascend-{self.name}"),
        )
        self.wait_ready()


def agent(cluster: Cluster) -> Program:
    """The agent of the node."""
    return Program(cluster=cluster, name="agent")


def extender(cluster: Cluster) -> Program:
    """The extender of the cluster."""
    return Program(cluster=cluster, name="extender")


def sleeps_in(pid: int) -> Sequence[str]:
    """In which calls of the kernel the threads of a process wait."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            found.append((task / "wchan").read_text(encoding="ascii"))
        except OSError:
            continue
    return found


class Hanging:
    """The agent's disk hangs: who opens its next journal waits.

    Protects which files stand in the way.
    """

    def __init__(self) -> None:
        """Nothing stands in the way yet."""
        self._pipes: list[Path] = []

    def begin(self) -> None:
        """Nobody reads these pipes, so whoever opens one to write does not return."""
        for number in range(1, 4000):
            pipe = STATE / f"holds.tmp-{number}"
            if not pipe.exists():
                os.mkfifo(pipe)
                self._pipes.append(pipe)

    def wait_caught(self, pid: int) -> None:
        """Wait until a thread of the agent is caught by it."""
        until(
            lambda: any("wait_for_partner" in call for call in sleeps_in(pid)),
            lambda: f"a thread of {pid} hangs: {sleeps_in(pid)}",
            within_s=120,
            every_s=0.002,
        )

    def end(self) -> None:
        """Take them away; who still waits must be killed."""
        for pipe in self._pipes:
            pipe.unlink(missing_ok=True)
        self._pipes.clear()


class Chips:
    """The file that the simulated driver reads, as the agent's container sees it.

    It is a ConfigMap, which the kubelet brings to the node within a minute or so; and
    it is written on the node as well, so that a chip breaks at a certain moment.
    """

    def __init__(self, cluster: Cluster) -> None:
        """Nothing is changed."""
        self._cluster = cluster
        found = cluster.core.read_namespaced_config_map(_DRIVER, product.NAMESPACE)
        self._whole = str(found.data["npu.yaml"])
        self._hanging = STATE / "hanging"

    def break_(self, *chips: int) -> None:
        """Let these chips report a fault, and no others."""
        faults = "".join(f'  - {{chip: {chip}, code: "80818C00"}}\n' for chip in chips)
        text = self._whole + (f"faults:\n{faults}" if chips else "")
        self._put(text)

    def mend(self) -> None:
        """No chip reports a fault."""
        self._put(self._whole)

    def hang(self, pid: int) -> None:
        """Have an agent read another file, one that nobody ever finishes reading.

        Only as that agent sees it: the kubelet reads the real one, and would hang too.
        """
        shutil.rmtree(self._hanging, ignore_errors=True)
        self._hanging.mkdir()
        os.mkfifo(self._hanging / "npu.yaml")
        there = f"/var/lib/ascend-agent/{self._hanging.name}"
        run(*_inside(pid), "mount", "--bind", there, "/etc/ascend-agent")

    def let_go(self, pid: int) -> None:
        """Who waits reads nothing, and the next reads the file as it was."""
        pipe = self._hanging / "npu.yaml"
        released = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        whole = self._hanging / "npu.draft"
        whole.write_text(self._whole, encoding="utf-8")
        whole.replace(pipe)
        os.close(released)

        def unmounted() -> bool:
            try:
                run(*_inside(pid), "umount", "/etc/ascend-agent")
            except CannotError:  # it is being read just now
                return False
            return True

        until(unmounted, "the agent reads its own file", within_s=60)
        shutil.rmtree(self._hanging)

    def _put(self, text: str) -> None:
        self._write(text)
        try:
            self._cluster.core.patch_namespaced_config_map(
                _DRIVER, product.NAMESPACE, {"data": {"npu.yaml": text}}
            )
        finally:
            self._write(text)

    def _write(self, text: str) -> None:
        volumes = (KUBELET_ROOT / "pods").glob(
            "*/volumes/kubernetes.io~configmap/simulated-npus/..data/npu.yaml"
        )
        path = max(volumes, key=lambda path: path.parent.stat().st_mtime).resolve()
        draft = path.with_name("npu.draft")
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)


def _inside(pid: int) -> tuple[str, ...]:
    return ("nsenter", "-t", str(pid), "-m")


def _begun(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except OSError:
        return 0
    return int(text.rsplit(")", 1)[1].split()[19])
