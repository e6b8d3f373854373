"""A whole cluster: starts in dependency order, ends in the reverse one."""

import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import aiohttp

import sandbox
from sandbox import clock
from sandbox.apiclient import ApiClient
from sandbox.apiserver import ApiServer
from sandbox.apiserver.outages import Troubles
from sandbox.jobs import JobController
from sandbox.kubelet import Kubelet
from sandbox.scheduler import ExtenderSettings, SchedulingLoop
from sandbox.world import directories
from sandbox.world.directories import ControlPlane, Node, Premises
from sandbox.world.machines import Machine
from sandbox.world.programs import EXTENDER, Crew, Programs, agent_of
from sandbox.world.readiness import Readiness, address

#: Agents that are started together: each needs a processor for a second.
_AT_ONCE = 4
#: What would let settings of the person's shell into our programs.
_FOREIGN = ("ASCEND_AGENT_", "ASCEND_EXTENDER_", "NODE_NAME", "KUBECONFIG")


class PortTakenError(Exception):
    """The API server cannot listen where it should; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderPlace:
    """What the extender has to be told."""

    api_url: str
    service_account_dir: Path
    address_file: Path
    clock_file: Path
    #: where it listens; a port that it had before, once it is known
    listen: str = "127.0.0.1:0"


def _python(*words: str) -> Sequence[str]:
    """Return how a module is run, and not a file of its name in the working folder."""
    return sys.executable, "-P", "-m", *words


def agent_command(node: Node) -> Sequence[str]:
    """Return how our own agent is started."""
    return (
        *_python("sandbox.clock", str(node.clock_file), "agent"),
        *("--node-name", node.name),
        *("--kubelet-dir", str(node.kubelet_dir)),
        *("--pod-resources-socket", str(node.pod_resources_socket)),
        *("--kubelet-url", node.kubelet_url),
        *("--api-server", node.api_url),
        *("--service-account-dir", str(node.service_account_dir)),
        *("--state-dir", str(node.state_dir)),
        *("--driver", "simulated"),
        *("--driver-file", str(node.driver_file)),
        *("--listen", "127.0.0.1:0"),
        *("--address-file", str(node.address_file)),
    )


def extender_command(place: ExtenderPlace) -> Sequence[str]:
    """Return how our own extender is started."""
    return (
        *_python("sandbox.clock", str(place.clock_file), "extender"),
        *("--api-server", place.api_url),
        *("--service-account-dir", str(place.service_account_dir)),
        *("--listen", place.listen),
        *("--address-file", str(place.address_file)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    """Which programs a world runs; any that serves /readyz at its address will do."""

    agent: Callable[[Node], Sequence[str]] = agent_command
    extender: Callable[[ExtenderPlace], Sequence[str]] = extender_command


def rescheduling(mode: str) -> Commands:
    """Return our own programs, the extender with this `--rescheduling`."""

    def command(place: ExtenderPlace) -> Sequence[str]:
        return (*extender_command(place), "--rescheduling", mode)

    return Commands(extender=command)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A cluster that is up.

    Shape of the mappings: {node name: what belongs to the node}.
    """

    premises: Premises
    api_url: str
    #: speaks as an administrator
    api: ApiClient
    #: for everything else that is served over HTTP
    http: aiohttp.ClientSession
    nodes: Mapping[str, Node]
    kubelets: Mapping[str, Kubelet]
    extender_url: str
    #: None where somebody else schedules
    scheduling: SchedulingLoop | None
    #: None where somebody else makes the pods of Jobs
    jobs: JobController | None
    #: its programs, to be killed and started again
    crew: Crew
    #: None where it is somebody else's
    server: ApiServer | None
    #: what befalls requests to `server`
    troubles: Troubles
    #: {user: how far the clock on its wall has been stepped}; those that can be
    clocks: Mapping[str, Path]

    async def metrics(self, program: str) -> str:
        """Return what a program counts, in Prometheus' text format.

        Args:
            program: Name of a node, for its agent; or "extender".
        """
        url = self.extender_url
        if program != "extender":
            url = f"http://{address(self.nodes[program].address_file)}"
        async with self.http.get(f"{url}/metrics") as response:
            response.raise_for_status()
            return await response.text()


@asynccontextmanager
async def running(
    nodes: Sequence[str | Machine],
    commands: Commands | None = None,
    *,
    below: Path | None = None,
    control: ControlPlane | None = None,
    port: int = 0,
) -> AsyncIterator[World]:
    """Have a cluster while the context lasts.

    Args:
        nodes: Its nodes; one of which only the name is said is a server with eight
            chips.
        commands: Its programs; our own by default.
        below: Where its directory is made; where temporary files go by default.
        control: An API server that is up, for nodes, agents and extender to join, if
            it has no extender yet; scheduling is then somebody else's. The sandbox's
            own by default.
        port: Of its own API server; 0 for any.

    Raises:
        PortTakenError: `port` cannot be had.
        NotReadyError: it did not come up in time.
        ProgramDiedError: a program ended by itself; also later, inside.
    """
    programs = Programs()
    with directories.opened(below) as place:
        try:
            async with AsyncExitStack() as stack:
                builder = _Builder(stack, programs, place, commands or Commands())
                machines = [Machine(name=n) if isinstance(n, str) else n for n in nodes]
                yield await builder.build(machines, control, port)
        finally:
            programs.kill()


class _Builder:
    """Puts a world together; whatever is started is on the stack at once."""

    def __init__(
        self,
        stack: AsyncExitStack,
        programs: Programs,
        place: Premises,
        commands: Commands,
    ) -> None:
        self._stack = stack
        self._programs = programs
        self._place = place
        self._commands = commands
        self._server: ApiServer | None = None
        self._troubles = Troubles()
        self._starts: dict[str, Callable[[], None]] = {}
        self._clocks: dict[str, Path] = {}

    async def build(
        self, machines: Sequence[Machine], given: ControlPlane | None, port: int
    ) -> World:
        control = given or await self._start_api_server(port)
        api = await self._stack.enter_async_context(
            ApiClient(
                control.url, control.token_of("admin"), authority=control.authority
            )
        )
        http = await self._stack.enter_async_context(aiohttp.ClientSession())
        kubelets = {
            each.name: await self._start_kubelet(each, control) for each in machines
        }
        nodes = {
            each.name: self._node(each, kubelets[each.name], control)
            for each in machines
        }
        extender_file = None if control.extender_url else self._start_extender(control)
        self._stack.push_async_callback(self._programs.stop)
        await self._stack.enter_async_context(self._programs.watched())
        ready = Readiness(api, http, self._programs)
        first, *others = _groups(tuple(nodes.values()))
        self._start_agents(first)
        extender_url = control.extender_url
        if extender_file is not None:
            await ready.program(extender_file)
            extender_url = f"http://{address(extender_file)}"
        scheduling, jobs = None, None
        if given is None:
            scheduling = await self._start_scheduling(control, extender_url)
            jobs = await self._start_jobs(control)
        await ready.nodes(first)
        for group in others:
            self._start_agents(group)
            await ready.nodes(group)
        return World(
            premises=self._place,
            api_url=control.url,
            api=api,
            http=http,
            nodes=nodes,
            kubelets=kubelets,
            extender_url=extender_url,
            scheduling=scheduling,
            jobs=jobs,
            crew=Crew(self._programs, self._starts),
            server=self._server,
            troubles=self._troubles,
            clocks=self._clocks,
        )

    async def _start_api_server(self, port: int) -> ControlPlane:
        server = ApiServer(middlewares=(self._troubles.middleware(),))
        self._server = server
        self._troubles.follow(lambda: server.store.log.revision)
        self._stack.push_async_callback(server.stop)
        try:
            await server.start(port)
        except OSError as error:
            raise PortTakenError(
                f"port {port} cannot be had: {os.strerror(error.errno or 0)}"
            ) from error
        self._place.write_kubeconfig(server.url)
        return ControlPlane(url=server.url)

    async def _start_kubelet(self, machine: Machine, control: ControlPlane) -> Kubelet:
        name = machine.name
        kubelet = Kubelet(
            node_name=name,
            api_url=control.url,
            token=control.token_of(f"system:node:{name}"),
            authority=control.authority,
            root=self._place.root / name,
            labels=machine.labels,
            process_file=self._place.root / name / directories.PROCESS_FILE,
        )
        self._stack.push_async_callback(kubelet.stop)
        await kubelet.start()
        return kubelet

    def _node(self, machine: Machine, kubelet: Kubelet, control: ControlPlane) -> Node:
        name = machine.name
        account = self._place.service_account(f"ascend-agent-{name}", control)
        node = Node(
            name=name,
            root=self._place.root / name,
            api_url=control.url,
            kubelet_url=kubelet.url,
            service_account_dir=account,
            machine=machine,
        )
        node.state_dir.mkdir()
        node.begin()
        return node

    def _start_extender(self, control: ControlPlane) -> Path:
        address_file = self._place.root / "extender-address"
        place = ExtenderPlace(
            api_url=control.url,
            service_account_dir=self._place.service_account("ascend-extender", control),
            address_file=address_file,
            clock_file=self._place.root / "extender-clock",
        )
        clock.begin(place.clock_file)

        def start() -> None:
            known = address_file.exists()
            there = replace(place, listen=address(address_file)) if known else place
            command = self._commands.extender(there)
            self._note_clock("ascend-extender", place.clock_file, command)
            self._start_program(EXTENDER, command)

        self._starts[EXTENDER] = start
        start()
        return address_file

    def _start_agents(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            name = agent_of(node.name)
            command = self._commands.agent(node)
            self._note_clock(f"ascend-agent-{node.name}", node.clock_file, command)
            start = partial(self._start_program, name, command)
            self._starts[name] = start
            start()

    def _note_clock(self, user: str, file: Path, command: Sequence[str]) -> None:
        """Know whose clock can be stepped: a program may be one that reads none."""
        if str(file) in command:
            self._clocks[user] = file

    def _start_program(self, name: str, command: Sequence[str]) -> None:
        log = self._place.logs / f"{name}.log"
        self._programs.start(name, command, log=log, env=_environment())

    async def _start_scheduling(
        self, control: ControlPlane, extender_url: str
    ) -> SchedulingLoop:
        loop = SchedulingLoop(
            api_url=control.url,
            token=control.token_of("system:kube-scheduler"),
            extender=ExtenderSettings(url=extender_url),
        )
        self._stack.push_async_callback(loop.stop)
        await loop.start()
        return loop

    async def _start_jobs(self, control: ControlPlane) -> JobController:
        user = "system:serviceaccount:kube-system:job-controller"
        jobs = JobController(control.url, control.token_of(user))
        self._stack.push_async_callback(jobs.stop)
        await jobs.start()
        return jobs


def _groups(nodes: Sequence[Node]) -> list[Sequence[Node]]:
    """The nodes, as many together as start at once; at least one group."""
    starts = range(0, max(len(nodes), 1), _AT_ONCE)
    return [nodes[start : start + _AT_ONCE] for start in starts]


def _environment() -> dict[str, str]:
    """Return ours without foreign settings, and with our packages on the path."""
    ours = {k: v for k, v in os.environ.items() if not k.startswith(_FOREIGN)}
    source = str(Path(sandbox.__file__).parent.parent)
    paths = [source, *filter(None, [ours.get("PYTHONPATH")])]
    return ours | {"PYTHONPATH": os.pathsep.join(paths)}
