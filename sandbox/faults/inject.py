"""How is each fault done to a world, and undone?"""

import asyncio
import resource
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import (
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
    suppress,
)
from fnmatch import fnmatchcase
from typing import Any

from sandbox import clock
from sandbox.apiserver import ApiServer
from sandbox.apiserver.outages import WRITES, Trouble, What
from sandbox.faults import drivers
from sandbox.faults.kinds import Fault, FaultError, Value
from sandbox.jobs import JobController
from sandbox.kubelet import Kubelet
from sandbox.world import EXTENDER, World, agent_of

#: So long a call is on its way before the agent that it asks is killed.
_ON_ITS_WAY_S = 0.1
_Values = Mapping[str, Value]
#: A fault while it lasts. It yields an event if it waits for something: set when that
#: has come, and from then on the fault's time counts.
_Lasting = AsyncIterator[asyncio.Event | None]
_Do = Callable[[World, _Values], _Lasting]


class Breakage:
    """The faults of one world. Protects that each ends, and only once."""

    def __init__(self, world: World) -> None:
        self._world = world
        #: {what undoes a fault: the fault, and the task that will end it}
        self._lasting: dict[AsyncExitStack, tuple[Fault, asyncio.Task[None]]] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Which last, the oldest first."""
        return tuple(fault.kind.name for fault, _ in self._lasting.values())

    async def begin(self, fault: Fault) -> None:
        """Let a fault begin; it ends by itself when its time is over.

        Raises:
            FaultError: It cannot be done in this world, or not now.
        """
        undo = AsyncExitStack()
        lasting = asynccontextmanager(_DOING[fault.kind.name])
        since = await undo.enter_async_context(lasting(self._world, fault.values))
        if fault.kind.is_momentary:
            await undo.aclose()
            return
        ending = asyncio.create_task(self._in_time(fault.for_s, since, undo))
        self._lasting[undo] = fault, ending

    async def end(self, name: str) -> None:
        """End all faults of a name.

        Raises:
            FaultError: There is none.
        """
        found = [
            u for u, (fault, _) in self._lasting.items() if fault.kind.name == name
        ]
        if not found:
            lasting = ", ".join(self.names) or "none"
            raise FaultError([f"{name!r} does not last; lasting: {lasting}"])
        await self._end(found)

    async def end_all(self) -> None:
        """End whatever lasts."""
        await self._end(tuple(reversed(self._lasting)))

    async def _end(self, undos: Sequence[AsyncExitStack]) -> None:
        for undo in undos:
            _, ending = self._lasting.pop(undo)
            ending.cancel()
            await undo.aclose()

    async def _in_time(
        self, for_s: float | None, since: asyncio.Event | None, undo: AsyncExitStack
    ) -> None:
        if for_s is None:
            return
        if since is not None:
            await since.wait()
        await asyncio.sleep(for_s)
        if self._lasting.pop(undo, None):
            await undo.aclose()


def _server(world: World) -> ApiServer:
    if world.server is None:
        raise FaultError(["this API server is not ours to break"])
    return world.server


def _trouble(what: What, **fixed: Any) -> _Do:
    async def do(world: World, values: _Values) -> _Lasting:
        _server(world)
        told: dict[str, Any] = dict(fixed)
        told |= {key: values[key] for key in ("user", "resource") if key in values}
        told["count"] = values.get("count", 0)
        told["delay_s"] = values.get("delay", 0.0)
        told["retry_after_s"] = int(float(str(values.get("retry-after", 0))))
        done = values.get("outcome") == "done"
        trouble = Trouble(what=What.DONE_AND_BROKEN if done else what, **told)
        end = world.troubles.begin(trouble)
        yield None
        end()

    return do


async def _api_down(world: World, _: _Values) -> _Lasting:
    await _server(world).pause()
    yield None
    await _server(world).resume()


async def _api_410(world: World, _: _Values) -> _Lasting:
    _server(world).expire()
    yield None


async def _kubelet_killed(world: World, values: _Values) -> _Lasting:
    kubelet = _present(world, values)
    await kubelet.stop()
    yield None
    await kubelet.start()


def _kubelet_restarted(*, lose_checkpoint: bool) -> _Do:
    async def do(world: World, values: _Values) -> _Lasting:
        await _present(world, values).restart(lose_checkpoint=lose_checkpoint)
        yield None

    return do


def _present(world: World, values: _Values) -> Kubelet:
    kubelet = world.kubelets[str(values["node"])]
    if not kubelet.is_up:
        raise FaultError([f"the kubelet of {kubelet.node_name} is away already"])
    return kubelet


async def _kubelet_stubborn(world: World, values: _Values) -> _Lasting:
    switches = world.kubelets[str(values["node"])].switches
    switches.ignore_preferences = True
    yield None
    switches.ignore_preferences = False


async def _agent_killed(world: World, values: _Values) -> _Lasting:
    node = str(values["node"])
    switches = world.kubelets[node].switches
    killing = _Killing(world, agent_of(node), f"ascend-agent-{node}", values)
    match values["at"]:
        case "asked":
            switches.before_allocate = killing.asked
        case "answered":
            switches.after_allocate = killing.reached
        case moment:
            killing.arm(str(moment))
    yield killing.done
    switches.before_allocate = switches.after_allocate = None
    await killing.undo()


async def _extender_killed(world: World, values: _Values) -> _Lasting:
    if values["at"] not in {"now", "write"}:
        raise FaultError([f"at: expected now or write, found {values['at']!r}"])
    if EXTENDER not in world.crew.names:
        raise FaultError(["this extender is not ours to kill"])
    killing = _Killing(world, EXTENDER, "ascend-extender", values)
    killing.arm(str(values["at"]))
    yield killing.done
    await killing.undo()


class _Killing:
    """One program, killed once, at the n-th of some moments."""

    def __init__(self, world: World, name: str, user: str, values: _Values) -> None:
        self._crew = world.crew
        self._troubles = world.troubles
        self._name = name
        self._user = user
        self._left = int(str(values["nth"]))
        self._disarm: Callable[[], None] = lambda: None
        self.done = asyncio.Event()

    def arm(self, moment: str) -> None:
        if moment == "now":
            self._kill()
            return
        self._disarm = self._troubles.begin(
            Trouble(
                what=What.CRASH,
                verbs=WRITES,
                user=self._user,
                spared=self._left - 1,
                count=1,
                then=self._kill,
            )
        )

    def reached(self) -> None:
        """Count a moment; kill at the last."""
        self._left -= 1
        if self._left == 0:
            self._kill()

    def asked(self) -> None:
        """Count a call that is about to be sent; the last one is never answered."""
        self._left -= 1
        if self._left == 0:
            self._crew.freeze(self._name)
            asyncio.get_running_loop().call_later(_ON_ITS_WAY_S, self._kill)

    def _kill(self) -> None:
        self._crew.kill(self._name)
        self.done.set()

    async def undo(self) -> None:
        self._disarm()
        self._left = 0
        if self.done.is_set():
            await self._crew.restart(self._name)


def _frozen(name: str) -> _Do:
    async def do(world: World, values: _Values) -> _Lasting:
        who = name or agent_of(str(values["node"]))
        if who not in world.crew.names:
            raise FaultError([f"there is no {who} to freeze"])
        world.crew.freeze(who)
        yield None
        world.crew.thaw(who)

    return do


def _controller(world: World) -> JobController:
    if world.jobs is None:
        raise FaultError(["this Job controller is not ours to break"])
    return world.jobs


async def _job_late(world: World, values: _Values) -> _Lasting:
    jobs = _controller(world)
    jobs.delay_s = float(str(values["delay"]))
    yield None
    jobs.delay_s = 0.0
    jobs.catch_up()


async def _job_double(world: World, _: _Values) -> _Lasting:
    jobs = _controller(world)
    jobs.lose_cache()
    yield None
    jobs.find_cache()


async def _container_outlives(world: World, values: _Values) -> _Lasting:
    switches = world.kubelets[str(values["node"])].switches
    switches.process_lag_s = float(str(values["lag"]))
    yield None
    switches.process_lag_s = 0.0


def _chips_of(values: _Values) -> tuple[int, ...]:
    """Return the chips that a fault befalls; none of those that name none."""
    chips = values.get("chips", ())
    return chips if isinstance(chips, tuple) else ()


def _driver(breaking: Callable[..., AbstractContextManager[object]]) -> _Do:
    async def do(world: World, values: _Values) -> _Lasting:
        node = world.nodes[str(values["node"])]
        more = {key: value for key, value in values.items() if key != "node"}
        count = sum(node.machine.offers.values())
        if any(chip >= count for chip in _chips_of(values)):
            found = ",".join(map(str, _chips_of(values)))
            expected = f"chips of {node.name}, 0 to {count - 1}"
            raise FaultError([f"chips: expected {expected}, found {found}"])
        with breaking(node, **more):
            yield None

    return do


async def _disk_full(world: World, values: _Values) -> _Lasting:
    program = world.crew.program(agent_of(str(values["node"])))
    pid = program.process.pid
    limits = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, limits[1]))
    yield None
    if not program.has_ended:
        with suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)


async def _clock_stepped(world: World, values: _Values) -> _Lasting:
    pattern, by_s = str(values["user"]), float(str(values["by"]))
    files = [file for user, file in world.clocks.items() if fnmatchcase(user, pattern)]
    if not files:
        known = ", ".join(world.clocks) or "nobody"
        raise FaultError([f"user: expected one of {known}, found {pattern!r}"])
    for file in files:
        clock.step(file, by_s)
    yield None
    for file in files:
        clock.step(file, -by_s)


_DOING: Mapping[str, _Do] = {
    "api-slow": _trouble(What.SLOW),
    "api-down": _api_down,
    "api-409": _trouble(What.REFUSED, status=409, verbs=WRITES),
    "api-410": _api_410,
    "api-429": _trouble(What.REFUSED, status=429),
    "api-500": _trouble(What.REFUSED, status=500),
    "api-cut": _trouble(What.CUT),
    "api-silent": _trouble(What.SILENT),
    "api-stale": _trouble(What.STALE),
    "kubelet-killed": _kubelet_killed,
    "kubelet-restarted": _kubelet_restarted(lose_checkpoint=False),
    "checkpoint-lost": _kubelet_restarted(lose_checkpoint=True),
    "kubelet-stubborn": _kubelet_stubborn,
    "agent-killed": _agent_killed,
    "agent-frozen": _frozen(""),
    "extender-killed": _extender_killed,
    "extender-frozen": _frozen(EXTENDER),
    "job-late": _job_late,
    "job-double": _job_double,
    "chip-broken": _driver(drivers.broken),
    "process-left": _driver(drivers.occupied),
    "container-outlives": _container_outlives,
    "driver-silent": _driver(drivers.silent),
    "driver-slow": _driver(drivers.slow),
    "driver-lying": _driver(drivers.lying),
    "disk-full": _disk_full,
    "clock-stepped": _clock_stepped,
}
#: The faults that can be done.
DOABLE = frozenset(_DOING)
