"""How is each fault done to a world, and undone?"""

import asyncio
import resource
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from sandbox import clock
from sandbox.apiserver.outages import WRITES, Trouble, What
from sandbox.faults import drivers
from sandbox.faults.kinds import Fault, FaultError, Value
from sandbox.kubelet import Kubelet
from sandbox.world import EXTENDER, World, agent_of

Undo = Callable[[], Awaitable[None]]
#: So long a call is on its way before the agent that it asks is killed.
_ON_ITS_WAY_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A fault that has begun."""

    undo: Undo
    #: set when what it waits for has come; from then on its time counts
    since: asyncio.Event | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lasting:
    """A fault that lasts, and the task that will end it."""

    fault: Fault
    begun: Begun
    ending: asyncio.Task[None]


class Breakage:
    """The faults of one world. Protects that each ends, and only once."""

    def __init__(self, world: World) -> None:
        """Break nothing yet."""
        self._world = world
        self._lasting: list[_Lasting] = []

    @property
    def names(self) -> tuple[str, ...]:
        """Which last, the oldest first."""
        return tuple(each.fault.kind.name for each in self._lasting)

    async def begin(self, fault: Fault) -> None:
        """Let a fault begin; it ends by itself when its time is over.

        Raises:
            FaultError: It cannot be done in this world, or not now.
        """
        begun = await _DOING[fault.kind.name](self._world, fault.values)
        if begun is None:
            return
        ending = asyncio.create_task(self._in_time(fault, begun))
        self._lasting.append(_Lasting(fault=fault, begun=begun, ending=ending))

    async def end(self, name: str) -> None:
        """End all faults of a name.

        Raises:
            FaultError: There is none.
        """
        found = [each for each in self._lasting if each.fault.kind.name == name]
        if not found:
            lasting = ", ".join(self.names) or "none"
            raise FaultError([f"{name!r} does not last; lasting: {lasting}"])
        for each in found:
            each.ending.cancel()
            await self._undo(each)

    async def end_all(self) -> None:
        """End whatever lasts."""
        for each in tuple(reversed(self._lasting)):
            each.ending.cancel()
            await self._undo(each)

    async def _in_time(self, fault: Fault, begun: Begun) -> None:
        if fault.for_s is None:
            return
        if begun.since is not None:
            await begun.since.wait()
        await asyncio.sleep(fault.for_s)
        for each in [e for e in self._lasting if e.begun is begun]:
            await self._undo(each)

    async def _undo(self, lasting: _Lasting) -> None:
        self._lasting.remove(lasting)
        await lasting.begun.undo()


def _trouble(what: What, **fixed: Any) -> "_Do":
    async def do(world: World, values: Mapping[str, Value]) -> Begun:
        if world.server is None:
            raise FaultError(["this API server is not ours to break"])
        told: dict[str, Any] = dict(fixed)
        told |= {key: values[key] for key in ("user", "resource") if key in values}
        told["count"] = values.get("count", 0)
        told["delay_s"] = values.get("delay", 0.0)
        told["retry_after_s"] = int(float(str(values.get("retry-after", 0))))
        done = values.get("outcome") == "done"
        trouble = Trouble(what=What.DONE_AND_BROKEN if done else what, **told)
        end = world.troubles.begin(trouble)

        async def undo() -> None:
            end()

        return Begun(undo=undo)

    return do


async def _api_down(world: World, _: Mapping[str, Value]) -> Begun:
    if world.server is None:
        raise FaultError(["this API server is not ours to break"])
    await world.server.pause()
    return Begun(undo=world.server.resume)


async def _api_410(world: World, _: Mapping[str, Value]) -> None:
    if world.server is None:
        raise FaultError(["this API server is not ours to break"])
    world.server.expire()


async def _kubelet_killed(world: World, values: Mapping[str, Value]) -> Begun:
    kubelet = _present(world, values)
    await kubelet.stop()
    return Begun(undo=kubelet.start)


async def _kubelet_restarted(world: World, values: Mapping[str, Value]) -> None:
    await _present(world, values).restart()


async def _checkpoint_lost(world: World, values: Mapping[str, Value]) -> None:
    await _present(world, values).restart(lose_checkpoint=True)


def _present(world: World, values: Mapping[str, Value]) -> Kubelet:
    kubelet = world.kubelets[str(values["node"])]
    if not kubelet.is_up:
        raise FaultError([f"the kubelet of {kubelet.node_name} is away already"])
    return kubelet


async def _kubelet_stubborn(world: World, values: Mapping[str, Value]) -> Begun:
    switches = world.kubelets[str(values["node"])].switches
    switches.ignore_preferences = True

    async def undo() -> None:
        switches.ignore_preferences = False

    return Begun(undo=undo)


async def _agent_killed(world: World, values: Mapping[str, Value]) -> Begun:
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

    async def undo() -> None:
        switches.before_allocate = switches.after_allocate = None
        await killing.undo()

    return Begun(undo=undo, since=killing.done)


async def _extender_killed(world: World, values: Mapping[str, Value]) -> Begun:
    if values["at"] not in {"now", "write"}:
        raise FaultError([f"at: expected now or write, found {values['at']!r}"])
    if EXTENDER not in world.crew.names:
        raise FaultError(["this extender is not ours to kill"])
    killing = _Killing(world, EXTENDER, "ascend-extender", values)
    killing.arm(str(values["at"]))
    return Begun(undo=killing.undo, since=killing.done)


class _Killing:
    """One program, killed once, at the n-th of some moments."""

    def __init__(
        self, world: World, name: str, user: str, values: Mapping[str, Value]
    ) -> None:
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


def _frozen(name: str) -> "_Do":
    async def do(world: World, values: Mapping[str, Value]) -> Begun:
        who = name or agent_of(str(values["node"]))
        if who not in world.crew.names:
            raise FaultError([f"there is no {who} to freeze"])
        world.crew.freeze(who)

        async def undo() -> None:
            world.crew.thaw(who)

        return Begun(undo=undo)

    return do


def _chips_of(values: Mapping[str, Value]) -> tuple[int, ...]:
    """Return the chips that a fault befalls; none of those that name none."""
    chips = values.get("chips", ())
    return chips if isinstance(chips, tuple) else ()


def _driver(do: Callable[..., Undo]) -> "_Do":
    async def begin(world: World, values: Mapping[str, Value]) -> Begun:
        node = world.nodes[str(values["node"])]
        more = {key: value for key, value in values.items() if key != "node"}
        count = sum(node.machine.offers.values())
        if any(chip >= count for chip in _chips_of(values)):
            found = ",".join(map(str, _chips_of(values)))
            expected = f"chips of {node.name}, 0 to {count - 1}"
            raise FaultError([f"chips: expected {expected}, found {found}"])
        return Begun(undo=do(node, **more))

    return begin


async def _disk_full(world: World, values: Mapping[str, Value]) -> Begun:
    program = world.crew.program(agent_of(str(values["node"])))
    pid = program.process.pid
    limits = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, limits[1]))

    async def undo() -> None:
        if not program.has_ended:
            with suppress(ProcessLookupError):
                resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)

    return Begun(undo=undo)


async def _clock_stepped(world: World, values: Mapping[str, Value]) -> Begun:
    pattern, by_s = str(values["user"]), float(str(values["by"]))
    files = [file for user, file in world.clocks.items() if fnmatchcase(user, pattern)]
    if not files:
        known = ", ".join(world.clocks) or "nobody"
        raise FaultError([f"user: expected one of {known}, found {pattern!r}"])
    for file in files:
        clock.step(file, by_s)

    async def undo() -> None:
        for file in files:
            clock.step(file, -by_s)

    return Begun(undo=undo)


_Do = Callable[[World, Mapping[str, Value]], Awaitable[Begun | None]]
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
    "kubelet-restarted": _kubelet_restarted,
    "checkpoint-lost": _checkpoint_lost,
    "kubelet-stubborn": _kubelet_stubborn,
    "agent-killed": _agent_killed,
    "agent-frozen": _frozen(""),
    "extender-killed": _extender_killed,
    "extender-frozen": _frozen(EXTENDER),
    "chip-broken": _driver(drivers.broken),
    "process-left": _driver(drivers.occupied),
    "driver-silent": _driver(drivers.silent),
    "driver-slow": _driver(drivers.slow),
    "driver-lying": _driver(drivers.lying),
    "disk-full": _disk_full,
    "clock-stepped": _clock_stepped,
}
#: The faults that can be done.
DOABLE = frozenset(_DOING)
