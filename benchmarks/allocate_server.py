"""The server of `benchmarks.allocate`: python -m … SOCKET DIRECTORY CLAIMS product.

One-chip claims are pending, the node's other chips are held by pods that run.
The other pods of the node ask for no chips, so the agent does not keep them.
"""

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any, cast

import grpc
from prometheus_client import CollectorRegistry

from agent.claims.events import Effect, PodUpdated
from agent.claims.store import LedgerStore
from agent.claims.values import Hold, Ledger, Owner
from agent.devices.cgroups import Cgroups
from agent.devices.reading import Reading
from agent.journal.file import Journal
from agent.journal.writer import JournalWriter
from agent.monitor.pod_processes import PodProcesses
from agent.observe.metrics import Metrics
from agent.plugin.allocate_activity import AllocateActivity
from agent.plugin.mounts import MountMethod, Mounts
from agent.plugin.servicer import Servicer
from kubelet_api.deviceplugin.v1beta1 import api_pb2_grpc
from scheduler_core.products import table
from scheduler_core.products.columns import Product
from scheduler_core.wire.pods import NpuPod, PodMeta, RawContainer, npu_pod

NODE = "node-1"


class NoPods:
    """An API server that is followed, and a kubelet that is not asked."""

    def hurry(self) -> None:
        """Nothing is behind."""

    def unseen_s(self) -> float:
        """Return 0: it is followed."""
        return 0.0

    async def of_kubelet(self, _resource: str) -> tuple[NpuPod, ...]:
        """Return none."""
        return ()


def pod(product: Product, chip: int, *, served: bool) -> NpuPod:
    """Return a pod with a claim for one chip."""
    time = str(2**64 - 1) if served else str(1_000 + chip)
    name = f"{product.chip_prefix}{chip}"
    found = npu_pod(
        PodMeta(
            uid=f"uid-{chip}",
            namespace="default",
            name=f"pod-{chip}",
            node=NODE,
            annotations={product.resource: name, "predicate-time": time},
        ),
        [RawContainer("main", limits={product.resource: "1"})],
        product.resource,
    )
    assert found is not None
    return found


def hold(product: Product, chip: int) -> Hold:
    """Return what a running pod holds."""
    owner = Owner(
        uid=f"uid-{chip}", namespace="default", pod=f"pod-{chip}", container="main"
    )
    return Hold(
        sequence=chip + 1,
        kubelet_ids=(f"{product.chip_prefix}{chip}",),
        chips=(chip,),
        slot=owner.uid,
        need=0,
        owner=owner,
    )


def ledger(product: Product, claims: int) -> Ledger:
    """Return a node with so many claims pending and all other chips held."""
    held = range(claims, product.chip_count)
    return Ledger(
        product=product,
        node=NODE,
        holds={chip + 1: hold(product, chip) for chip in held},
        sequence=product.chip_count + 1,
    )


async def serve(socket: Path, directory: Path, claims: int, product: Product) -> None:
    """Serve until told to stop."""
    metrics = Metrics(CollectorRegistry())

    def observe(_effect: Effect) -> None:
        return

    loop_s = asyncio.get_running_loop().time
    store = LedgerStore(ledger(product, claims), observe, loop_s=loop_s)
    for chip in range(product.chip_count):
        store.apply(PodUpdated(pod(product, chip, served=chip >= claims)))
    pending = store.ledger
    journal_writer = JournalWriter(
        Journal(directory / "holds", boot_id="boot", node=NODE),
        observe_s=metrics.journal_s.observe,
        on_outcome=lambda failure: sys.exit(failure) if failure else None,
    )
    journal_writer.follow(store)

    def served(seconds: float) -> None:
        metrics.allocate_s.observe(seconds)
        store.replace(pending)

    processes = PodProcesses(
        store,
        last_reading=lambda: Reading(product=product, chips=()),
        cgroups=Cgroups(),
    )
    servicer = Servicer(
        store,
        activity=AllocateActivity(loop_s),
        pods=cast("Any", NoPods()),
        find_stray_processes=processes.find,
        write_journal=journal_writer.write,
        observe_allocate_s=served,
        numa=tuple,
        mounts=Mounts(
            MountMethod.RUNTIME,
            last_reading=lambda: Reading(product=product, chips=()),
            cdi_dir=directory,
        ),
        look_now=lambda: None,
    )
    server = grpc.aio.server()
    api_pb2_grpc.add_DevicePluginServicer_to_server(servicer, server)
    server.add_insecure_port(f"unix://{socket}")
    await server.start()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()
    await server.stop(None)


if __name__ == "__main__":
    _, *where, told_claims, key = sys.argv
    at, folder = map(Path, where)
    asyncio.run(serve(at, folder, int(told_claims), table.by_key(key)))
