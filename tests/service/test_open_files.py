"""The limit of open files: what a program makes of it, and what if it is reached."""

import asyncio
import json
import socket
from contextlib import ExitStack
from typing import Any

from service.open_files import LOG_EACH_S, SparseErrors
from tests.service.test_process import next_line, started

ACCEPTING = "socket.accept() out of system resource"


def test_a_program_raises_the_soft_limit_to_the_hard_one() -> None:
    with started(
        """
        import resource
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 128))

        async def main():
            print("ready", flush=True)
            print(*resource.getrlimit(resource.RLIMIT_NOFILE), flush=True)
            await asyncio.Event().wait()
        """
    ) as process:
        assert next_line(process) == "128 128\n"


def test_more_connections_than_files_are_logged_once() -> None:
    with (
        started(
            """
            import resource
            resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))

            async def main():
                print("ready", flush=True)
                server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
                print(server.sockets[0].getsockname()[1], flush=True)
                await asyncio.Event().wait()
            """
        ) as process,
        ExitStack() as stack,
    ):
        port = int(next_line(process))
        for _ in range(64):
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        assert process.stderr is not None
        first = json.loads(process.stderr.readline())
        process.terminate()
        _, errors = process.communicate(timeout=20)

    assert ACCEPTING in first["msg"]
    assert ACCEPTING not in errors


class RecordingLoop(asyncio.SelectorEventLoop):
    """An event loop that keeps what is reported."""

    def __init__(self) -> None:
        super().__init__()
        self.reports: list[dict[str, Any]] = []

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.reports.append(context)


def test_other_problems_are_reported_each_time_and_full_tables_once_a_minute() -> None:
    now = [0.0]
    loop, errors = RecordingLoop(), SparseErrors(lambda: now[0])
    full, other = {"message": ACCEPTING}, {"message": "never retrieved"}

    for context in (full, other, full, other):
        errors(loop, context)
    now[0] = LOG_EACH_S
    errors(loop, full)
    loop.close()

    assert loop.reports == [full, other, other, full]
