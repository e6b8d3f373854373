"""The sandbox's API server with a made-up cluster in its store: checks what it is told.

Slower than `benchmarks.prepared` and nearer to Kubernetes' own, which validates,
stores and shows each bind as well. A process of its own:

    python -m benchmarks.stored POPULATION

POPULATION is that of `benchmarks.population` as JSON; the address is printed.
"""

import asyncio
import json
import sys

from benchmarks.population import Population
from sandbox.apiserver.resources import CONFIGMAPS, NODES, PODS
from sandbox.apiserver.server import ApiServer
from service import process

_AT_ONCE = 10_000


def fill(server: ApiServer, population: Population) -> None:
    """Put all objects into a server's store, as they are."""
    for resource in (NODES, CONFIGMAPS, PODS):
        for first in range(0, population.count(resource.plural), _AT_ONCE):
            for text in population.page(resource.plural, first, _AT_ONCE):
                server.store.commit(resource, json.loads(text))
            server.expire()  # so much happens more than its history keeps


async def _serve(population: Population) -> None:
    server = ApiServer()
    fill(server, population)
    await server.start()
    try:
        print(server.url, flush=True)
        await asyncio.Event().wait()
    finally:
        await server.stop()


if __name__ == "__main__":
    asked = Population(**json.loads(sys.argv[1]))
    sys.exit(process.run(lambda: _serve(asked)))
