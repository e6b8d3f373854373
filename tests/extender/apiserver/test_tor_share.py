"""What jobs have made of the leaf switches, as clusterd and people read it."""

import json
from dataclasses import dataclass, field

from extender.apiserver import writers
from extender.apiserver.tor_share import TorShareWriter
from extender.cache import events
from extender.cache.cache import Cache
from extender.planning.topology import NetworkTopology, Rules
from kube.client import Client
from kube.credentials import Credentials
from kube.errors import KubeError, UnreachableError
from sandbox.apiclient import ApiClient
from scheduler_core.products.lookup import Traits
from scheduler_core.topology.leaves import Version
from tests.extender.test_outputs import OUTPUTS
from tests.support.caches import apply, bind, empty, switched
from tests.support.servers import api_server
from tests.support.watched import leaves, member, pod, pod_update, tenant

TWO = Rules(switches=Version.TWO)


@dataclass(slots=True)
class Api:
    """Remembers what it is to write; refuses as long as it is told to."""

    shared: list[str] = field(default_factory=list)
    refuses: KubeError | None = None

    async def share(self, text: str) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.shared.append(text)


def running(name: str, where: str, use: str) -> events.PodUpdated:
    """A running pod of a large job, with what that makes of its leaf."""
    said = {"isSharedTor": use, "isHealthy": "0"}
    labels = {"tor-affinity": "large-model-schema"}
    return member(
        name, size=3, traits=Traits(labels=labels, annotations=said), node=where
    )


def shared() -> Cache:
    """A job has one leaf to itself and shares one; of the third a pod has a node."""
    cache = switched("n1", "n2", "n3", "n4", "n5")
    apply(
        cache,
        leaves(
            *(("10.0.0.1", "10.0.0.2"), ("10.0.0.3", "10.0.0.99")),
            ("10.0.0.4", "10.0.0.5"),
        ),
        running("a", "n1", "2"),
        running("b", "n2", "2"),
        running("c", "n3", "1"),
    )
    owner = "ReplicaSet/default/infer-6d"
    for name in ("x", "y"):
        alone = pod_update(name, node="n5", phase="Running", owner=owner)
        apply(cache, alone)
    return cache


def sharing(cache: Cache, api: Api, rules: Rules = TWO) -> TorShareWriter:
    return TorShareWriter(cache, NetworkTopology(cache, rules), api.share)


async def test_leaves_are_told_with_their_nodes_and_jobs_byte_for_byte() -> None:
    api = Api()

    await sharing(shared(), api).step()

    recorded = (OUTPUTS / "tor-share-cm.json").read_text(encoding="utf-8")
    assert api.shared == [json.loads(recorded)["global-tor-info"]]


async def test_only_what_has_changed_is_written() -> None:
    cache, api = shared(), Api()
    told = sharing(cache, api)

    await told.step()
    await told.step()
    apply(cache, tenant("x", "n4", (0,)))
    await told.step()
    bind(cache, pod("p"), "n4")
    await told.step()

    assert len(api.shared) == 2
    assert '"NodeName":"n4","JobName":["x"]' in api.shared[-1]


async def test_what_could_not_be_written_is_written_later() -> None:
    api = Api(refuses=UnreachableError("no answer"))
    told = sharing(shared(), api)

    await told.step()
    api.refuses = None
    await told.step()

    assert len(api.shared) == 1


async def test_under_1_0_and_without_switches_nothing_is_written() -> None:
    api = Api()

    await sharing(shared(), api, Rules()).step()
    await sharing(empty(), api).step()

    assert api.shared == []


async def test_the_configmap_is_made_and_then_kept() -> None:
    path = "/api/v1/namespaces/volcano-system/configmaps/tor-share-cm"
    async with (
        api_server() as server,
        ApiClient(server.url, "user:test") as api,
        Client(Credentials(server.url)) as client,
    ):
        await api.create("/api/v1/namespaces", {"metadata": {"name": "volcano-system"}})
        await writers.write_tor_share(client, "volcano-system", "one")
        first = await api.get(path)
        await api.patch(path, {"data": {"of-others": "stays"}})
        await writers.write_tor_share(client, "volcano-system", "two")
        second = await api.get(path)

    assert first["data"] == {"global-tor-info": "one"}
    assert second["data"] == {"global-tor-info": "two", "of-others": "stays"}
