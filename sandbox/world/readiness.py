"""When have the parts of a cluster found each other?"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

import aiohttp

from sandbox.apiclient import FAILURES, ApiClient
from sandbox.world.directories import Node
from sandbox.world.machines import Machine
from sandbox.world.programs import Programs

_READY_S = 120.0
_LOOK_S = 0.02


class NotReadyError(Exception):
    """The cluster did not come up; the text says what was missing."""


class Readiness:
    """Waits until the parts of a cluster have found each other."""

    def __init__(
        self,
        api: ApiClient,
        http: aiohttp.ClientSession,
        programs: Programs,
        *,
        within_s: float = _READY_S,
    ) -> None:
        """Ask these; `programs` are quoted when something is missing."""
        self._within_s = within_s
        self._api = api
        self._http = http
        self._programs = programs

    async def program(self, address_file: Path) -> None:
        """Wait until the program behind an address file calls itself ready."""

        async def missing() -> str:
            try:
                url = f"http://{address(address_file)}/readyz"
            except FileNotFoundError:
                return f"{address_file} has not been written"
            async with self._http.get(url) as response:
                return "" if response.ok else f"{url}: {await response.text()}"

        await self._until_nothing(missing)

    async def nodes(self, nodes: Iterable[Node]) -> None:
        """Wait until every agent is ready and every node offers all its chips."""
        for node in nodes:
            await self.program(node.address_file)

            async def missing(machine: Machine = node.machine) -> str:
                found = await self._api.get(f"/api/v1/nodes/{machine.name}")
                for resource, count in machine.offers.items():
                    offered = found["status"]["allocatable"].get(resource)
                    # Whoever brings a driver's file may have broken chips in it.
                    if offered == str(count) or (offered and machine.driver_file):
                        continue
                    of = f"{offered} instead of {count} {resource}"
                    return f"{machine.name} offers {of}"
                return ""

            await self._until_nothing(missing)

    async def _until_nothing(self, missing: Callable[[], Awaitable[str]]) -> None:
        found = ""
        try:
            async with asyncio.timeout(self._within_s):
                while True:
                    try:
                        found = await missing()
                    except FAILURES as error:
                        found = repr(error)
                    if not found:
                        return
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            words = self._programs.last_words()
            raise NotReadyError(
                f"{found} after {self._within_s:g} s\n{words}"
            ) from None


def address(file: Path) -> str:
    """Return what a program has written into its address file."""
    return file.read_text(encoding="ascii").strip()
