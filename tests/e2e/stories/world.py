"""Real controllers of jobs beside a bare control plane with our extender."""

import asyncio
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from sandbox.apiclient import ApiClient
from scheduler_core.products.table import ATLAS_800_TRAINING, Product
from tests.e2e import npu_nodes, ours
from tests.e2e.bare import BareCluster, answers, free_port, until
from tests.e2e.stories import controllers, lives
from tests.e2e.stories.controllers import Controller
from tests.e2e.stories.history import OWN_KINDS
from tests.e2e.stories.kubelets import Kubelets
from tests.support.objects import NODES

ZONE = "topology.kubernetes.io/zone"
#: {node: what it is}
FOUR = {f"node-{number}": ATLAS_800_TRAINING for number in range(4)}
_MANAGER = "system:kube-controller-manager"
_CONTROLLERS = (
    "job-controller",
    "replicaset-controller",
    "deployment-controller",
    "statefulset-controller",
    "disruption-controller",
    "garbage-collector-controller",
    "pod-garbage-collector-controller",
)
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_HEARTBEAT_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """All that is needed for jobs to run."""

    cluster: BareCluster
    api: ApiClient
    kubelets: Kubelets
    #: {node: its labels, and what it offers}
    places: Mapping[str, Mapping[str, str]]
    #: objects of jobs, and what their pods are of
    kinds: Sequence[str]
    #: what goes on beside the stories, for ever
    tasks: Sequence[asyncio.Task[None]]


async def _serve(cluster: BareCluster) -> None:
    """Start one extender, which evicts nobody, and the scheduler."""
    await ours.serve(cluster, "--job-rules", "per-pod")


async def _beat(api: ApiClient, servers: Mapping[str, Product]) -> None:
    """Report for the nodes' agents for ever; no pod has chips, none is broken."""
    while True:
        await asyncio.sleep(_HEARTBEAT_S)
        for name, product in servers.items():
            await npu_nodes.set_report(api, name, product)


@asynccontextmanager
async def running(
    servers: Mapping[str, Product] = MappingProxyType(FOUR),
    makers: Sequence[Controller] = (controllers.LWS, controllers.JOBSET),
    *,
    serve: Callable[[BareCluster], Awaitable[None]] = _serve,
    report: Callable[
        [ApiClient, Mapping[str, Product]], Coroutine[Any, Any, None]
    ] = _beat,
) -> AsyncIterator[World]:
    """Have nodes, each in one of two zones, with controllers.

    Args:
        servers: {node: what it is}. No two nodes of a zone are neighbours in it.
        makers: Controllers besides Kubernetes' own.
        serve: Starts extender and scheduler.
        report: Does the work of the nodes' agents for ever.
    """
    accounts = {each.account: ["system:serviceaccounts"] for each in makers}
    users: dict[str, list[str]] = {_MANAGER: [], **accounts}
    async with ours.installed(users=users) as cluster:
        places = {
            name: await _make_node(cluster.api, name, product, "ab"[number % 2])
            for number, (name, product) in enumerate(servers.items())
        }
        # The garbage collector learns of kinds that come later every 30 s only.
        hooks = [controllers.install(cluster, each) for each in makers]
        await until(lambda: _are_established(cluster.api), "kinds of controllers")
        await _start_manager(cluster)
        for each, its_hooks in zip(makers, hooks, strict=True):
            await controllers.start(cluster, each, its_hooks)
        await serve(cluster)
        kubelets = Kubelets(cluster.api)
        tasks = [
            asyncio.create_task(kubelets.follow()),
            asyncio.create_task(report(cluster.api, servers)),
        ]
        try:
            yield World(
                cluster=cluster,
                api=cluster.api,
                kubelets=kubelets,
                places=places,
                kinds=[*OWN_KINDS, *(kind for each in makers for kind in each.kinds)],
                tasks=tasks,
            )
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _make_node(
    api: ApiClient, name: str, product: Product, zone: str
) -> Mapping[str, str]:
    """Make a node; return its labels, and what it offers."""
    await npu_nodes.create(api, name, product)
    body = {"metadata": {"labels": {ZONE: zone}}}
    node = await api.patch(f"{NODES}/{name}", body)
    return {**node["metadata"]["labels"], lives.OFFERS: product.resource}


async def _are_established(api: ApiClient) -> bool:
    found = await api.items(_DEFINITIONS)
    return all(
        any(
            (condition["type"], condition["status"]) == ("Established", "True")
            for condition in each["status"].get("conditions") or ()
        )
        for each in found
    )


async def _start_manager(cluster: BareCluster) -> None:
    """Start Kubernetes' controllers, but for those of nodes, which have no kubelet."""
    port = free_port()
    program = cluster.start(
        "kube-controller-manager",
        f"--kubeconfig={controllers.kubeconfig(cluster, _MANAGER)}",
        f"--controllers={','.join(_CONTROLLERS)}",
        "--use-service-account-credentials",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
    )
    await answers(f"https://127.0.0.1:{port}/healthz", program)
