"""How are the decisions of the device tables carried out?

Runs `devices.Procedure`s against the plugins, keeps the checkpoint file, and
tells the node's reporter when devices have changed.
"""

import logging
from collections.abc import Callable
from pathlib import Path

from sandbox.kubelet import checkpoint
from sandbox.kubelet.devices import (
    Allocated,
    Answer,
    AskPreference,
    Assignment,
    DeviceError,
    DeviceTables,
    Preferred,
    Question,
)
from sandbox.kubelet.plugins import PluginServer
from sandbox.kubelet.switches import Switches
from sandbox.pods import Container, Pod
from service import clock

_log = logging.getLogger(__name__)


class Allocator:
    """The device manager of one kubelet process.

    Protects: tables and checkpoint file tell the same, once a call has ended.
    """

    def __init__(
        self,
        directory: Path,
        tables: DeviceTables,
        *,
        switches: Switches,
        changed: Callable[[], None],
    ) -> None:
        """Keep plugins' sockets and the checkpoint in `directory`."""
        self.tables = tables
        #: how long each Allocate took. Unit: seconds
        self.allocate_s: list[float] = []
        self._checkpoint = directory / checkpoint.NAME
        self._switches = switches
        self._changed = changed
        self._plugins = PluginServer(directory, self)

    async def start(self) -> None:
        """Read the checkpoint and let plugins register."""
        try:
            checkpoint.read(self._checkpoint, self.tables, clock.loop_s())
        except ValueError:
            # As the real one (manager.go:342): it starts without.
            _log.exception("the checkpoint cannot be read, devices are forgotten")
        await self._plugins.start()

    async def stop(self) -> None:
        """Hang up on all plugins."""
        await self._plugins.stop()

    async def allocate(self, pod: Pod, container: Container) -> None:
        """Give a container its devices.

        Raises:
            DeviceError: it cannot have them.
        """
        before = len(self.tables.assignments)
        procedure = self.tables.allocate(pod, container)
        try:
            question = next(procedure)
            while True:
                try:
                    answer = await self._ask(question)
                except DeviceError as error:
                    question = procedure.throw(error)
                else:
                    question = procedure.send(answer)
        except StopIteration:
            if len(self.tables.assignments) != before:
                self._write()

    async def prepare(self, pod: Pod, container: Container) -> dict[str, Assignment]:
        """Return what a container that is about to be created gets.

        Where the kubelet has lost the container's devices it allocates anew
        (manager.go:945), at the same time as an admission, perhaps.

        Raises:
            DeviceError: the container cannot be created now.
        """
        lost = False
        for resource, count in container.limits.items():
            if count == 0 or not self.tables.is_plugin_resource(resource):
                continue
            assigned = self.tables.assigned(pod.uid, container.name).get(resource)
            if resource not in self.tables.endpoints:
                raise DeviceError(
                    f"endpoint not found in cache for a registered resource: {resource}"
                )
            if assigned is not None and self.tables.endpoints[resource] is None:
                plugin = self._plugins.endpoint(resource)
                await plugin.prepare(tuple(sorted(assigned.ids)))
            if assigned is None and pod.uid in self.tables.active():
                lost = True
        if lost:
            await self.allocate(pod, container)
        return self.tables.assigned(pod.uid, container.name)

    def capacity(self) -> tuple[dict[str, int], dict[str, int]]:
        """Return the node's capacity and allocatable of plugins' resources."""
        before = set(self.tables.healthy)
        answer = self.tables.capacity(clock.loop_s())
        if set(self.tables.healthy) != before:
            self._write()
        return answer

    def plugin_connected(self, resource: str) -> None:
        """Take note of a new plugin; its devices come with its first list."""
        self.tables.connected(resource)

    def plugin_reported(self, resource: str, devices: dict[str, str]) -> None:
        """Take a plugin's device list."""
        self.tables.reported(resource, devices)
        self._write()
        self._changed()

    def plugin_disconnected(self, resource: str) -> None:
        """Count the devices of a plugin that is gone as unhealthy."""
        self.tables.disconnected(resource, clock.loop_s())
        self._changed()

    async def _ask(self, question: Question) -> Answer:
        plugin = self._plugins.endpoint(question.resource)
        if not isinstance(question, AskPreference):
            begin = clock.loop_s()
            if self._switches.before_allocate is not None:
                self._switches.before_allocate()
            responses = await plugin.allocate(question.ids)
            self.allocate_s.append(clock.loop_s() - begin)
            if self._switches.after_allocate is not None:
                self._switches.after_allocate()
            return Allocated(responses=responses)
        if self._switches.before_preference is not None:
            self._switches.before_preference()
        ids = await plugin.preferred(
            question.available, question.must_include, question.size
        )
        if self._switches.scripted_ids:
            ids = tuple(self._switches.scripted_ids.popleft())
        elif self._switches.ignore_preferences:
            ids = ()
        return Preferred(ids=ids)

    def _write(self) -> None:
        checkpoint.write(self._checkpoint, self.tables)
