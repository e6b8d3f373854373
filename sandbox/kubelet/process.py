"""One life of a kubelet, from its start to its stop, restart or panic."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

from sandbox.apiclient import ApiClient, Event
from sandbox.kubelet import checkpoint
from sandbox.kubelet.allocator import Allocator
from sandbox.kubelet.devices import DeviceTables, KubeletPanicError
from sandbox.kubelet.node import Machine, NodeReporter, renew_lease
from sandbox.kubelet.podlist import PodListServer
from sandbox.kubelet.podresources import SOCKET, PodResourcesServer
from sandbox.kubelet.status_queue import Outbox
from sandbox.kubelet.syncloop import SyncLoop
from sandbox.kubelet.worker import Node


class Process:
    """The tasks and servers of one kubelet process, wired together."""

    def __init__(
        self, machine: Machine, port: int, panicked: Callable[[], None]
    ) -> None:
        """Prepare a process on `machine`; `start` starts it.

        Args:
            machine: The node.
            port: Of `/pods`; 0 takes a free one.
            panicked: Called when the process died of a panic.
        """
        self.port = port
        self._machine = machine
        self._panicked = panicked
        self._main: asyncio.Task[None] | None = None
        self._client = ApiClient(
            machine.api_url, machine.token, authority=machine.authority
        )
        self._group = asyncio.TaskGroup()
        self._changed = asyncio.Event()
        self._tables = DeviceTables(
            chance=machine.chance,
            running_at_start=machine.runtime.running(),
            active=self._active,
        )
        self.allocator = Allocator(
            machine.root / "device-plugins",
            self._tables,
            switches=machine.switches,
            changed=self._changed.set,
        )
        self._outbox = Outbox(self._client, machine.node_name)
        node = Node(
            allocator=self.allocator,
            runtime=machine.runtime,
            outbox=self._outbox,
            switches=machine.switches,
            profile=machine.profile,
        )
        number = sum(machine.node_name.encode()) % 250 + 1
        self.sync = SyncLoop(node, self._group, pod_network=f"10.244.{number}")

    async def start(self) -> None:
        """Serve the sockets and begin to follow the API server."""
        served = asyncio.Event()
        self._main = asyncio.create_task(self._run(served))
        waiting = asyncio.create_task(served.wait())
        await asyncio.wait({self._main, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._main.done():
            await self._main
        self._main.add_done_callback(self._ended)

    async def stop(self) -> None:
        """End all tasks and close all sockets."""
        if self._main is not None:
            self._main.remove_done_callback(self._ended)
            self._main.cancel()
            await asyncio.gather(self._main, return_exceptions=True)

    async def _run(self, served: asyncio.Event) -> None:
        machine = self._machine
        is_new = not (machine.root / "device-plugins" / checkpoint.NAME).exists()
        pod_list = PodListServer(self.sync, self.port)
        pod_resources = PodResourcesServer(
            machine.root / "pod-resources" / SOCKET,
            self._tables,
            self.sync,
            profile=machine.profile,
        )
        async with self._client, AsyncExitStack() as stack, self._group as group:
            for server in (pod_list, pod_resources, self.allocator):
                stack.push_async_callback(server.stop)
                await server.start()
            self.port = pod_list.port
            reporter = NodeReporter(
                self._client,
                machine,
                self.allocator.capacity,
                port=self.port,
                changed=self._changed,
                is_new=is_new,
            )
            group.create_task(self._outbox.run())
            group.create_task(reporter.run())
            group.create_task(renew_lease(self._client, machine.node_name))
            group.create_task(_follow(self._client, machine.node_name, self.sync))
            served.set()

    def _ended(self, main: asyncio.Task[None]) -> None:
        if main.cancelled():
            return
        error = main.exception()
        if isinstance(error, ExceptionGroup) and error.subgroup(KubeletPanicError):
            self._panicked()
            return
        main.get_loop().call_exception_handler(
            {
                "message": f"the kubelet of {self._machine.node_name} died",
                "exception": error,
                "task": main,
            }
        )

    def _active(self) -> frozenset[str]:
        return frozenset(pod.uid for pod in self.sync.active_pods())


async def _follow(client: ApiClient, node_name: str, sync: SyncLoop) -> None:
    """Hand every event of this node's pods to the sync loop, one at a time."""
    events: asyncio.Queue[Event] = asyncio.Queue()

    async def watch() -> None:
        chosen = {"fieldSelector": f"spec.nodeName={node_name}"}
        async for event in client.follow("/api/v1/pods", chosen):
            events.put_nowait(event)

    async with asyncio.TaskGroup() as group:
        group.create_task(watch())
        while True:
            await sync.handle(await events.get())
