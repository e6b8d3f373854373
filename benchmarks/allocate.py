"""What Allocate costs over the unix socket, against an empty call.

The server is the agent's own servicer with its ledger, journal and metrics, in a
process of its own; the client is this one, as the kubelet would be. After each
Allocate the server goes back to the same pending claims, so that every call
finds the same work. The empty call is answered by the same server and beside
it, call by call, so that both meet the same machine.
"""

import asyncio
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import grpc

from benchmarks.table import Row, percentile
from kubelet_api.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc
from scheduler_core.products import table
from scheduler_core.products.columns import Product

CALLS = 2_000
WARM_UP = 200
LOCALHOST = (("grpc.default_authority", "localhost"),)


#: (claims pending, key of the row of the node)
CASES = ((1, "atlas-800-training"), (8, "atlas-800-training"), (64, "atlas-300i-chip"))


def rows() -> list[Row]:
    """Measure with one, eight and 64 claims pending. Takes about fifteen seconds."""
    return [row for claims, key in CASES for row in _measure(claims, table.by_key(key))]


def _measure(claims: int, product: Product) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        socket = Path(directory) / "plugin.sock"
        server = subprocess.Popen(  # noqa: S603  # our own
            [
                *(sys.executable, "-m", "benchmarks.allocate_server"),
                *(str(socket), directory, str(claims), product.key),
            ]
        )
        try:
            while not socket.exists():
                time.sleep(0.02)
            empty, allocate = asyncio.run(_calls(socket, product))
        finally:
            server.terminate()
            server.wait()
    ratio = percentile(allocate, 0.5) / percentile(empty, 0.5)
    p99_ms = percentile(allocate, 0.99) * 1e3
    pending = f"{claims} claim{'s' if claims > 1 else ''} pending"
    name = f"Allocate, {product.chip_count} chips, {pending}"
    return [
        Row(
            figure=f"{name}: p50 over that of an empty call",
            goal="≤ 2",
            value=f"{ratio:.2f} ({percentile(allocate, 0.5) * 1e6:.0f} µs over "
            f"{percentile(empty, 0.5) * 1e6:.0f} µs)",
            passed=ratio <= 2,
        ),
        Row(
            figure=f"{name}: p50",
            goal="≤ 1 ms",
            value=f"{percentile(allocate, 0.5) * 1e3:.2f} ms",
            passed=percentile(allocate, 0.5) <= 0.001,
        ),
        Row(
            figure=f"{name}: p99",
            goal="≤ 5 ms",
            value=f"{p99_ms:.2f} ms",
            passed=p99_ms <= 5,
        ),
    ]


async def _calls(socket: Path, product: Product) -> tuple[list[float], list[float]]:
    """Return seconds per empty call and per Allocate."""
    request = api_pb2.AllocateRequest(
        container_requests=[
            api_pb2.ContainerAllocateRequest(devices_ids=[f"{product.chip_prefix}0"])
        ]
    )
    empty: list[float] = []
    allocate: list[float] = []
    async with grpc.aio.insecure_channel(
        f"unix://{socket}", options=LOCALHOST
    ) as channel:
        stub = api_pb2_grpc.DevicePluginStub(channel)
        for _ in range(WARM_UP + CALLS):
            started = time.perf_counter()
            await stub.GetDevicePluginOptions(api_pb2.Empty())
            between = time.perf_counter()
            await stub.Allocate(request)
            empty.append(between - started)
            allocate.append(time.perf_counter() - between)
    return empty[WARM_UP:], allocate[WARM_UP:]
