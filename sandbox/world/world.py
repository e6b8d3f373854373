"""A whole cluster: starts in dependency order, ends in the reverse one."""

import os
import sys
from collections.abc import (
    AsyncIterator,
    Callable,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

import sandbox
from sandbox.apiclient import ApiClient
from sandbox.apiserver import ApiServer
from sandbox.kubelet import Kubelet
from sandbox.scheduler import SchedulingLoop
from sandbox.world import premises
from sandbox.world.premises import Node, Premises
from sandbox.world.programs import Programs
from sandbox.world.readiness import Readiness, address

#: What would let settings of the person's shell into our programs.
_FOREIGN = ("ASCEND_AGENT_", "ASCEND_EXTENDER_", "NODE_NAME", "KUBECONFIG")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderPlace:
    """What the extender has to be told."""

    api_url: str
    service_account_dir: Path
    address_file: Path


def agent_command(node: Node) -> Sequence[str]:
    """Return how our own agent is started."""
    return (
        *(sys.executable, "-m", "agent"),
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
        *(sys.executable, "-m", "extender"),
        *("--api-server", place.api_url),
        *("--service-account-dir", str(place.service_account_dir)),
        *("--listen", "127.0.0.1:0"),
        *("--address-file", str(place.address_file)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    """Which programs a world runs; any that serves /readyz at its address will do."""

    agent: Callable[[Node], Sequence[str]] = agent_command
    extender: Callable[[ExtenderPlace], Sequence[str]] = extender_command


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
    scheduling: SchedulingLoop

    async def metrics(self, program: str) -> str:
        """Return what a program counts, in Prometheus' text format.

        Args:
            program: Name of a node, for its agent; or "extender".
        """
        if program == "extender":
            url = self.extender_url
        else:
            url = f"http://{address(self.nodes[program].address_file)}"
        async with self.http.get(f"{url}/metrics") as response:
            response.raise_for_status()
            return await response.text()


@asynccontextmanager
async def running(
    node_names: Sequence[str],
    commands: Commands | None = None,
    *,
    below: Path | None = None,
) -> AsyncIterator[World]:
    """Have a cluster while the context lasts.

    Args:
        node_names: Its nodes, each a server with eight chips.
        commands: Its programs; our own by default.
        below: Where its directory is made; where temporary files go by default.

    Raises:
        NotReadyError: it did not come up in time.
        ProgramDiedError: a program ended by itself; also later, inside.
    """
    programs = Programs()
    with premises.opened(below) as place:
        try:
            async with AsyncExitStack() as stack:
                builder = _Builder(stack, programs, place)
                yield await builder.build(node_names, commands or Commands())
        finally:
            programs.kill()


class _Builder:
    """Puts a world together; whatever is started is on the stack at once."""

    def __init__(
        self, stack: AsyncExitStack, programs: Programs, place: Premises
    ) -> None:
        self._stack = stack
        self._programs = programs
        self._place = place

    async def build(self, names: Sequence[str], commands: Commands) -> World:
        api_url = await self._start_api_server()
        api = await self._stack.enter_async_context(ApiClient(api_url, "user:admin"))
        http = await self._stack.enter_async_context(aiohttp.ClientSession())
        kubelets = {name: await self._start_kubelet(name, api_url) for name in names}
        nodes = {name: self._node(kubelets[name], api_url) for name in names}
        extender_file = self._start_programs(nodes, commands, api_url)
        self._stack.push_async_callback(self._programs.stop)
        await self._stack.enter_async_context(self._programs.watched())
        ready = Readiness(api, http, self._programs)
        await ready.program(extender_file)
        extender_url = f"http://{address(extender_file)}"
        scheduling = await self._start_scheduling(api_url, extender_url)
        await ready.nodes(nodes.values())
        return World(
            premises=self._place,
            api_url=api_url,
            api=api,
            http=http,
            nodes=nodes,
            kubelets=kubelets,
            extender_url=extender_url,
            scheduling=scheduling,
        )

    async def _start_api_server(self) -> str:
        server = ApiServer()
        self._stack.push_async_callback(server.stop)
        await server.start()
        self._place.write_kubeconfig(server.url)
        return server.url

    async def _start_kubelet(self, name: str, api_url: str) -> Kubelet:
        kubelet = Kubelet(
            node_name=name,
            api_url=api_url,
            token=f"user:system:node:{name}",
            root=self._place.node_root(name),
        )
        self._stack.push_async_callback(kubelet.stop)
        await kubelet.start()
        return kubelet

    def _node(self, kubelet: Kubelet, api_url: str) -> Node:
        name = kubelet.node_name
        node = Node(
            name=name,
            root=self._place.node_root(name),
            api_url=api_url,
            kubelet_url=kubelet.url,
            service_account_dir=self._place.service_account(f"ascend-agent-{name}"),
        )
        node.state_dir.mkdir()
        node.set_faults(())
        return node

    def _start_programs(
        self, nodes: Mapping[str, Node], commands: Commands, api_url: str
    ) -> Path:
        address_file = self._place.extender_address_file
        place = ExtenderPlace(
            api_url=api_url,
            service_account_dir=self._place.service_account("ascend-extender"),
            address_file=address_file,
        )
        self._start_program("extender", commands.extender(place))
        for name, node in nodes.items():
            self._start_program(f"agent-{name}", commands.agent(node))
        return address_file

    def _start_program(self, name: str, command: Sequence[str]) -> None:
        log = self._place.logs / f"{name}.log"
        self._programs.start(name, command, log=log, env=_environment())

    async def _start_scheduling(
        self, api_url: str, extender_url: str
    ) -> SchedulingLoop:
        loop = SchedulingLoop(
            api_url=api_url,
            token="user:system:kube-scheduler",  # noqa: S106  # the sandbox's form
            extender_url=extender_url,
        )
        self._stack.push_async_callback(loop.stop)
        await loop.start()
        return loop


def _environment() -> dict[str, str]:
    """Return ours without foreign settings, and with our packages on the path."""
    ours = {k: v for k, v in os.environ.items() if not k.startswith(_FOREIGN)}
    source = str(Path(sandbox.__file__).parent.parent)
    paths = [source, *filter(None, [ours.get("PYTHONPATH")])]
    return ours | {"PYTHONPATH": os.pathsep.join(paths)}
