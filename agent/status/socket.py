"""The socket at which the agent tells its status, and the program that asks there.

Only root may connect (mode 0600), and nothing that somebody has put in its place is
followed or removed: what is no socket of ours stays, and there is no status.
"""

import argparse
import asyncio
import json
import logging
import os
import socket
import stat
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from agent.observe import log as keys
from agent.status import document

log = logging.getLogger(__name__)

NAME = "status.sock"
#: How long an agent may take to answer. Unit: seconds.
_ANSWER_S = 10.0
#: Far more than 64 chips need. Unit: bytes.
_MOST = 4 << 20


@asynccontextmanager
async def telling(
    path: Path, tell: Callable[[], Mapping[str, Any]]
) -> AsyncIterator[None]:
    """Tell whoever connects, while the context lasts; go on without if it cannot be.

    Args:
        path: Where the socket is to be.
        tell: Makes the document.
    """

    async def answer(_reader: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
        try:
            to.write(json.dumps(tell(), ensure_ascii=False).encode())
            with suppress(OSError):  # whoever asked has gone
                await to.drain()
        finally:
            to.close()

    try:
        listening = _bound(path)
    except OSError as error:
        log.warning("no status socket", extra={keys.REASON: str(error)})
        yield
        return
    server = await asyncio.start_unix_server(answer, sock=listening)
    try:
        yield
    finally:
        server.close()
        _remove(path)


def _remove(path: Path) -> None:
    with suppress(OSError):  # it may be gone already
        _check(path)
        path.unlink()


def _bound(path: Path) -> socket.socket:
    """Return a socket at a path.

    Raises:
        OSError: Something else is there, or nothing can be there.
    """
    if path.parent.is_symlink():
        raise OSError(f"{path.parent}: expected a directory, found a symbolic link")
    with suppress(FileNotFoundError):
        _check(path)
        path.unlink()  # it is of the agent before
    made = socket.socket(socket.AF_UNIX)
    try:
        os.fchmod(
            made.fileno(), 0o600
        )  # before it has a name, so that it never had more
        made.bind(str(path))
    except OSError:
        made.close()
        raise
    return made


def _check(path: Path) -> None:
    """Make sure that a file is a socket of ours.

    Raises:
        OSError: It is not there, or is something else.
    """
    found = path.lstat()
    if not stat.S_ISSOCK(found.st_mode):
        raise OSError(f"{path}: expected a socket, found something else")
    if found.st_uid != os.geteuid():
        raise OSError(f"{path}: expected our own socket, found that of {found.st_uid}")


def main(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Ask the agent of this node and print its answer; return the exit code.

    Args:
        argv: What stands behind `status`.
        environ: Of the process.
    """
    state_dir = environ.get("ASCEND_AGENT_STATE_DIR", "/var/lib/ascend-agent")
    parser = argparse.ArgumentParser(
        prog="ascend-agent status",
        description="Chips, owners, claims and faults of this node, as its agent "
        "knows them.",
    )
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument(
        "--socket", type=Path, default=Path(state_dir) / NAME, help="the agent's socket"
    )
    told = parser.parse_args(argv)
    try:
        found = ask(told.socket)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"the agent does not answer at {told.socket}: {error}\n")
        return 1
    shown = json.dumps(found, indent=2) if told.json else document.text(found)
    sys.stdout.write(f"{shown}\n")
    return 0


def ask(path: Path) -> Mapping[str, Any]:
    """Return the status of an agent.

    Args:
        path: Its socket.

    Raises:
        OSError: There is no socket of ours, or nobody answers.
        ValueError: The answer makes no sense.
    """
    _check(path)
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(_ANSWER_S)
        asking.connect(str(path))
        content = b""
        while chunk := asking.recv(1 << 16):
            content += chunk
            if len(content) > _MOST:
                raise ValueError(f"expected at most {_MOST} bytes")
    found: Mapping[str, Any] = json.loads(content)
    return found
