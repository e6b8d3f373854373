"""Which containers run on this node, and with what?

The container runtime of the sandbox: containers are records. It outlives the
kubelet's restarts, as a real one does, and is the truth about what a container
really got.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from sandbox.pods import Container, Pod


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What a container is made with."""

    #: device ids by the kubelet's own account when it made the container
    ids: tuple[str, ...]
    #: the plugin's variables, overridden by the pod's own
    env: Mapping[str, str]
    #: names of CDI devices that the container runtime was told
    cdi: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerRecord(Setup):
    """What one container was made with, and for whom."""

    pod_uid: str
    pod: str
    container: str
    running: bool


@dataclass(slots=True, kw_only=True)
class Run:
    """The latest run of one container."""

    pod: Pod
    container: Container
    setup: Setup
    serial: int
    restarts: int
    started_s: float
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    ended_s: float = 0.0
    exit_code: int = 0

    @property
    def is_running(self) -> bool:
        """Whether the container has not ended."""
        return not self.ended.is_set()


class Runtime:
    """The containers of one node.

    Protects: one run per pod and container name; a new one replaces one that
    has ended.
    """

    def __init__(
        self, wall_s: Callable[[], float], changed: Callable[[Run], None] | None = None
    ) -> None:
        """Have no containers yet.

        Args:
            wall_s: The time. Unit: Unix seconds.
            changed: Called when a container has started or ended.
        """
        self._wall_s = wall_s
        self._changed = changed
        self._runs: dict[tuple[str, str], Run] = {}
        self._serial = 0

    def start(self, pod: Pod, container: Container, setup: Setup) -> Run:
        """Make and start a container."""
        before = self._runs.get((pod.uid, container.name))
        if before is not None and before.is_running:
            raise RuntimeError(f"{pod.name}/{container.name} runs already")
        self._serial += 1
        run = Run(
            pod=pod,
            container=container,
            setup=setup,
            serial=self._serial,
            restarts=0 if before is None else before.restarts + 1,
            started_s=self._wall_s(),
        )
        self._runs[pod.uid, container.name] = run
        if self._changed is not None:
            self._changed(run)
        return run

    def end(self, run: Run, exit_code: int) -> None:
        """End a container that runs; one that has ended stays as it is."""
        if run.is_running:
            run.exit_code = exit_code
            run.ended_s = self._wall_s()
            run.ended.set()
            if self._changed is not None:
                self._changed(run)

    def run_of(self, uid: str, container: str) -> Run | None:
        """Return the latest run of a container."""
        return self._runs.get((uid, container))

    def runs_of(self, uid: str) -> list[Run]:
        """Return the latest run of each container of a pod."""
        return [run for (owner, _), run in self._runs.items() if owner == uid]

    def running(self) -> frozenset[tuple[str, str]]:
        """Return the keys of containers that run: {(pod uid, container)}."""
        return frozenset(key for key, run in self._runs.items() if run.is_running)

    def remove(self, uid: str) -> None:
        """Forget the ended containers of a pod."""
        for run in self.runs_of(uid):
            if not run.is_running:
                del self._runs[uid, run.container.name]

    def uids(self) -> set[str]:
        """Return the uids of all pods with a container here."""
        return {uid for uid, _ in self._runs}

    def records(self) -> Iterator[ContainerRecord]:
        """Return every container there is, in the order of starting."""
        for run in sorted(self._runs.values(), key=lambda run: run.serial):
            yield ContainerRecord(
                pod_uid=run.pod.uid,
                pod=run.pod.name,
                container=run.container.name,
                ids=run.setup.ids,
                env=run.setup.env,
                cdi=run.setup.cdi,
                running=run.is_running,
            )
