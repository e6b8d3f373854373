"""A cache that is fed by watches on a server in memory, in simulated time."""

import json
import random  # noqa: TID251  # seeded: the same churn each time
from dataclasses import dataclass, field, replace
from typing import Any

from prometheus_client import CollectorRegistry

from extender.apiserver.informers import Informers
from extender.apiserver.resync import Resync
from extender.cache.cache import Cache
from sandbox.apiserver import paths, requests
from sandbox.apiserver.requests import Request
from scheduler_core.products.table import ATLAS_800_TRAINING
from scheduler_core.wire import deviceinfo, inventory
from tests.kube.fire import Bed
from tests.support import objects
from tests.support.extender import sample
from tests.support.objects import PODS
from tests.support.watched import RESOURCE, TRAINING, claim, texts

NODES = ("n1", "n2")
REPORTS = objects.CONFIGMAPS


@dataclass(kw_only=True, slots=True)
class World:
    """Server, watches and cache; people, scheduler and agents that change things."""

    bed: Bed
    informers: Informers
    cache: Cache
    resync: Resync
    registry: CollectorRegistry
    chance: random.Random
    #: {pod: its node}, living ones
    pods: dict[str, str] = field(default_factory=dict)
    made: int = 0

    def write(self, method: str, path: str, body: dict[str, Any]) -> None:
        target = paths.parse(path)
        assert target is not None
        request = Request(
            method=method,
            target=target,
            query={"gracePeriodSeconds": "0"} if method == "DELETE" else {},
            media_type="application/merge-patch+json" if method == "PATCH" else "",
            body=json.dumps(body).encode() if body else b"",
        )
        answer = requests.carry_out(self.bed.store, request)
        assert answer.code < 300, answer.raw
        self.bed.hub.publish()

    def add_nodes(self) -> None:
        for name in NODES:
            listed = inventory.render(range(8), ATLAS_800_TRAINING)
            notes = {inventory.BASE_DEVICE_INFOS: listed}
            self.write("POST", objects.NODES, objects.node(name, annotations=notes))
            has = objects.offered(**{RESOURCE: "8", "cpu": "100", "pods": "110"})
            self.write("PATCH", f"{objects.NODES}/{name}/status", has)
            self.write("POST", REPORTS, objects.report(name, texts(TRAINING)))

    def change(self) -> None:
        """Let one thing happen to some pod, node or report."""
        kind = self.chance.choice(("make", "make", "bind", "end", "delete", "report"))
        name = self.chance.choice(tuple(self.pods)) if self.pods else ""
        if kind == "report" or (not name and kind != "make"):
            self.tell_report(self.chance.choice(NODES))
        elif kind == "make":
            self.make(self.chance.choice((2, 2, 0)))
        elif kind == "bind" and not self.pods[name]:
            self.bind(name, self.chance.choice(NODES))
        elif kind == "end":
            phase = {"status": {"phase": self.chance.choice(("Succeeded", "Failed"))}}
            self.write("PATCH", f"{PODS}/{name}/status", phase)
            del self.pods[name]
        elif kind == "delete":
            self.write("DELETE", f"{PODS}/{name}", {})
            del self.pods[name]

    def make(self, chips: int = 2) -> str:
        self.made += 1
        name = f"p{self.made}"
        self.write("POST", PODS, objects.pod(name, chips, limits={"cpu": "1"}))
        self.pods[name] = ""
        return name

    def bind(self, name: str, node: str) -> None:
        first = self.chance.randrange(7)
        notes = claim((first, first + 1), self.made)
        body = objects.binding(name, node, annotations=notes)
        self.write("POST", f"{PODS}/{name}/binding", body)
        self.pods[name] = node

    def tell_report(self, node: str) -> None:
        held = tuple(self.chance.sample(range(8), 2))
        path = f"{REPORTS}/{deviceinfo.configmap_name(node)}"
        self.write("PATCH", path, {"data": texts(replace(TRAINING, held=held))})

    def repaired(self, resource: str) -> float:
        found = sample(self.registry, "cache_repairs_total", resource=resource)
        assert found is not None
        return found

    def all_repaired(self) -> float:
        return sum(map(self.repaired, self.informers.watches()))

    def resynced(self, result: str) -> float:
        return sample(self.registry, "resyncs_total", result=result) or 0.0
