"""An extender as it is installed, on a large cluster: two processes, and this one.

The extender is the real program; its API server is `benchmarks.prepared` or
`benchmarks.stored`.
"""

import http.client
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from benchmarks.population import Population

#: The API servers that there are.
PREPARED = "benchmarks.prepared"
STORED = "benchmarks.stored"

_LOOK_S = 0.01
#: As containerd 2 starts pods.
_SOFT_LIMIT = 1024
_LONGEST_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Extender:
    """An extender that is ready."""

    #: host:port
    address: str
    process: psutil.Process
    #: from its beginning until it said that it was ready
    ready_s: float


@contextmanager
def served(
    module: str, *arguments: str, checkout: Path | None = None
) -> Iterator[tuple[str, psutil.Process]]:
    """A module of ours in a process of its own, and the address that it prints.

    Args:
        module: To be run; it serves until it is ended.
        arguments: What it is told.
        checkout: Another checkout whose module it is, set up; None is this one.
    """
    python = sys.executable if checkout is None else checkout / ".venv/bin/python"
    command = [str(python), "-m", module, *arguments]
    with subprocess.Popen(  # noqa: S603  # our own
        command, stdout=subprocess.PIPE, text=True, cwd=checkout
    ) as process:
        assert process.stdout is not None
        try:
            address = process.stdout.readline().strip()
            yield address, psutil.Process(process.pid)
        finally:
            process.terminate()


@contextmanager
def api_server(population: Population, module: str = PREPARED) -> Iterator[str]:
    """The URL of an API server of such a cluster, in a process of its own."""
    with served(module, json.dumps(asdict(population))) as (url, _):
        yield url


@contextmanager
def _few_open_files() -> Iterator[None]:
    """Let processes start with the soft limit that container runtimes give to pods."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (_SOFT_LIMIT, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@contextmanager
def extender(api_url: str, *arguments: str) -> Iterator[Extender]:
    """A real extender on that API server, ready.

    Args:
        api_url: Of the API server.
        arguments: What the extender is told besides.
    """
    with tempfile.TemporaryDirectory() as folder:
        account, file = Path(folder), Path(folder, "address")
        (account / "token").write_text("nobody-asks", encoding="ascii")
        command = [
            *(sys.executable, "-m", "extender", "--api-server", api_url),
            *("--service-account-dir", folder),
            *("--listen", "127.0.0.1:0", "--address-file", str(file)),
            *("--log-level", "warning", *arguments),
        ]
        begun_s = time.perf_counter()
        with _few_open_files():
            started = subprocess.Popen(command, env=os.environ)  # noqa: S603  # our own
        with started as process:
            try:
                address = _until_ready(file, process)
                yield Extender(
                    address=address,
                    process=psutil.Process(process.pid),
                    ready_s=time.perf_counter() - begun_s,
                )
            finally:
                process.terminate()


def _until_ready(file: Path, process: "subprocess.Popen[bytes]") -> str:
    """The address of an extender that has called itself ready."""
    end_s = time.monotonic() + _LONGEST_S
    while time.monotonic() < end_s and process.poll() is None:
        address = file.read_text(encoding="ascii").strip() if file.exists() else ""
        if address and ask(address, "GET", "/readyz")[0] == 200:
            return address
        time.sleep(_LOOK_S)
    raise TimeoutError(f"extender not ready within {_LONGEST_S:g} s, or ended")


def ask(address: str, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
    """Status and body of an answer, over a connection of its own.

    Args:
        address: host:port, or the URL of a server.
        method: As HTTP has it.
        path: With the query, if any.
        body: To be sent.
    """
    connection = http.client.HTTPConnection(urlsplit(address).netloc or address)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def filter_body(pod: object, names: Sequence[str]) -> bytes:
    """What kube-scheduler sends to /filter."""
    return json.dumps({"Pod": pod, "Nodes": None, "NodeNames": names}).encode()
