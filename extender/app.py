"""The running extender: watches feed the cache, one server answers from it."""

import asyncio
import logging
import os
from collections.abc import Callable

from aiohttp import web
from prometheus_client import CollectorRegistry

from extender import clocks
from extender.apiserver import live_settings, wake
from extender.apiserver.informers import Feed
from extender.apiserver.live_settings import Adjustable, Live
from extender.apiserver.resync import Promises, Sweeping
from extender.apiserver.tor_share import Sharing
from extender.apiserver.wake import Waker
from extender.apiserver.writers import (
    KubeGroups,
    KubeJobs,
    KubeMarks,
    KubePods,
    KubeShare,
    about,
)
from extender.cache import events
from extender.cache.cache import Cache, step
from extender.clocks import Clock
from extender.election.elector import election_of
from extender.election.lease import Phase
from extender.election.term import Office
from extender.gang import events as gang_events
from extender.http import listeners
from extender.kube_scheduler.binder import Binder
from extender.kube_scheduler.verbs import Server
from extender.metrics import Metrics
from extender.planning.planner import Planner
from extender.planning.topology import Networks
from extender.preemption.evictions import KubeEvictions
from extender.preemption.preemptor import Evictor
from extender.queries.routes import Reading
from extender.scheduling.decisions import Note, Notes
from extender.scheduling.reserve import Choice
from extender.settings import Settings
from extender.shadow.reporter import Shadowing
from extender.volcano.claims import Marks
from extender.volcano.podgroup_conditions import Groups
from extender.volcano.protocol import Job
from extender.volcano.sessions import Sessions
from extender.volcano.verbs import Parts, Volcano
from kube import credentials, nodes
from kube.client import Client
from kube.events import Recorder, Regarding
from scheduler_core.wire.pods import NpuPod
from service import gc_freeze

log = logging.getLogger(__name__)

COMPONENT = "ascend-extender"
#: How often silent agents and unseen binds are looked for.
_TICK_S = 1.0
#: Between two events. They are for people, who read slowly; each costs the API server
#: as much as the bind that it tells of, while other pods wait for theirs.
_EVENT_SPACING_S = 0.05


class Extender:
    """One extender on one client. Owner of the cache; the watches repair it."""

    #: whether the garbage collector passes by what was read
    _is_frozen = False

    def __init__(
        self,
        settings: Settings,
        client: Client,
        *,
        wall: Clock,
        metrics: Metrics,
        may: Callable[[], str | None] = lambda: None,
    ) -> None:
        """Put the parts together; nothing runs yet.

        Args:
            settings: What we were told.
            client: An open client.
            wall: For all that depends on time.
            metrics: Counts; shows the sizes of this extender from now on.
            may: Says why nothing may be decided now, if so.
        """
        self._wall = wall
        self._may = may
        self._cache = Cache(
            self_maintain=settings.self_maintain_available_card,
            agent_silent_s=settings.agent_silent_s,
            limits=gang_events.Limits(
                gate_s=settings.gate_s,
                evicts_incomplete=settings.incomplete == "evict",
            ),
            bare_nodes=settings.bare_nodes,
        )
        self._notes = Notes()
        self._recorder = Recorder(
            client, component=COMPONENT, spacing_s=_EVENT_SPACING_S
        )
        self._client = client
        self._waker = Waker(self._mark, self._any_node)
        self._live = Live(
            live_settings.adjustable(settings), adjust=self._adjust, say=self._say
        )
        self._networks = Networks(self._cache, self._live.now.rules)
        jobs_api = KubeJobs(client, self._recorder, self._waker)
        self._planner = Planner(
            self._cache,
            jobs_api,
            clock=wall,
            metrics=metrics,
            world=self._networks.world,
        )
        self._binder = Binder(
            self._cache,
            KubePods(client, bind_s=settings.bind_s),
            gate=self._planner,
            clock=wall,
            metrics=metrics,
            told=self._told,
            may=may,
        )
        self._evictor = self._maker_of_room(settings, jobs_api, metrics)
        self._feed = Feed(
            client,
            learn=self._learn,
            settings=self._live.learn,
            synced=self._synced,
        )
        self._sweeping = Sweeping(
            self._feed,
            self._cache,
            metrics,
            learn=self._learn,
            promises=Promises(known=self._promised, take_up=self._binder.take_up),
            every_s=settings.sweep_s,
        )
        self._server = Server(
            self._cache,
            self._binder,
            planner=self._planner,
            notes=self._notes,
            metrics=metrics,
            clock=wall,
            why_not_ready=self.why_not_ready,
            on_refused=self._waker.refused,
            evictor=self._evictor,
        )
        self._volcano = Volcano(
            Parts(
                cache=self._cache,
                sessions=Sessions(self._cache, self._planner, wall),
                marks=Marks(KubeMarks(client)),
                groups=Groups(KubeGroups(client), wall),
                notes=self._notes,
                metrics=metrics,
                clock=wall,
                tell=self._not_taken_up,
            ),
            self.why_not_ready,
        )
        self._shadowing = (
            Shadowing(self._cache, metrics, wall=wall, world=self._networks.world)
            if settings.shadow
            else None
        )
        self._sharing = (
            Sharing(self._cache, self._networks, KubeShare(client, namespace))
            if (namespace := settings.tor_share_namespace) and not settings.shadow
            else None
        )
        self._reading = Reading(
            self._cache,
            self._networks,
            self.why_not_ready,
            notes=self._notes,
            clock=wall,
        )
        metrics.watch_cache(self._cache)
        metrics.watch_events(self._recorder)
        metrics.watch_settings(lambda: self._live.is_unusable)

    def _maker_of_room(
        self, settings: Settings, jobs: KubeJobs, metrics: Metrics
    ) -> Evictor | None:
        """Who evicts for pods of higher priority; None: the scheduler alone."""
        if settings.preemption != "evict":
            return None
        evictions = KubeEvictions(self._client, metrics, tell=jobs.tell, wake=jobs.wake)
        return Evictor(
            self._cache,
            evictions,
            clock=self._wall,
            world=self._networks.world,
            why_wait=self._planner.why_wait,
        )

    def routes(self) -> list[web.RouteDef]:
        """What it answers over HTTP."""
        routes = [*self._server.routes(), *self._volcano.routes()]
        if self._shadowing is not None:
            routes = self._shadowing.routes(routes)
        return [*routes, *self._reading.routes()]

    @property
    def is_quiet(self) -> bool:
        """Whether no bind that it began can still take effect unknown to it."""
        return self._binder.is_quiet

    def why_not_ready(self) -> str | None:
        """Why nothing is answered now: another may decide, or not all has been read.

        On a cluster of which a part is not known, chips look free that are not.
        """
        missing = self._feed.missing()
        return self._may() or (f"waiting for {missing}" if missing else None)

    async def run(self) -> None:
        """Follow the cluster until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._feed.run(), name="feed")
                group.create_task(self._sweeping.run(), name="sweep")
                group.create_task(self._recorder.run(), name="events")
                group.create_task(self._waker.run(), name="waker")
                group.create_task(self._tick(), name="tick")
                if self._sharing is not None:
                    group.create_task(self._sharing.run(), name="sharing")
        finally:
            if self._evictor is not None:
                await self._evictor.stop()
            await self._planner.stop()
            await self._binder.stop()
            await self._volcano.stop()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self._learn(events.Ticked(lost=self._feed.lost()))
            self._planner.tick()
            self._volcano.tick()
            if self._evictor is not None and self.why_not_ready() is None:
                self._evictor.tick()
            await self._binder.audit()

    def _promised(self) -> set[str]:
        """UIDs of the pods for whose promises somebody answers, besides plans."""
        handed = self._evictor.promised if self._evictor is not None else ()
        return {*self._binder.promised, *self._volcano.promised, *handed}

    def _adjust(self, to: Adjustable) -> None:
        """Put changed settings into force, and have the pods that wait tried again."""
        self._networks.follow(to.rules)
        self._learn(events.ModeSet(self_maintain=to.self_maintain))
        self._waker.again()

    def _say(self, about: Regarding, reason: str, text: str) -> None:
        kind = "Warning" if reason.endswith("Unusable") else "Normal"
        if self._shadowing is not None:
            return  # the log has it; a shadow writes nothing
        self._recorder.record(about, reason=reason, message=text, type=kind)

    def _synced(self) -> None:
        """Once the cluster has been read, have the garbage collector pass it by.

        What was read lives long, and walking through it would hold up a filter for
        tens of milliseconds each time.
        """
        if not self._is_frozen and not self._feed.missing():
            self._is_frozen = True
            self._learn(events.Ticked(is_all_read=True))
            if self._shadowing is None:
                self._volcano.adopt()
            gc_freeze.pass_by()
            known = {"nodes": len(self._cache.cluster), "pods": len(self._cache.pods)}
            log.info("in step with the cluster", extra=known)

    def _learn(self, change: events.Change) -> None:
        if self._shadowing is not None:
            self._shadowing.before(change)
        step(self._cache, change, self._wall.now_s())
        self._planner.settle()
        self._waker.better(self._cache.better)
        self._cache.better.clear()

    def _any_node(self) -> str:
        return next(iter(self._cache.cluster.names), "")

    async def _mark(self, node: str) -> None:
        # nanoseconds, so that two marks are never the same
        when = str(self._wall.now_ns())
        await nodes.patch(self._client, node, annotations={wake.ANNOTATION: when})

    def _told(self, pod: NpuPod, made: Choice) -> None:
        """Remember why a pod is where it is, and say so on the pod."""
        text = made.sentence
        log.info("pod bound", extra={"pod": f"{pod.namespace}/{pod.name}", "why": text})
        self._notes.put(pod.uid, Note(at_s=self._wall.wall_s(), text=text))
        self._recorder.record(
            about(pod),
            reason="AscendScheduled",
            message=text,
        )

    def _not_taken_up(self, job: Job, pod: NpuPod | None, said: str) -> None:
        """Say why Volcano's queue passes a job by: it has no words for it itself."""
        log.info("job not taken up", extra={"group": job.name, "why": said})
        group = Regarding(
            kind="PodGroup",
            name=job.name,
            namespace=job.namespace,
            uid=job.group_uid,
        )
        for each in (group, *([about(pod)] if pod else [])):
            self._recorder.record(
                each, reason="AscendNoRoom", message=said, type="Warning"
            )


async def main(settings: Settings) -> None:
    """Run an extender until cancelled.

    Raises:
        SettingsError: the address is taken, or there is no way to the API server.
    """
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    wall = clocks.of_this_machine()
    async with Client(
        credentials.given(
            kubeconfig_file=settings.kubeconfig,
            api_server=settings.api_server,
            service_account_dir=settings.service_account_dir,
            environ=os.environ,
        ),
        user_agent=COMPONENT,
        count=metrics.count_request,
    ) as client:
        election = election_of(settings, client, wall)

        def extender() -> Extender:
            may = election.why_not if election is not None else lambda: None
            return Extender(settings, client, wall=wall, metrics=metrics, may=may)

        office = Office(extender, election)
        metrics.watch_election(
            lambda: election.phase if election is not None else Phase.LEADING
        )
        async with listeners.open_for(
            settings, registry, office.why_not_ready, office.routes()
        ) as addresses:
            log.info("serving", extra={"address": addresses[0]})
            await office.run()
