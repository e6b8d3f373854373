"""Several extenders, and what stands before them: callers reach whoever is ready."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field

import aiohttp


@dataclass(slots=True)
class Replicas:
    """The extenders by name, as a Service sees them."""

    #: {name: its address}
    addresses: dict[str, str] = field(default_factory=dict)

    async def readiness(self, name: str) -> str:
        """What a probe is told; "" of one that is dead, or does not answer."""
        with suppress(aiohttp.ClientError, TimeoutError):
            async with (
                asyncio.timeout(2),
                aiohttp.ClientSession(f"http://{self.addresses[name]}") as session,
                session.get("/readyz") as answer,
            ):
                return (await answer.text()).strip()
        return ""

    async def ready(self) -> list[str]:
        """Who would be called."""
        return [n for n in self.addresses if await self.readiness(n) == "ok"]

    async def forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Connect a caller to a replica that is ready, as kube-proxy does."""
        for name in await self.ready():
            node_info, _, port = self.addresses[name].partition(":")
            with suppress(OSError):
                there, back = await asyncio.open_connection(node_info, int(port))
                await asyncio.gather(_copy(reader, back), _copy(there, writer))
        writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while some := await reader.read(1 << 16):
            writer.write(some)
            await writer.drain()
    writer.close()
