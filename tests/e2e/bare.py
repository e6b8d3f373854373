"""A control plane without a machine below it: etcd, API server, scheduler.

Any number of them fits on one machine, beside the cluster with the real kubelet:
ports are free ones of the loopback, files lie in one temporary folder, no root is
needed, and everything ends with the context. Its nodes are what a test makes of them.
"""

import asyncio
import inspect
import itertools
import secrets
import shutil
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from sandbox.apiclient import FAILURES, ApiClient
from sandbox.world.programs import Program, Programs
from tests.e2e import assembly, configurations, stalls
from tests.e2e.commands import run
from tests.e2e.places import Places, chosen
from tests.e2e.stages import CannotError

#: What must have been built.
NEEDED = ("etcd", "kube-apiserver", "kube-scheduler")
_READY_S = 180.0
_ANSWER_S = 30.0
_LOOK_S = 0.05
_LOOPBACK = "127.0.0.1"
#: kubeconfig → user name and groups at the API server
_USERS: Mapping[str, tuple[str, Sequence[str]]] = {
    "admin": ("admin", ["system:masters"]),
    "scheduler": ("system:kube-scheduler", []),
}
_serials = itertools.count(1)
#: control planes of this process that are up; a failed test shows their logs
running: list["BareCluster"] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class BareCluster:
    """A control plane that is up, and what more of it is started with."""

    api_url: str
    #: speaks as an administrator
    api: ApiClient
    #: what the API server's certificate is checked with
    authority: Path
    #: where its files lie
    places: Places
    #: the folder of Kubernetes' programs
    binaries: Path
    programs: Programs
    #: {user: bearer token}
    tokens: Mapping[str, str] = field(repr=False)

    def service_account(self, user: str) -> Path:
        """Make a folder with token and authority, as a pod has it mounted."""
        folder = self.places.cache / "accounts" / user.replace(":", "-")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "token").write_text(self.tokens[user], encoding="ascii")
        shutil.copy(self.authority, folder / "ca.crt")
        return folder

    def kubectl(self, *arguments: str | Path, stdin: str | None = None) -> str:
        """Run kubectl as an administrator and return what it prints."""
        config = ("--kubeconfig", self.places.kubeconfig())
        cache = ("--cache-dir", self.places.cache / "kubectl")
        program = self.binaries / "kubectl"
        return run(program, *config, *cache, *arguments, stdin=stdin)

    async def start_scheduler(self, extender_url: str = "", *arguments: str) -> Program:
        """Start the stock scheduler and wait until it schedules.

        Args:
            extender_url: "" for none.
            arguments: What it is told besides.
        """
        port = free_port()
        path = self.places.cache / f"scheduler-{port}.yaml"
        path.write_text(
            configurations.scheduler(self.places, extender_url), encoding="utf-8"
        )
        program = self.start(
            "kube-scheduler",
            f"--config={path}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            *arguments,
        )
        await answers(f"https://127.0.0.1:{port}/readyz", program)
        return program

    def start(self, name: str, *arguments: str) -> Program:
        """Start one of Kubernetes' programs; it ends with the cluster."""
        log = self.places.logs / f"{name}-{next(_serials)}.log"
        command = (str(self.binaries / name), *arguments)
        return self.programs.start(name, command, log=log, env={})


@asynccontextmanager
async def bare_cluster(
    users: Mapping[str, Sequence[str]] | None = None,
    *,
    server_arguments: Sequence[str] = (),
) -> AsyncIterator[BareCluster]:
    """Have a control plane while the context lasts; it has no scheduler yet.

    Args:
        users: {name: groups} of whoever needs a token besides the administrator and
            Kubernetes' own programs.
        server_arguments: What the API server is told besides.

    Raises:
        CannotError: Programs are missing, or one does not come up.
    """
    check()
    programs = Programs()
    with tempfile.TemporaryDirectory(prefix="ascend-bare-") as folder:
        try:
            cluster = await _begin(
                Path(folder), programs, users or {}, server_arguments
            )
            running.append(cluster)
            async with cluster.api:
                await _default_account(cluster.api)
                yield cluster
                await programs.stop()
        finally:
            running[:] = [other for other in running if other.programs is not programs]
            programs.kill()


def check() -> None:
    """Make sure that Kubernetes' programs are there.

    Raises:
        CannotError: One is not.
    """
    folder = chosen().programs
    absent = [name for name in NEEDED if not (folder / name).exists()]
    if absent:
        raise CannotError(
            f"{folder} has no {', '.join(absent)}: `make e2e` builds them, or "
            "KUBEBUILDER_ASSETS names a folder that has them"
        )


async def answers(url: str, program: Program, *, token: str = "") -> None:
    """Wait until a program answers 200.

    Raises:
        CannotError: It ended, or did not come up in time.
    """
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with aiohttp.ClientSession(headers=headers) as session:

        async def is_up() -> bool:
            if program.has_ended:
                raise CannotError(f"{program.name} ended:\n{program.last_words()}")
            # Only whether it serves is asked; who it is, the clients check.
            async with session.get(url, ssl=False) as answer:
                return answer.status == 200

        await until(is_up, f"{program.name} ready")


async def until(
    reached: Callable[[], Awaitable[object] | object],
    what: str,
    *,
    within_s: float = _READY_S,
) -> None:
    """Wait for what another process does; failures on the way are part of it.

    While the machine gave us no time it gave the others none: that is added to the
    bound.

    Args:
        reached: Says whether it is so, at once or as an awaitable.
        what: What is waited for.
        within_s: How long.

    Raises:
        CannotError: It did not come in time.
    """
    begun, stood_still_s = time.monotonic(), stalls.stood_still_s()
    while True:
        last: Exception | None = None
        try:
            async with asyncio.timeout(_ANSWER_S):
                found = reached()
                if await found if inspect.isawaitable(found) else found:
                    return
        except (*FAILURES, TimeoutError) as error:
            last = error
        allowed_s = within_s + stalls.stood_still_s() - stood_still_s
        if time.monotonic() > begun + allowed_s:
            raise CannotError(f"not within {within_s:g} s: {what}") from last
        await asyncio.sleep(_LOOK_S)


def free_port() -> int:
    """A port of the loopback that nobody has at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def _begin(
    folder: Path,
    programs: Programs,
    users: Mapping[str, Sequence[str]],
    server_arguments: Sequence[str],
) -> BareCluster:
    places = Places(cache=folder)
    for made in (places.run, places.logs):
        made.mkdir(parents=True, exist_ok=True)
    tokens = _make_tokens(folder, users)
    run("openssl", "genrsa", "-out", folder / "accounts.key", "2048")
    port = free_port()
    url = f"https://{_LOOPBACK}:{port}"
    # The certificate that the API server makes comes with its authority.
    authority = folder / "pki" / "apiserver.crt"
    cluster = BareCluster(
        api_url=url,
        api=ApiClient(url, tokens["admin"], authority=authority),
        authority=authority,
        places=places,
        binaries=chosen().programs,
        programs=programs,
        tokens=tokens,
    )
    for user, (name, _) in _USERS.items():
        text = configurations.kubeconfig(
            user, tokens[name], server=url, authority=authority
        )
        cluster.places.kubeconfig(user).write_text(text, encoding="utf-8")
    etcd = await _start_etcd(cluster)
    server = cluster.start(
        "kube-apiserver",
        *assembly.apiserver_arguments(folder, etcd=etcd, address=_LOOPBACK, port=port),
        f"--advertise-address={_LOOPBACK}",
        # Endpoints of the Service `kubernetes` may not be on the loopback; of 1.37 no
        # API server starts that would write such.
        "--endpoint-reconciler-type=none",
        f"--cert-dir={folder / 'pki'}",
        *server_arguments,
    )
    await answers(f"{url}/readyz", server, token=tokens["admin"])
    return cluster


def _make_tokens(folder: Path, users: Mapping[str, Sequence[str]]) -> dict[str, str]:
    groups = dict(_USERS.values()) | dict(users)
    tokens = {user: secrets.token_urlsafe(24) for user in groups}
    rows = [
        f'{token},{user},{user},"{",".join(groups[user])}"\n'
        for user, token in tokens.items()
    ]
    (folder / "tokens.csv").write_text("".join(rows), encoding="ascii")
    return tokens


async def _start_etcd(cluster: BareCluster) -> str:
    client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    program = cluster.start(
        "etcd",
        *assembly.etcd_arguments(cluster.places.cache / "etcd", client, peer),
    )
    await answers(f"{client}/health", program)
    return client


async def _default_account(api: ApiClient) -> None:
    """Make the account of pods, which is a controller's work; none may run here."""
    body = {"metadata": {"name": "default"}}
    await until(
        lambda: api.create("/api/v1/namespaces/default/serviceaccounts", body),
        "the namespace default",
    )
