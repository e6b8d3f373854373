"""How does one admitted pod live?

Init containers one after the other, sidecars beside them, then the app
containers; restarts by the pod's policy; an end by itself, by graceful
deletion. A worker that is cancelled (force deletion, kubelet restart) leaves
containers running; after a force deletion the sync loop ends them.
"""

import asyncio
from dataclasses import dataclass

from sandbox.kubelet import podstatus
from sandbox.kubelet.allocator import Allocator
from sandbox.kubelet.devices import DeviceError
from sandbox.kubelet.podstatus import Observed, Reason
from sandbox.kubelet.profiles import Profile
from sandbox.kubelet.runtime import Run, Runtime, Setup
from sandbox.kubelet.status_queue import Outbox
from sandbox.kubelet.switches import Switches
from sandbox.pods import Container, Pod, environment
from scheduler_core.wire.shapes import ContainerKind
from service import clock

_MAX_BACKOFF_S = 300.0
#: exit code of a container that SIGTERM has ended
TERMINATED = 143


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """What all pods of a node share."""

    allocator: Allocator
    runtime: Runtime
    outbox: Outbox
    switches: Switches
    profile: Profile


class PodWorker:
    """The life of one pod, from admission to its last status.

    Protects: a container is started only after the one before it in the pod's
    order has come far enough, and never while it runs.
    """

    def __init__(self, pod: Pod, node: Node, pod_ip: str) -> None:
        """Take over an admitted pod; `run` makes it live."""
        self.pod = pod
        #: whether all containers have ended for good
        self.has_ended = False
        #: whether somebody wants it to end
        self.is_ending = False
        self._node = node
        self._pod_ip = pod_ip
        self._started_s = clock.wall_s()
        self._waiting: dict[str, Reason] = {}
        # A kubelet that starts anew finds containers that run: no step back to Pending.
        has_begun = any(
            self._run_of(container) is not None
            for container in pod.containers
            if container.kind is ContainerKind.APP
        )
        self._phase = "Running" if has_begun else "Pending"
        self._stop = asyncio.Event()

    def update(self, pod: Pod) -> None:
        """Take a newer version of the pod; a deleted one begins to end."""
        self.pod = pod
        if pod.deleting:
            self.is_ending = True
            self._stop.set()

    async def run(self) -> None:
        """Live until the pod has ended, then say so.

        Cancelled, it leaves the containers as they are.
        """
        self.update(self.pod)
        if not self._stop.is_set():
            await self._live_or_stop()
        self.is_ending = True
        await self._end()

    async def _live_or_stop(self) -> None:
        life = asyncio.create_task(self._live())
        stop = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({life, stop}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (life, stop):
                task.cancel()
            await asyncio.gather(life, stop, return_exceptions=True)
        if life.done() and not life.cancelled() and (error := life.exception()):
            raise error

    async def _live(self) -> None:
        self._publish()
        sidecars: list[asyncio.Task[None]] = []
        try:
            for container in self.pod.containers:
                if container.kind is ContainerKind.APP:
                    continue
                if container.kind is ContainerKind.SIDECAR:
                    await self._ensure(container)
                    sidecars.append(asyncio.create_task(self._supervise(container)))
                elif not await self._initialize(container):
                    return
            self._phase = "Running"
            apps = [c for c in self.pod.containers if c.kind is ContainerKind.APP]
            async with asyncio.TaskGroup() as group:
                for container in apps:
                    await self._ensure(container)
                    group.create_task(self._supervise(container))
        finally:
            for sidecar in sidecars:
                sidecar.cancel()
            await asyncio.gather(*sidecars, return_exceptions=True)

    async def _initialize(self, container: Container) -> bool:
        """Run an ordinary init container until it succeeds; false: it never will."""
        pause = 0.0
        while True:
            run = self._run_of(container)
            if run is None or (not run.is_running and run.exit_code != 0):
                await asyncio.sleep(pause)
                run = await self._create(container)
            if run.is_running:
                ender = asyncio.create_task(self._end_after(run))
                try:
                    await run.ended.wait()
                finally:
                    ender.cancel()
            self._publish()
            if run.exit_code == 0:
                return True
            if self.pod.restart_policy == "Never":
                return False
            pause = self._longer(pause)

    async def _supervise(self, container: Container) -> None:
        """Keep a container running as the pod's policy says."""
        pause = 0.0
        while True:
            run = await self._ensure(container)
            await run.ended.wait()
            self._publish()
            if not self._is_restarted(container, run):
                return
            if pause:
                self._waiting[container.name] = Reason(
                    reason="CrashLoopBackOff",
                    message=f"back-off {pause:g}s restarting failed "
                    f"container={container.name} pod={self.pod.name}",
                )
                self._publish()
            await asyncio.sleep(pause)
            await self._create(container)
            pause = self._longer(pause)

    async def _ensure(self, container: Container) -> Run:
        """Return the container's run; one that survived a kubelet restart counts."""
        run = self._run_of(container)
        if run is None:
            run = await self._create(container)
        return run

    async def _create(self, container: Container) -> Run:
        """Make a container, trying again until its devices can be had."""
        while True:
            try:
                setup = await self._setup(container)
            except DeviceError as error:
                self._waiting[container.name] = Reason(
                    reason="CreateContainerConfigError", message=str(error)
                )
                self._publish()
                await asyncio.sleep(self._node.switches.retry_s)
            else:
                self._waiting.pop(container.name, None)
                run = self._node.runtime.start(self.pod, container, setup)
                self._publish()
                return run

    async def _setup(self, container: Container) -> Setup:
        assigned = await self._node.allocator.prepare(self.pod, container)
        values: dict[str, str] = {}
        ids: list[str] = []
        cdi: list[str] = []
        for assignment in assigned.values():
            values.update(assignment.response.envs)
            ids += sorted(assignment.ids)
            if self._node.profile.passes_cdi:
                cdi += (device.name for device in assignment.response.cdi_devices)
        # kubelet_pods.go:652-656: the pod's own variables come last and win.
        values |= environment(self.pod, container, pod_ip=self._pod_ip)
        return Setup(ids=tuple(ids), env=values, cdi=tuple(cdi))

    async def _end(self) -> None:
        runs = self._node.runtime.runs_of(self.pod.uid)
        running = [run for run in runs if run.is_running]
        if running:
            patience = min(self._node.switches.stop_s, self.pod.grace_s)
            await asyncio.sleep(patience)
            for run in running:
                self._node.runtime.end(run, TERMINATED)
        ended = {run.container.name: run for run in runs}
        succeeded = all(
            (last := ended.get(container.name)) is not None and last.exit_code == 0
            for container in self.pod.containers
            if container.kind is not ContainerKind.SIDECAR
        )
        self._phase = "Succeeded" if succeeded else "Failed"
        self.has_ended = True
        self._publish()

    async def _end_after(self, run: Run) -> None:
        await asyncio.sleep(self._node.switches.init_container_s)
        self._node.runtime.end(run, 0)

    def _is_restarted(self, container: Container, run: Run) -> bool:
        if container.kind is ContainerKind.SIDECAR:
            return True
        policy = self.pod.restart_policy
        return policy == "Always" or (policy == "OnFailure" and run.exit_code != 0)

    def _longer(self, pause: float) -> float:
        doubled = 2 * pause or self._node.switches.restart_backoff_s
        return min(doubled, _MAX_BACKOFF_S)

    def _run_of(self, container: Container) -> Run | None:
        return self._node.runtime.run_of(self.pod.uid, container.name)

    def _publish(self) -> None:
        runs = self._node.runtime.runs_of(self.pod.uid)
        seen = Observed(
            phase=self._phase,
            runs={run.container.name: run for run in runs},
            waiting=dict(self._waiting),
            started_s=self._started_s,
            pod_ip=self._pod_ip,
        )
        self._node.outbox.status(self.pod, podstatus.render(self.pod, seen))
