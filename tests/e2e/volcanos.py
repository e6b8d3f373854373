"""Volcano's scheduler beside a bare control plane, configured as we ship it.

Its controllers and its webhook do not run: PodGroups are what a test makes of them.
Between it and the extender stands a recorder, which leads to whoever is the extender.
"""

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
import yaml
from aiohttp import web

from sandbox.apiclient import Listed, Object
from scheduler_core.products.table import ATLAS_800_TRAINING as PRODUCT
from tests.e2e import npu_nodes, programs
from tests.e2e.bare import BareCluster, answers, free_port, until
from tests.e2e.places import REPOSITORY, chosen
from tests.e2e.stages import CannotError
from tests.support.objects import PODS
from tests.support.servers import listening
from tests.support.tasks import in_background

GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs"
_QUEUE = "/apis/scheduling.volcano.sh/v1beta1/queues/default"
_SHIPPED = REPOSITORY / "daemonset/overlays/volcano/volcano-scheduler.conf"
_FILE = "volcano-scheduler.conf"
_LARGEST = 64 << 20
#: In Volcano's metrics: how many sessions were timed.
_SESSIONS = "volcano_e2e_scheduling_latency_milliseconds_count "


@dataclass(slots=True)
class Recorder:
    """Passes Volcano's calls on, and keeps what was said.

    Protects: each call is kept whole, in the order in which it came.
    """

    #: where the extender is; "" is nowhere
    url: str = ""
    #: {verb: how often it was called}
    counts: Counter[str] = field(default_factory=Counter)
    #: {verb: the last body that was sent with it}
    bodies: dict[str, bytes] = field(default_factory=dict)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Listen while the context lasts; gives the address."""
        app = web.Application(client_max_size=_LARGEST)
        app.router.add_post("/volcano/{verb}", self._pass_on)
        async with listening(app) as url:
            yield f"{url}/volcano"

    async def sessions(self, verb: str, count: int) -> None:
        """Wait until a verb has been called so often again."""
        wanted = self.counts[verb] + count
        await until(
            lambda: self.counts[verb] >= wanted, f"{count} more calls of {verb}"
        )

    async def _pass_on(self, request: web.Request) -> web.Response:
        verb = request.match_info["verb"]
        self.counts[verb] += 1
        self.bodies[verb] = body = await request.read()
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.post(f"{self.url}/volcano/{verb}", data=body) as answer,
            ):
                return web.Response(status=answer.status, body=await answer.read())
        except (aiohttp.ClientError, ValueError):  # nobody is there
            raise web.HTTPBadGateway from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Volcano:
    """Volcano's scheduler, which schedules."""

    #: of its metrics
    url: str

    async def session_count(self) -> int:
        """Return how many sessions it has held since its start."""
        async with aiohttp.ClientSession() as http, http.get(self.url) as answer:
            lines = (await answer.text()).splitlines()
        counts = [line.split()[1] for line in lines if line.startswith(_SESSIONS)]
        return int(float(counts[0])) if counts else 0


async def start(
    cluster: BareCluster, extender_url: str, *, period_s: float = 1.0
) -> Volcano:
    """Start Volcano's scheduler and wait until it schedules.

    Args:
        cluster: It ends with this.
        extender_url: What takes the place of the shipped configuration's.
        period_s: From one session to the next; seconds.

    Raises:
        CannotError: It has not been built, or does not come up.
    """
    places = chosen()
    if not programs.volcano_crds(places).exists():
        raise CannotError(
            f"{programs.volcano(places)} is not there: `make e2e` builds it"
        )
    cluster.kubectl("apply", "-f", programs.volcano_crds(places))
    path = cluster.places.cache / _FILE
    path.write_text(configuration(extender_url), encoding="utf-8")
    port, metrics_port = free_port(), free_port()
    command = (
        str(programs.volcano(places)),
        *("--kubeconfig", str(cluster.places.kubeconfig())),
        *("--scheduler-conf", str(path)),
        "--leader-elect=false",
        "--disable-default-scheduler-config=true",
        "--cache-dumper=false",
        f"--schedule-period={period_s:g}s",
        "--enable-healthz=true",
        f"--healthz-address=127.0.0.1:{port}",
        "--enable-metrics",
        f"--listen-address=127.0.0.1:{metrics_port}",
    )
    log = cluster.places.logs / f"{programs.VOLCANO}.log"
    program = cluster.programs.start(programs.VOLCANO, command, log=log, env={})
    await answers(f"http://127.0.0.1:{port}/healthz", program)
    # The scheduler makes it, and a controller, which does not run here, opens it.
    opened = {"status": {"state": "Open"}}
    await until(
        lambda: cluster.api.patch(f"{_QUEUE}/status", opened),
        "Volcano's queue `default`",
    )

    # The API server refuses to list objects of a kind that is new.
    async def are_served() -> bool:
        return not any([await cluster.api.items(path) for path in (JOBS, GROUPS)])

    await until(are_served, "Volcano's objects served")
    return Volcano(url=f"http://127.0.0.1:{metrics_port}/metrics")


def configuration(extender_url: str) -> str:
    """What ships, but for the address: here is no DNS."""
    found = yaml.safe_load(_SHIPPED.read_text(encoding="utf-8"))
    for plugin in found["tiers"][0]["plugins"]:
        if plugin["name"] == "extender":
            plugin["arguments"]["extender.urlPrefix"] = extender_url
    text: str = yaml.safe_dump(found)
    return text


def group(name: str, members: int, chips: int) -> Object:
    """A PodGroup whose pods ask for so many chips together, or are not to run."""
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {
            "minMember": members,
            "queue": "default",
            "minResources": {PRODUCT.resource: str(chips)},
        },
    }


def member(name: str, of: str, chips: int) -> Object:
    """A pod of a PodGroup."""
    pod = npu_nodes.pod(name, chips)
    pod["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": of}
    pod["spec"]["schedulerName"] = "volcano"
    return pod


async def make(cluster: BareCluster, name: str, counts: Mapping[str, int]) -> None:
    """Make a PodGroup and its pods: {pod: how many chips it asks for}."""
    await cluster.api.create(GROUPS, group(name, len(counts), sum(counts.values())))
    for pod, chips in counts.items():
        await cluster.api.create(PODS, member(pod, name, chips))


async def make_job(cluster: BareCluster, name: str, least: int, pods: int) -> None:
    """Make a Volcano Job of whole nodes, with what its controller makes for it.

    Args:
        cluster: Where.
        name: Of the Job; its pods are NAME-worker-0, ….
        least: How many of its pods must run together.
        pods: How many it has.
    """
    template = {"spec": npu_nodes.pod("x", 8)["spec"]}
    task = {"name": "worker", "replicas": pods, "template": template}
    body = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "schedulerName": "volcano",
            "minAvailable": least,
            "tasks": [task],
        },
    }
    await cluster.api.create(JOBS, body)
    made = group(name, least, 8 * least)
    made["spec"]["minTaskMember"] = {"worker": pods}
    await cluster.api.create(GROUPS, made)
    await _make_workers(cluster, name, range(pods))


async def grow_job(cluster: BareCluster, name: str, before: int, pods: int) -> None:
    """Edit how many pods such a Job has, and make those that are new."""
    path = f"{JOBS}/{name}"
    (task,) = (await cluster.api.get(path))["spec"]["tasks"]
    await cluster.api.patch(path, {"spec": {"tasks": [task | {"replicas": pods}]}})
    least = {"minTaskMember": {"worker": pods}}
    await cluster.api.patch(f"{GROUPS}/{name}", {"spec": least})
    await _make_workers(cluster, name, range(before, pods))


async def _make_workers(cluster: BareCluster, job: str, numbers: Iterable[int]) -> None:
    for number in numbers:
        pod = member(f"{job}-worker-{number}", job, 8)
        marks = {
            "volcano.sh/job-name": job,
            "volcano.sh/queue-name": "default",
            "volcano.sh/task-spec": "worker",
            "volcano.sh/task-index": str(number),
        }
        pod["metadata"]["labels"] = marks
        pod["metadata"]["annotations"] |= marks
        await cluster.api.create(PODS, pod)


async def make_torn(cluster: BareCluster, name: str) -> None:
    """Make a job of two pods: Volcano allocates the first and takes it back.

    The second has no place, by a rule of its own. Volcano takes the more important pod
    first; the other way round it would take none.
    """
    await cluster.api.create(GROUPS, group(name, 2, 16))
    first, alone = (member(f"{name}-{number}", name, 8) for number in range(2))
    first["spec"]["priorityClassName"] = "system-cluster-critical"
    term = {
        "labelSelector": {"matchLabels": {"app": "nobody"}},
        "topologyKey": "kubernetes.io/hostname",
    }
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    alone["spec"]["affinity"] = {"podAffinity": rule}
    for pod in (first, alone):
        await cluster.api.create(PODS, pod)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What a pod was like at one moment."""

    node: str
    chips: str
    predicate_time: str


class History:
    """What pods have been through, as the API server told it.

    Protects: nothing that was told is missed.
    """

    def __init__(self, cluster: BareCluster) -> None:
        """Follow the pods of a cluster from `following` on."""
        self._api = cluster.api
        #: {pod: what it was like, each change once}
        self.steps: dict[str, list[Step]] = {}

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Follow while the context lasts."""
        async with in_background(self._follow()):
            yield

    async def _follow(self) -> None:
        async for event in self._api.follow(PODS):
            pods = event.items if isinstance(event, Listed) else (event.item,)
            for pod in pods:
                self._take(pod)

    def _take(self, pod: Object) -> None:
        said = pod["metadata"].get("annotations") or {}
        found = Step(
            node=pod["spec"].get("nodeName", ""),
            chips=said.get(PRODUCT.resource, ""),
            predicate_time=said.get("predicate-time", ""),
        )
        steps = self.steps.setdefault(pod["metadata"]["name"], [])
        if not steps or steps[-1] != found:
            steps.append(found)
