"""Worker processes that run in the loop of the test, on a scripted libdcmi.

The agent's side is real: messages, memory page, deadlines, blame.
"""

import asyncio
import json
import signal
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import inf
from pathlib import Path
from typing import Any, cast

from agent.devices.dcmi import frames
from agent.devices.dcmi.library import CallError, Library
from agent.devices.dcmi.progress import Call, Progress
from agent.devices.dcmi.reader import ChipReader
from agent.devices.dcmi.values import Identity
from agent.devices.dcmi.worker import Worker
from service import clock
from tests.agent.devices.scripted_library import HungError, ScriptedLibrary

#: Longest pause between two looks.
PAUSE_S = 1.0


@dataclass
class SimulatedProcess:
    """A worker process. Protects what it has of the library."""

    library: ScriptedLibrary
    socket: socket.socket
    progress: Progress
    pid: int
    order: Mapping[str, Any]
    has_events: bool
    #: for which it loads the library
    load_s: float = 0.0
    #: whether it ends when it is killed
    is_mortal: bool = True
    #: the same while a call hangs
    is_mortal_hung: bool = True
    is_killed: bool = False
    is_hung: bool = False

    def __post_init__(self) -> None:
        self._task = asyncio.create_task(self._run())

    def kill(self) -> None:
        self.is_killed = True
        if self.is_mortal:
            self._task.cancel()
            self.socket.close()

    def poll(self) -> int | None:
        return -signal.SIGKILL if self.is_killed and self.is_mortal else None

    async def _run(self) -> None:
        try:
            await self._work()
        except HungError as hung:
            self.progress.begin(hung.call)
            self.is_hung = True
            self.is_mortal = self.is_mortal and self.is_mortal_hung

    async def _work(self) -> None:
        self.progress.begin(Call(function="dcmi_init"))
        await asyncio.sleep(self.load_s)
        self.progress.end()
        first_look_s = inf
        skip_for = {
            Call(function=function, card=card, device=device): for_s
            for function, card, device, for_s in self.order["leave_out"]
        }
        self.library.leave_out = lambda call: any(
            clock.loop_s() - first_look_s < skip_for.get(each, -inf)
            for each in (call, call.any_of_chip)
        )
        has_events = self.has_events and self.library.can_subscribe()
        chip_reader = ChipReader(
            cast("Library", self.library),
            now_s=clock.loop_s,
            nodes=Path("/none"),
            has_events=has_events,
            known=[
                Identity(card=card, device=device, physical_id=physical, logic_id=logic)
                for card, device, physical, logic in self.order["chips"]
            ],
        )
        while True:
            message: dict[str, Any]
            self.progress.begin_look(clock.loop_s())
            try:
                message = {"survey": asdict(chip_reader.read_chips())}
            except CallError as error:
                message = {"problem": str(error)}
            first_look_s = min(first_look_s, clock.loop_s())
            self.socket.sendall(frames.encode(message))
            self.progress.beat()
            await asyncio.sleep(max(0.01, min(PAUSE_S, chip_reader.pause_s)))


@dataclass
class SimulatedWorkers:
    """Starts them. Protects those that have been started."""

    library: ScriptedLibrary
    has_events: bool = False
    load_s: float = 0.0
    are_mortal: bool = True
    are_mortal_hung: bool = True
    #: why none can be started; None if one can
    problem: OSError | None = None
    processes: list[SimulatedProcess] = field(default_factory=list)

    def start(
        self,
        _path: str,
        _environment: Mapping[str, str],
        leave_out: Sequence[Sequence[object]],
        chips: Sequence[Sequence[int]],
    ) -> Worker:
        if self.problem is not None:
            raise self.problem
        ours, theirs = socket.socketpair()
        ours.setblocking(False)  # noqa: FBT003  # the standard library's signature
        page = Progress.create()
        process = SimulatedProcess(
            library=self.library,
            socket=theirs,
            progress=Progress(page),
            pid=1000 + len(self.processes),
            order=json.loads(json.dumps({"leave_out": leave_out, "chips": chips})),
            has_events=self.has_events,
            load_s=self.load_s,
            is_mortal=self.are_mortal,
            is_mortal_hung=self.are_mortal_hung,
        )
        self.processes.append(process)
        return Worker(cast("Any", process), Progress(page), ours)

    @property
    def alive(self) -> list[int]:
        """Pids of those that have not ended."""
        return [process.pid for process in self.processes if process.poll() is None]

    def end(self) -> None:
        """End all, as the machine does at last."""
        for process in self.processes:
            process.is_mortal = True
            process.kill()
