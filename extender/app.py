"""The running extender: connects its parts, and runs them while this replica leads."""

import asyncio
import logging
import os
from collections.abc import Callable

from aiohttp import web
from prometheus_client import CollectorRegistry

from extender import clocks
from extender.apiserver import live_settings, wake
from extender.apiserver.informers import Informers
from extender.apiserver.live_settings import DynamicSettings, SettingsFollower
from extender.apiserver.resync import ReservationCheck, Resync
from extender.apiserver.tor_share import TorShareWriter
from extender.apiserver.wake import SchedulerWaker
from extender.apiserver.writers import (
    KubeGroups,
    KubeJobs,
    KubeMarks,
    KubePods,
    KubeTorShare,
    pod_regarding,
)
from extender.cache import events
from extender.cache.cache import Cache, step
from extender.clocks import Clock
from extender.election.elector import election_of
from extender.election.lease import Phase
from extender.election.term import Leadership
from extender.gang import events as gang_events
from extender.http import listeners
from extender.kube_scheduler.binder import Binder
from extender.kube_scheduler.verbs import KubeSchedulerVerbs
from extender.metrics import Metrics
from extender.planning.planner import Planner
from extender.planning.topology import NetworkTopology
from extender.preemption.evictions import KubeEvictions
from extender.preemption.preemptor import Preemptor
from extender.queries.routes import QueryRoutes
from extender.scheduling.decisions import LastDecision, LastDecisions
from extender.scheduling.reserve import Choice
from extender.settings import Settings
from extender.shadow.reporter import ShadowReporter
from extender.volcano.claims import ClaimWriter
from extender.volcano.podgroup_conditions import PodGroupConditions
from extender.volcano.protocol import Job
from extender.volcano.sessions import Sessions
from extender.volcano.verbs import Parts, VolcanoVerbs
from kube import credentials, nodes
from kube.client import Client
from kube.events import Recorder, Regarding
from scheduler_core.wire.pods import NpuPod
from service import gc_freeze

log = logging.getLogger(__name__)

COMPONENT = "ascend-extender"
#: Seconds between two checks for silent agents, expired plans and lost binds.
_TICK_S = 1.0
#: Seconds between two events. People read them, slowly. An event costs the API server
#: as much as the bind it reports, while other pods wait for theirs.
_EVENT_SPACING_S = 0.05


class Extender:
    """All parts of the extender, with their shared cache, for one term as leader."""

    #: whether the garbage collector skips the objects of the first lists
    _is_frozen = False

    def __init__(
        self,
        settings: Settings,
        client: Client,
        *,
        wall: Clock,
        metrics: Metrics,
        why_not_leading: Callable[[], str | None] = lambda: None,
    ) -> None:
        """Construct all parts of the extender; `run` starts them.

        Args:
            settings: Settings of the program.
            client: Open client of the API server; owned by the caller.
            wall: Clocks for all parts.
            metrics: Metrics of the process. From now on they show this extender's
                cache.
            why_not_leading: Returns why this extender may not decide now; None if
                it may.
        """
        self._wall = wall
        self._why_not_leading = why_not_leading
        self._cache = Cache(
            self_maintain=settings.self_maintain_available_card,
            agent_silent_s=settings.agent_silent_s,
            limits=gang_events.Limits(
                gate_s=settings.gate_s,
                evicts_incomplete=settings.incomplete == "evict",
            ),
            bare_nodes=settings.bare_nodes,
        )
        self._decisions = LastDecisions()
        self._recorder = Recorder(
            client, component=COMPONENT, spacing_s=_EVENT_SPACING_S
        )
        self._client = client
        self._waker = SchedulerWaker(self._annotate_node, self._any_node)
        self._dynamic = SettingsFollower(
            live_settings.from_settings(settings),
            adjust=self._adjust,
            record=self._record_settings,
        )
        self._networks = NetworkTopology(self._cache, self._dynamic.in_force.rules)
        jobs_api = KubeJobs(client, self._recorder, self._waker)
        self._planner = Planner(
            self._cache,
            jobs_api,
            clock=wall,
            metrics=metrics,
            topology=self._networks.snapshot,
        )
        self._binder = Binder(
            self._cache,
            KubePods(client, bind_s=settings.bind_s),
            permits=self._planner,
            clock=wall,
            metrics=metrics,
            on_bound=self._record_bound,
            why_not_leading=why_not_leading,
        )
        self._preemptor = self._make_preemptor(settings, jobs_api, metrics)
        self._informers = Informers(
            client,
            learn=self._learn,
            settings=self._dynamic.follow,
            synced=self._synced,
        )
        self._resync = Resync(
            self._informers,
            self._cache,
            metrics,
            learn=self._learn,
            reservations=ReservationCheck(
                owned_uids=self._reserved_uids, take_up=self._binder.take_up
            ),
            every_s=settings.sweep_s,
        )
        self._server = KubeSchedulerVerbs(
            self._cache,
            self._binder,
            planner=self._planner,
            notes=self._decisions,
            metrics=metrics,
            clock=wall,
            why_not_ready=self.why_not_ready,
            on_refused=self._waker.note_refused,
            preemptor=self._preemptor,
        )
        self._volcano = VolcanoVerbs(
            Parts(
                cache=self._cache,
                sessions=Sessions(self._cache, self._planner, wall),
                marks=ClaimWriter(KubeMarks(client)),
                groups=PodGroupConditions(KubeGroups(client), wall),
                notes=self._decisions,
                metrics=metrics,
                clock=wall,
                tell=self._record_refused_job,
            ),
            self.why_not_ready,
        )
        self._shadow = (
            ShadowReporter(
                self._cache, metrics, wall=wall, topology=self._networks.snapshot
            )
            if settings.shadow
            else None
        )
        self._tor_share = (
            TorShareWriter(self._cache, self._networks, KubeTorShare(client, namespace))
            if (namespace := settings.tor_share_namespace) and not settings.shadow
            else None
        )
        self._queries = QueryRoutes(
            self._cache,
            self._networks,
            self.why_not_ready,
            notes=self._decisions,
            clock=wall,
        )
        metrics.watch_cache(self._cache)
        metrics.watch_events(self._recorder)
        metrics.watch_settings(lambda: self._dynamic.is_unusable)

    def _make_preemptor(
        self, settings: Settings, jobs: KubeJobs, metrics: Metrics
    ) -> Preemptor | None:
        """Return the preemptor if the setting `preemption` is "evict", else None.

        Without a preemptor, only kube-scheduler or Volcano evicts pods to make room.
        """
        if settings.preemption != "evict":
            return None
        evictions = KubeEvictions(self._client, metrics, tell=jobs.tell, wake=jobs.wake)
        return Preemptor(
            self._cache,
            evictions,
            clock=self._wall,
            topology=self._networks.snapshot,
            why_wait=self._planner.why_wait,
        )

    def routes(self) -> list[web.RouteDef]:
        """Return all HTTP routes of the extender.

        In shadow mode the extender decides nothing, and only routes under `/v1/` are
        returned.
        """
        routes = [*self._server.routes(), *self._volcano.routes()]
        if self._shadow is not None:
            routes = self._shadow.routes(routes)
        return [*routes, *self._queries.routes()]

    @property
    def is_quiet(self) -> bool:
        """Whether no bind request of this extender can take effect any more.

        If True when the program ends, the Lease is released for the next leader.
        """
        return self._binder.is_quiet

    def why_not_ready(self) -> str | None:
        """Return why the extender serves no scheduler now; None if it serves them.

        It serves none while this replica does not lead. Nor does it serve any before
        the watches of nodes, pods, device ConfigMaps and settings have complete lists.
        With a partial view of the cluster, chips look free that are not.
        """
        missing = self._informers.name_unsynced()
        return self._why_not_leading() or (
            f"waiting for {missing}" if missing else None
        )

    async def run(self) -> None:
        """Run all parts until cancelled; then end open requests to the API server.

        After the cancellation, the binder refuses new binds and waits up to
        `binder.STOP_S` for the binds already sent. Open requests of planner, preemptor
        and Volcano verbs are cancelled.
        """
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._informers.run(), name="informers")
                group.create_task(self._resync.run(), name="resync")
                group.create_task(self._recorder.run(), name="events")
                group.create_task(self._waker.run(), name="waker")
                group.create_task(self._tick(), name="tick")
                if self._tor_share is not None:
                    group.create_task(self._tor_share.run(), name="tor-share")
        finally:
            if self._preemptor is not None:
                await self._preemptor.stop()
            await self._planner.stop()
            await self._binder.stop()
            await self._volcano.stop()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self._learn(events.Ticked(lost=self._informers.name_disconnected()))
            self._planner.tick()
            self._volcano.tick()
            if self._preemptor is not None and self.why_not_ready() is None:
                self._preemptor.tick()
            await self._binder.audit()

    def _reserved_uids(self) -> set[str]:
        """Return UIDs of pods whose reservations the resync must leave alone.

        The binder, the Volcano verbs or the preemptor will end these reservations.
        """
        preemptor = self._preemptor
        nominated = preemptor.reserved_uids if preemptor is not None else ()
        return {*self._binder.reserved_uids, *self._volcano.reserved_uids, *nominated}

    def _adjust(self, settings: DynamicSettings) -> None:
        """Put changed settings into force, and make schedulers retry refused pods."""
        self._networks.set_rules(settings.rules)
        self._learn(events.SelfMaintainSet(self_maintain=settings.self_maintain))
        self._waker.retry_all()

    def _record_settings(self, config_map: Regarding, reason: str, text: str) -> None:
        kind = "Warning" if reason.endswith("Unusable") else "Normal"
        if self._shadow is not None:
            return  # it is in the log; a shadow writes nothing to the cluster
        self._recorder.record(config_map, reason=reason, message=text, type=kind)

    def _synced(self) -> None:
        """Finish the extender's start once all required watches have complete lists.

        Reserve the chips that Volcano has allocated to unbound pods, unless in shadow
        mode. Then exclude all objects in memory from Python's garbage collection, which
        would delay filter requests by tens of milliseconds. Later calls do nothing.
        """
        if not self._is_frozen and not self._informers.name_unsynced():
            self._is_frozen = True
            self._learn(events.Ticked(is_all_read=True))
            if self._shadow is None:
                self._volcano.adopt()
            gc_freeze.freeze_live_objects()
            sizes = {"nodes": len(self._cache.cluster), "pods": len(self._cache.pods)}
            log.info("in step with the cluster", extra=sizes)

    def _learn(self, change: events.Change) -> None:
        if self._shadow is not None:
            self._shadow.compare_bound(change)
        step(self._cache, change, self._wall.now_s())
        self._planner.carry_out_effects()
        self._waker.note_improved(self._cache.improved_nodes)
        self._cache.improved_nodes.clear()

    def _any_node(self) -> str:
        return next(iter(self._cache.cluster.names), "")

    async def _annotate_node(self, node: str) -> None:
        # nanoseconds, so that two values are never the same
        when = str(self._wall.now_ns())
        await nodes.patch(self._client, node, annotations={wake.ANNOTATION: when})

    def _record_bound(self, pod: NpuPod, choice: Choice) -> None:
        """Log why a bound pod got its node and chips, and record it as an event.

        The reason is also kept as the last decision on the pod, for `/v1/explain`.
        """
        text = choice.sentence
        log.info("pod bound", extra={"pod": f"{pod.namespace}/{pod.name}", "why": text})
        self._decisions.put(pod.uid, LastDecision(at_s=self._wall.wall_s(), text=text))
        self._recorder.record(
            pod_regarding(pod),
            reason="AscendScheduled",
            message=text,
        )

    def _record_refused_job(self, job: Job, pod: NpuPod | None, text: str) -> None:
        """Log why a job of Volcano does not fit, and emit events with the reason.

        One event is on the PodGroup, and one on `pod`.

        Args:
            job: The refused job.
            pod: A pod of the job; None if the cache has none.
            text: The reason.
        """
        log.info("job not taken up", extra={"group": job.name, "why": text})
        group = Regarding(
            kind="PodGroup",
            name=job.name,
            namespace=job.namespace,
            uid=job.group_uid,
        )
        for regarding in (group, *([pod_regarding(pod)] if pod else [])):
            self._recorder.record(
                regarding, reason="AscendNoRoom", message=text, type="Warning"
            )


async def main(settings: Settings) -> None:
    """Run the extender until cancelled, with a new `Extender` for each term as leader.

    Raises:
        SettingsError: An address to serve, or its certificate, cannot be used.
            Or the settings give no usable address or credentials of an API server.
    """
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    wall = clocks.of_this_machine()
    async with Client(
        credentials.from_settings(
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
            return Extender(
                settings,
                client,
                wall=wall,
                metrics=metrics,
                why_not_leading=(
                    election.why_not_leading if election is not None else lambda: None
                ),
            )

        leadership = Leadership(extender, election)
        metrics.watch_election(
            lambda: election.phase if election is not None else Phase.LEADING
        )
        async with listeners.serve(
            settings, registry, leadership.why_not_ready, leadership.routes()
        ) as addresses:
            log.info("serving", extra={"address": addresses[0]})
            await leadership.run()
