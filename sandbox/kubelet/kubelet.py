"""A kubelet to embed: start it, stop it, restart it, look inside.

`Kubelet` is the machine: its directories and containers stay when the process
on it is restarted.
"""

import asyncio
import random  # noqa: TID251  # the kubelet's order is random; ours has a seed
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from sandbox.kubelet import checkpoint
from sandbox.kubelet.node import Machine
from sandbox.kubelet.podresources import SOCKET
from sandbox.kubelet.process import Process
from sandbox.kubelet.processes import Processes
from sandbox.kubelet.profiles import NEWEST, Profile
from sandbox.kubelet.runtime import ContainerRecord, Runtime
from sandbox.kubelet.switches import Switches
from sandbox.pods import HOST_IP
from service import clock


class Kubelet:
    """A node with its kubelet.

    Protects: one kubelet process at a time; containers belong to the node.
    """

    def __init__(  # noqa: PLR0913  # what there is to say of a node
        self,
        *,
        node_name: str,
        api_url: str,
        token: str,
        root: Path,
        authority: Path | None = None,
        labels: Mapping[str, str] = MappingProxyType({}),
        seed: int = 0,
        profile: Profile = NEWEST,
        process_file: Path | None = None,
    ) -> None:
        """Describe the node; `start` starts its kubelet.

        Args:
            node_name: Name of the Node object, which the kubelet makes.
            api_url: Base URL of the API server; it need not be up yet.
            token: Bearer token for the API server.
            root: Takes `device-plugins/`, `pod-resources/`. Keep it short: the
                sockets in it must stay below 108 bytes.
            authority: What the API server's certificate is checked with, if it has one.
            labels: Labels of the Node object.
            seed: Of every random order. Same seed, same ids.
            profile: Of which version it is.
            process_file: Where a simulated driver reads which processes containers
                have on the chips; None: there is no such driver.
        """
        #: change them at any time
        self.switches = Switches()
        self.node_name = node_name
        #: how often the process died where the real one dereferences nil
        self.panics = 0
        self._processes: Processes | None = None
        if process_file is not None:
            self._processes = Processes(process_file, self.switches)
        told = self._processes.changed if self._processes else None
        self._machine = Machine(
            node_name=node_name,
            api_url=api_url,
            token=token,
            authority=authority,
            root=root,
            labels=labels,
            profile=profile,
            runtime=Runtime(clock.wall_s, told),
            switches=self.switches,
            chance=random.Random(seed),  # noqa: S311  # an order, not a secret
        )
        self._process: Process | None = None
        self._port = 0
        self._recovery: asyncio.Task[None] | None = None

    @property
    def device_plugin_dir(self) -> Path:
        """Where plugins put their sockets."""
        return self._machine.root / "device-plugins"

    @property
    def pod_resources_socket(self) -> Path:
        """Where pod-resources is served."""
        return self._machine.root / "pod-resources" / SOCKET

    @property
    def url(self) -> str:
        """Base URL of `/pods`; the port stays the same over restarts."""
        return f"http://{HOST_IP}:{self._port}"

    @property
    def allocate_s(self) -> Sequence[float]:
        """How long each Allocate of this process took that succeeded. Unit: seconds."""
        return tuple(self._running().allocator.allocate_s)

    @property
    def is_up(self) -> bool:
        """Whether its process runs."""
        return self._process is not None

    async def start(self) -> None:
        """Start the kubelet: its sockets are served when this returns."""
        if self._process is not None:
            raise RuntimeError(f"the kubelet of {self.node_name} runs already")
        process = Process(self._machine, self._port, self._panicked)
        await process.start()
        self._port = process.port
        self._process = process

    async def stop(self) -> None:
        """End the kubelet; containers go on."""
        recovery, self._recovery = self._recovery, None
        if recovery is not None and recovery is not asyncio.current_task():
            recovery.cancel()
            await asyncio.gather(recovery, return_exceptions=True)
        process, self._process = self._process, None
        if process is not None:
            await process.stop()

    async def restart(self, *, lose_checkpoint: bool = False) -> None:
        """End the kubelet and start another; pods are admitted again."""
        await self.stop()
        if lose_checkpoint:
            (self.device_plugin_dir / checkpoint.NAME).unlink(missing_ok=True)
        await self.start()

    async def admit(self, order: Iterable[str]) -> None:
        """Admit held pods in this order; returns when the last is decided.

        Args:
            order: Names of pods, or "namespace/name"; one that is not here yet
                is waited for.
        """
        await self._running().sync.admit(order)

    def containers(self) -> list[ContainerRecord]:
        """Return what containers were made with, in the order of starting."""
        return list(self._machine.runtime.records())

    def allocated(self) -> dict[str, set[str]]:
        """Return the ids that the kubelet holds for taken: {resource: ids}."""
        tables = self._running().allocator.tables
        return {resource: set(ids) for resource, ids in tables.allocated.items()}

    def finish(self, pod: str, container: str, exit_code: int = 0) -> None:
        """Let a running container end by itself.

        Args:
            pod: Name of the pod, or its uid.
            container: Name of the container.
            exit_code: 0 is success.
        """
        runtime = self._machine.runtime
        for uid in runtime.uids():
            run = runtime.run_of(uid, container)
            if run is not None and run.is_running and pod in {uid, run.pod.name}:
                runtime.end(run, exit_code)
                return
        raise LookupError(f"no running container {container!r} of pod {pod!r}")

    def end_processes(self, pod: str) -> None:
        """End the processes that an ended pod of this name has left on its chips."""
        if self._processes is not None:
            self._processes.end_left(pod)

    def _panicked(self) -> None:
        self.panics += 1
        self._recovery = asyncio.create_task(self.restart())

    def _running(self) -> Process:
        if self._process is None:
            raise RuntimeError(f"the kubelet of {self.node_name} does not run")
        return self._process
