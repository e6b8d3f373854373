"""How soon what the API server shows counts in decisions, while a scheduler asks.

The extender is the real program, its API server (`benchmarks/prepared.py`) a process
of its own. All chips of a node break or are well again; the clock runs from the
request that has the API server say so until filter answers accordingly. Meanwhile fifty
filters a second come with 5,000 names each.
"""

import http.client
import json
import random  # noqa: TID251  # seeded: the same nodes in every run
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from urllib.parse import urlsplit

from benchmarks.deployed import Extender, api_server, extender, filter_body
from benchmarks.extender import RATE, pod_for
from benchmarks.pace import paced
from benchmarks.population import node_name
from benchmarks.start import crowded
from benchmarks.table import Row, percentile

NODES = 5_000
#: Names that the scheduler offers.
OFFERED = 5_000
_SAMPLES = 600
#: Between two looks, so that those who look are not the load.
_LOOK_S = 0.002
_LONGEST_S = 10.0


def rows() -> list[Row]:
    """Measure. Takes half a minute."""
    with api_server(crowded(NODES)) as url, extender(url) as one:
        samples = delays(url, one, NODES, _SAMPLES)
    p50, p99 = percentile(samples, 0.5), percentile(samples, 0.99)
    return [
        Row(
            figure=f"watch event to decision, {NODES:,} nodes, {RATE} filters a second",
            goal="p99 ≤ 100 ms",
            value=f"p50 {p50:.1f} ms, p99 {p99:.1f} ms",
            passed=p99 <= 100,
        )
    ]


def offered(nodes: int) -> list[str]:
    """The names that a scheduler offers of so many nodes, evenly spread."""
    count = min(nodes, OFFERED)
    return [node_name(place * nodes // count) for place in range(count)]


def delays(api_url: str, one: Extender, nodes: int, samples: int) -> list[float]:
    """Milliseconds from an event to the answer that knows of it, of each.

    Args:
        api_url: Of the API server.
        one: The extender; others ask it at the same time.
        nodes: How many there are.
        samples: How many events.
    """
    chance = random.Random(nodes)  # noqa: S311  # no secret is made
    found: list[float] = []
    with (
        _asked_by_others(one, offered(nodes)),
        closing(http.client.HTTPConnection(urlsplit(api_url).netloc)) as api,
        closing(http.client.HTTPConnection(one.address)) as scheduler,
    ):
        while len(found) < samples:
            number = chance.randrange(nodes)
            body = filter_body(pod_for(1), [node_name(number)])
            for state in ("broken", "well"):
                begun_s = time.perf_counter()
                _post(api, f"/benchmark/report/{number}/{state}")
                _until(partial(_fits, scheduler, body), is_so=state == "well")
                found.append((time.perf_counter() - begun_s) * 1000)
    return found


@contextmanager
def _asked_by_others(one: Extender, names: Sequence[str]) -> Iterator[None]:
    """Have a scheduler ask at a steady pace meanwhile."""
    body = filter_body(pod_for(1), names)
    is_over = threading.Event()

    def ask() -> None:
        with closing(http.client.HTTPConnection(one.address)) as connection:
            while not is_over.is_set():
                paced(lambda: _post(connection, "/filter", body), rate=RATE, calls=RATE)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _post(
    connection: http.client.HTTPConnection, path: str, body: bytes = b""
) -> bytes:
    connection.request("POST", path, body)
    return connection.getresponse().read()


def _fits(connection: http.client.HTTPConnection, body: bytes) -> bool:
    answer = json.loads(_post(connection, "/filter", body))
    assert not answer["Error"], answer["Error"]
    return bool(answer["NodeNames"])


def _until(asked: Callable[[], bool], *, is_so: bool) -> None:
    end_s = time.monotonic() + _LONGEST_S
    while asked() is not is_so:
        if time.monotonic() > end_s:
            raise TimeoutError(f"not seen within {_LONGEST_S:g} s")
        time.sleep(_LOOK_S)
