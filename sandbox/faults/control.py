"""A running sandbox that does as it is told: faults by a socket in its directory.

One request for each connection, a line of JSON: `{"begin": name, "given": {…}}`,
`{"end": name}`, or `{"list": true}`; one line back: `{"said": […]}` or `{"refused":
[…]}`.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from sandbox.faults.inject import Breakage
from sandbox.faults.kinds import Fault, FaultError, read
from sandbox.world import World

SOCKET = "faults.sock"


@asynccontextmanager
async def obeying(world: World, first: Sequence[Fault] = ()) -> AsyncIterator[None]:
    """Obey while the context lasts; what still lasts then is ended.

    Args:
        world: What to break.
        first: Faults that begin at once.

    Raises:
        FaultError: One of these cannot be done.
    """
    breakage = Breakage(world)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            answer = await _obey(json.loads(await reader.readline()), world, breakage)
        except FaultError as error:
            answer = {"refused": error.problems}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            answer = {"refused": [f"expected a request, found {error!r}"]}
        writer.write(json.dumps(answer).encode() + b"\n")
        await writer.drain()
        writer.close()

    path = world.premises.root / SOCKET
    server = await asyncio.start_unix_server(serve, path)
    try:
        for fault in first:
            await breakage.begin(fault)
        yield
    finally:
        server.close()
        await breakage.end_all()


async def _obey(asked: dict[str, Any], world: World, breakage: Breakage) -> Any:
    if "begin" in asked:
        fault = read(asked["begin"], asked["given"], tuple(world.nodes))
        await breakage.begin(fault)
        return {"said": [_begun(fault)]}
    if "end" in asked:
        await breakage.end(asked["end"])
        return {"said": [f"{asked['end']} is over"]}
    return {"said": [f"{name} lasts" for name in breakage.names]}


def _begun(fault: Fault) -> str:
    name = fault.kind.name
    if fault.kind.is_momentary:
        return f"{name}: {fault.kind.does}"
    if fault.for_s is None:
        return f"{name}: {fault.kind.does}; until: ascend-sandbox fault --end {name}"
    return f"{name}: {fault.kind.does}; for {fault.for_s:g} s"
