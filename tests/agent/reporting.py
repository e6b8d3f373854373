"""A reporter at work, and what can be seen of it from outside."""

from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry

from agent.devices.reading import Reading
from agent.devices.simulated import file
from agent.health.conditions import Health, ReadingTaken, step
from agent.observe.metrics import Metrics
from agent.observe.problems import Need, Subject
from agent.report import content
from agent.report.content import NodeReport
from agent.report.reporter import Reporter
from kube import configmaps, nodes
from kube.client import Client
from kube.errors import KubeError, NotFoundError
from kube.objects import ConfigMap, ManagedNode, encode
from scheduler_core.wire.deviceinfo import Affinity
from tests.support.clock import Time
from tests.support.tasks import in_background
from tests.support.until import until

T = TypeVar("T")

NAME = "mindx-dl-deviceinfo-node-1"
NAMESPACE = "kube-system"
PATH = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{NAME}"


def report_of(*readings: Reading, **parts: Any) -> NodeReport:
    """The report after readings one second apart; `parts` as for `node_report`."""
    health = Health()
    for now, reading in enumerate(readings):
        health, _ = step(health, ReadingTaken(reading=reading), float(now))
    given = {"taken": (), "affinity": Affinity(sequence=0), **parts}
    return content.node_report(readings[-1], health, **given)


def drawn(sequence: int) -> NodeReport:
    reading = file.parse("product: atlas-800-training\n")
    return report_of(reading, affinity=Affinity(sequence=sequence))


ONE, TWO = drawn(1), drawn(2)


async def create_node(client: Client, name: str = "node-1") -> None:
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
    await client.request("POST", "/api/v1/nodes", body=encode(body))


@dataclass
class World:
    client: Client
    reporter: Reporter
    registry: CollectorRegistry
    clock: Time
    told: list[str] = field(default_factory=list)
    #: each address of the node that it has learnt
    host_ips: list[str] = field(default_factory=list)
    #: each problem of the label `accelerator-type`, once for each look at it
    label_problems: list[str] = field(default_factory=list)
    #: why the API server does not take the ConfigMap, once for each answer
    refusals: list[str] = field(default_factory=list)
    #: {need of the reporter: each error, or None}
    outcomes: dict[Need, list[KubeError | None]] = field(default_factory=dict)

    def metric(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(f"ascend_agent_{name}", labels) or 0.0

    async def configmap(self) -> ConfigMap | None:
        try:
            return await configmaps.get(self.client, NAMESPACE, NAME)
        except NotFoundError:
            return None

    async def standing(self, shown: NodeReport) -> ConfigMap:
        """The ConfigMap, once it says what is shown, as of now."""
        data = content.configmap_data(shown, update_time=int(self.clock.now_s))
        del data["ManuallySeparateNPU"]
        return await until(
            self.configmap,
            lambda found: found and data.items() <= (found.data or {}).items(),
        )

    async def node_with(self, check: Callable[[ManagedNode], bool]) -> ManagedNode:
        return await until(lambda: nodes.get(self.client, "node-1"), check)


@asynccontextmanager
async def reporting(
    client: Client,
    *,
    writer: str = "me",
    heartbeat_s: float = 300.0,
    shown: NodeReport | None = None,
    node: str = "node-1",
) -> AsyncIterator[World]:
    """A reporter at work; with `shown`, once its ConfigMap says that."""

    async def nobody() -> None:
        return

    registry, clock = CollectorRegistry(), Time(1000.0)
    told = defaultdict[Subject, list[str]](list)
    outcomes = defaultdict[Need, list[KubeError | None]](list)
    reporter = Reporter(
        client,
        node=node,
        writer=writer,
        heartbeat_s=heartbeat_s,
        metrics=Metrics(registry),
        wall_s=clock,
        tell=lambda subject, problem: told[subject].append(problem),
        tell_need=lambda need, error: outcomes[need].append(error),
        owner=nobody,
        on_host_ip=lambda: world.host_ips.append(reporter.host_ip),
    )
    world = World(
        client,
        reporter,
        registry,
        clock,
        told[Subject.RIVAL_WRITER],
        label_problems=told[Subject.LABEL],
        refusals=told[Subject.REPORT],
        outcomes=outcomes,
    )
    async with in_background(reporter.run()):
        if shown is not None:
            reporter.publish(shown)
            await world.standing(shown)
        yield world


async def edit(client: Client, **data: str | None) -> None:
    await configmaps.patch(client, namespace=NAMESPACE, name=NAME, data=data)
