"""Real controllers of jobs beside a bare control plane with our extender."""

import asyncio
import base64
import contextlib
import json
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import yaml

from sandbox.apiclient import ApiClient, Object
from scheduler_core.products.table import ATLAS_800_TRAINING, Product
from tests.e2e import configurations, npu_nodes, ours, programs
from tests.e2e.bare import BareCluster, answers, free_port, until
from tests.e2e.commands import run
from tests.e2e.places import chosen
from tests.e2e.stories import lives
from tests.e2e.stories.kubelets import Kubelets
from tests.support.objects import NODES

ZONE = "topology.kubernetes.io/zone"
#: {node: what it is}
FOUR = {f"node-{number}": ATLAS_800_TRAINING for number in range(4)}
_MANAGER = "system:kube-controller-manager"
#: {controller: its account}, of what installs it
_ACCOUNTS = {
    name: f"system:serviceaccount:{name}-system:{name}-controller-manager"
    for name in ("lws", "jobset")
}
_USERS = {
    _MANAGER: [],
    **{user: ["system:serviceaccounts"] for user in _ACCOUNTS.values()},
}
_CONTROLLERS = (
    "job-controller",
    "replicaset-controller",
    "deployment-controller",
    "statefulset-controller",
    "disruption-controller",
    "garbage-collector-controller",
    "pod-garbage-collector-controller",
)
#: What our start of a controller does in place of a kubelet.
_BY_HAND = {"ConfigMap", "Deployment", "Secret", "Service"}
_HOOKS = {"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"}
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
    #: what goes on beside the stories, for ever
    tasks: Sequence[asyncio.Task[None]]


@asynccontextmanager
async def running(
    servers: Mapping[str, Product] = MappingProxyType(FOUR),
) -> AsyncIterator[World]:
    """Have nodes, each in one of two zones, with controllers.

    Args:
        servers: {node: what it is}. No two nodes of a zone are neighbours in it.
    """
    async with ours.installed(users=_USERS) as cluster:
        places = {
            name: await _make_node(cluster.api, name, product, "ab"[number % 2])
            for number, (name, product) in enumerate(servers.items())
        }
        # The garbage collector learns of kinds that come later every 30 s only.
        hooks = {name: _install(cluster, name) for name in _ACCOUNTS}
        await until(lambda: _are_established(cluster.api), "kinds of controllers")
        await _start_manager(cluster)
        for name in _ACCOUNTS:
            await _start_controller(cluster, name, hooks[name])
        await ours.serve(cluster, "--job-rules", "per-pod")
        kubelets = Kubelets(cluster.api)
        tasks = [
            asyncio.create_task(kubelets.follow()),
            asyncio.create_task(_beat(cluster.api, servers)),
        ]
        try:
            yield World(
                cluster=cluster,
                api=cluster.api,
                kubelets=kubelets,
                places=places,
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


async def _beat(api: ApiClient, servers: Mapping[str, Product]) -> None:
    """Report for the nodes' agents for ever."""
    while True:
        await asyncio.sleep(_HEARTBEAT_S)
        for name, product in servers.items():
            await npu_nodes.set_report(api, name, product)


def _install(cluster: BareCluster, name: str) -> list[Object]:
    """Install a controller but for its Deployment; return its webhooks."""
    path = programs.installation(chosen(), name)
    parts = list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    made = [each for each in parts if each["kind"] not in _BY_HAND | _HOOKS]
    # `apply` would keep each CRD in an annotation, for which it is too long.
    cluster.kubectl("create", "-f", "-", stdin=yaml.safe_dump_all(made))
    return [each for each in parts if each["kind"] in _HOOKS]


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
        f"--kubeconfig={_kubeconfig(cluster, _MANAGER)}",
        f"--controllers={','.join(_CONTROLLERS)}",
        "--use-service-account-credentials",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
    )
    await answers(f"https://127.0.0.1:{port}/healthz", program)


async def _start_controller(
    cluster: BareCluster, name: str, hooks: list[Object]
) -> None:
    """Start the controller of LeaderWorkerSets or JobSets, with its webhooks."""
    folder = cluster.places.cache / name
    folder.mkdir()
    run(
        *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
        *("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"),
        *("-keyout", folder / "tls.key", "-out", folder / "tls.crt"),
    )
    port, health = free_port(), free_port()
    configuration = folder / "configuration.json"
    text = json.dumps(_configuration(name, folder, port, health))
    configuration.write_text(text, encoding="utf-8")
    program = cluster.programs.start(
        name,
        (
            str(programs.controller(chosen(), name)),
            f"--config={configuration}",
            f"--kubeconfig={_kubeconfig(cluster, _ACCOUNTS[name])}",
        ),
        log=cluster.places.logs / f"{name}.log",
        env=dict(os.environ),
    )
    await answers(f"http://127.0.0.1:{health}/readyz", program)
    await until(lambda: _serves(port), f"webhooks of {name}")
    bundle = base64.b64encode((folder / "tls.crt").read_bytes()).decode()
    for each in hooks:
        for hook in each["webhooks"]:
            path = hook["clientConfig"]["service"]["path"]
            url = f"https://127.0.0.1:{port}{path}"
            hook["clientConfig"] = {"url": url, "caBundle": bundle}
    cluster.kubectl("create", "-f", "-", stdin=yaml.safe_dump_all(hooks))


def _configuration(name: str, folder: Path, port: int, health: int) -> Object:
    return {
        "apiVersion": f"config.{name}.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "internalCertManagement": {"enable": False},
        "leaderElection": {"leaderElect": False},
        "webhook": {"host": "127.0.0.1", "port": port, "certDir": str(folder)},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
        "metrics": {"bindAddress": "0"},
    }


async def _serves(port: int) -> bool:
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True


def _kubeconfig(cluster: BareCluster, user: str) -> Path:
    path = cluster.places.kubeconfig(user.rpartition(":")[2])
    text = configurations.kubeconfig(
        user,
        cluster.tokens[user],
        server=cluster.api_url,
        authority=cluster.authority,
    )
    path.write_text(text, encoding="utf-8")
    return path
