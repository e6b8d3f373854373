"""Status socket of the agent, and the command `ascend-agent status` that reads it.

Only the user of the agent, normally root, may connect (mode 0600). If the socket's path
is taken by another kind of file, such as a symbolic link, the agent leaves that file
alone and serves no status.
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

from agent.status import document

log = logging.getLogger(__name__)

NAME = "status.sock"
#: How long an agent may take to answer. Unit: seconds.
_ANSWER_S = 10.0
#: Longest answer, far more than 64 chips need. Unit: bytes.
_MOST_BYTES = 4 << 20


@asynccontextmanager
async def serve_status(
    path: Path, make_document: Callable[[], Mapping[str, Any]]
) -> AsyncIterator[None]:
    """Serve the status document at a unix socket while the context lasts.

    If the socket cannot be created, log why and go on without it.

    Args:
        make_document: Returns the status document; called for each connection.
    """

    async def answer(
        _reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            writer.write(json.dumps(make_document(), ensure_ascii=False).encode())
            with suppress(OSError):  # the client has gone
                await writer.drain()
        finally:
            writer.close()

    try:
        bound_socket = _bind(path)
    except OSError as error:
        log.warning("no status socket", extra={"reason": str(error)})
        yield
        return
    server = await asyncio.start_unix_server(answer, sock=bound_socket)
    try:
        yield
    finally:
        server.close()
        _remove(path)


def _remove(path: Path) -> None:
    with suppress(OSError):  # it may be gone already
        _check(path)
        path.unlink()


def _bind(path: Path) -> socket.socket:
    """Return a new unix socket bound to `path`, with mode 0600.

    A socket that an earlier process of this user left there is removed first.

    Raises:
        OSError: The path belongs to another kind of file or to another user's socket,
            its directory is a symbolic link, or no socket can be created there.
    """
    if path.parent.is_symlink():
        raise OSError(f"{path.parent}: expected a directory, found a symbolic link")
    with suppress(FileNotFoundError):
        _check(path)
        path.unlink()  # the socket of the agent before the restart
    new_socket = socket.socket(socket.AF_UNIX)
    try:
        # before bind, so that the path never has wider permissions
        os.fchmod(new_socket.fileno(), 0o600)
        new_socket.bind(str(path))
    except OSError:
        new_socket.close()
        raise
    return new_socket


def _check(path: Path) -> None:
    """Raise OSError unless a file is a socket that belongs to the user of this process.

    Raises:
        OSError: The file is missing, is no socket, or belongs to another user.
    """
    status = path.lstat()
    if not stat.S_ISSOCK(status.st_mode):
        raise OSError(f"{path}: expected a socket, found something else")
    if status.st_uid != os.geteuid():
        raise OSError(f"{path}: expected our own socket, found that of {status.st_uid}")


def main(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Ask the agent of this node for its status, and print it; return the exit code.

    Args:
        argv: Arguments after the word `status`.
        environ: Environment variables of the process.
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
    options = parser.parse_args(argv)
    try:
        status = ask(options.socket)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"the agent does not answer at {options.socket}: {error}\n")
        return 1
    output = json.dumps(status, indent=2) if options.json else document.text(status)
    sys.stdout.write(f"{output}\n")
    return 0


def ask(path: Path) -> Mapping[str, Any]:
    """Return the status document of the agent that serves a status socket.

    Raises:
        OSError: The path has no socket of this user, or no agent answers there.
        ValueError: The answer is too long or is no JSON.
    """
    _check(path)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_ANSWER_S)
        connection.connect(str(path))
        content = b""
        while chunk := connection.recv(1 << 16):
            content += chunk
            if len(content) > _MOST_BYTES:
                raise ValueError(f"expected at most {_MOST_BYTES} bytes")
    status: Mapping[str, Any] = json.loads(content)
    return status
