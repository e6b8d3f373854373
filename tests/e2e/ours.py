"""Our programs beside a bare control plane, as an installation would run them."""

import contextlib
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import yaml

from sandbox.world import ControlPlane, World, running
from sandbox.world.machines import Machine
from sandbox.world.programs import Program
from sandbox.world.readiness import address
from tests.e2e import npu_nodes
from tests.e2e.bare import BareCluster, answers, bare_cluster, until
from tests.e2e.places import REPOSITORY

EXTENDER = "system:serviceaccount:kube-system:ascend-extender"
_AGENT = "system:serviceaccount:kube-system:ascend-agent"
#: As `bare_cluster` wants them: every account of a pod is in this group.
USERS = {EXTENDER: ["system:serviceaccounts"]}
#: Starts a program with the soft limit of open files that runtimes give to containers.
_FEW_FILES = ("sh", "-c", 'ulimit -Sn 1024 && exec "$@"', "sh")
_ACCESS = {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Extender:
    """An extender that is ready."""

    program: Program
    url: str


@contextlib.asynccontextmanager
async def with_nodes(
    *machines: Machine, folder: str = "base"
) -> AsyncIterator[tuple[BareCluster, World]]:
    """Have a control plane with our extender, and kubelets of the sandbox with agents.

    Nobody schedules yet.

    Args:
        machines: The nodes.
        folder: What is installed, below `daemonset`.
    """
    kubelets = {f"system:node:{each.name}": ["system:nodes"] for each in machines}
    users = {_AGENT: ["system:serviceaccounts"]} | kubelets
    async with installed(folder=folder, users=users) as cluster:
        tokens = dict(cluster.tokens)
        tokens["ascend-extender"] = tokens[EXTENDER]
        tokens |= {f"ascend-agent-{each.name}": tokens[_AGENT] for each in machines}
        control = ControlPlane(
            url=cluster.api_url,
            authority=cluster.authority,
            token_of=tokens.__getitem__,
        )
        async with running(machines, control=control) as world:
            for each in machines:  # a controller's work; none runs here
                path = f"/api/v1/nodes/{each.name}"
                await cluster.api.patch(path, {"spec": {"taints": None}})
            yield cluster, world


def give_rights(cluster: BareCluster, folder: str = "base") -> None:
    """Give the extender the rights that an installation gives it.

    Args:
        cluster: Where.
        folder: What is installed, below `daemonset`.
    """
    rendered = cluster.kubectl("kustomize", REPOSITORY / "daemonset" / folder)
    access = [each for each in yaml.safe_load_all(rendered) if each["kind"] in _ACCESS]
    cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(access))


@contextlib.asynccontextmanager
async def installed(
    *nodes: str,
    folder: str = "base",
    users: Mapping[str, Sequence[str]] = MappingProxyType({}),
    server_arguments: Sequence[str] = (),
) -> AsyncIterator[BareCluster]:
    """Have a control plane with these nodes and the extender's rights.

    Args:
        nodes: Each has free chips, as an agent would report it.
        folder: What is installed, below `daemonset`.
        users: {name: groups} of whoever needs a token besides the extender.
        server_arguments: What the API server is told besides.
    """
    all_users = {**USERS, **users}
    async with bare_cluster(all_users, server_arguments=server_arguments) as cluster:
        give_rights(cluster, folder)
        for name in nodes:
            await npu_nodes.create(cluster.api, name)
        yield cluster


async def serve(cluster: BareCluster, *arguments: str) -> Extender:
    """Start our extender, and the stock scheduler, which calls it."""
    extender = await start_extender(cluster, *arguments)
    await cluster.start_scheduler(extender.url)
    return extender


async def start_extender(
    cluster: BareCluster, *arguments: str, name: str = "extender", waits: bool = False
) -> Extender:
    """Start our extender, with these arguments besides, and wait until it is ready.

    Args:
        cluster: It ends with this.
        arguments: What it is told besides.
        name: Of the program.
        waits: It is not going to be ready: it stands by.
    """
    account = cluster.service_account(EXTENDER)
    address_file = cluster.places.cache / f"{name}-address"
    command = (
        "extender",
        *("--api-server", cluster.api_url),
        *("--service-account-dir", str(account)),
        *("--listen", "127.0.0.1:0"),
        *("--address-file", str(address_file)),
        *arguments,
    )
    return await start(cluster, command, address_file, name=name, waits=waits)


async def start(
    cluster: BareCluster,
    command: Sequence[str],
    address_file: Path,
    *,
    name: str = "extender",
    waits: bool = False,
) -> Extender:
    """Start a Python module that serves as an extender, and wait until it is ready.

    Args:
        cluster: It ends with this.
        command: The module and its arguments.
        address_file: Where it writes its address; not there yet, or removed when the
            one before ended.
        name: Of the program.
        waits: It is not going to be ready: it stands by.
    """
    program = cluster.programs.start(
        name,
        [*_FEW_FILES, sys.executable, "-m", *command],
        log=cluster.places.logs / f"{name}.log",
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )

    def has_address() -> bool:
        with contextlib.suppress(FileNotFoundError):
            return bool(address(address_file))
        return False

    await until(has_address, "the extender's address", within_s=180)
    url = f"http://{address(address_file)}"
    if not waits:
        await answers(f"{url}/readyz", program)
    return Extender(program=program, url=url)
