"""All parts of an extender for one term as leader, and how they are connected."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from extender.announcer import Announcer
from extender.apiserver import live_settings, wake, writers
from extender.apiserver.informers import Informers
from extender.apiserver.live_settings import DynamicSettings, SettingsFollower
from extender.apiserver.move_requests import KubeMoves
from extender.apiserver.resync import Resync
from extender.apiserver.tor_share import TorShareWriter
from extender.apiserver.wake import SchedulerWaker
from extender.apiserver.writers import KubeJobs, KubePods
from extender.cache.cache import Cache
from extender.cache.events import Change
from extender.cache.reservations import Owner
from extender.clocks import Clock
from extender.dispatch import Apply, Dispatcher, Router, ignore
from extender.gang import events as gang_events
from extender.kube_scheduler.binder import Binder
from extender.kube_scheduler.verbs import KubeSchedulerVerbs
from extender.metrics import Metrics
from extender.planning.job_calls import JobCalls
from extender.planning.permits import BindPermits
from extender.planning.planner import Planner
from extender.planning.topology import NetworkTopology
from extender.preemption.preemptor import Preemptor
from extender.queries.job_state import Sources
from extender.queries.routes import QueryRoutes
from extender.rescheduling.mover import Mover
from extender.rescheduling.moves import Limits, MoveEvent
from extender.rescheduling.rescheduler import Rescheduler
from extender.scheduling.decisions import LastDecisions
from extender.settings import Settings
from extender.shadow import reporter
from extender.shadow.compare import Shadow
from extender.volcano.claims import ClaimWriter
from extender.volcano.podgroup_conditions import PodGroupConditions
from extender.volcano.sessions import Sessions
from extender.volcano.verbs import Parts as VolcanoParts
from extender.volcano.verbs import VolcanoVerbs
from kube import nodes, pods
from kube.client import Client
from kube.events import Recorder
from kube.podgroups import PodGroupRequests
from service import open_files

COMPONENT = "ascend-extender"
#: Seconds between two events. People read them, slowly. An event costs the API server
#: as much as the bind it reports, while other pods wait for theirs.
_EVENT_SPACING_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What an extender gets from the program that runs it."""

    settings: Settings
    #: open client of the API server; owned by the caller
    client: Client
    #: clocks for all parts
    wall: Clock
    metrics: Metrics
    #: returns why this extender may not decide now; None if it may
    why_not_leading: Callable[[], str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Callbacks:
    """Functions of the extender that its parts call."""

    #: applies an event that a watch or the clock has brought
    learn: Callable[[Change], None]
    #: puts changed settings into force
    adjust: Callable[[DynamicSettings], None]
    #: called each time a watch has received a complete list
    synced: Callable[[], None]
    #: returns why no scheduler is served now; None if it is
    why_not_ready: Callable[[], str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts of one extender."""

    cache: Cache
    apply: Apply
    recorder: Recorder
    waker: SchedulerWaker
    networks: NetworkTopology
    job_calls: JobCalls
    permits: BindPermits
    planner: Planner
    binder: Binder
    preemptor: Preemptor | None
    rescheduler: Rescheduler | None
    kube_scheduler: KubeSchedulerVerbs
    volcano: VolcanoVerbs
    informers: Informers
    resync: Resync
    queries: QueryRoutes
    shadow: Shadow | None
    tor_share: TorShareWriter | None


def connect(environment: Environment, callbacks: Callbacks) -> Parts:
    """Construct and connect all parts; nothing is started.

    The metrics show the new cache from now on.
    """
    settings, client = environment.settings, environment.client
    wall, metrics = environment.wall, environment.metrics
    cache = Cache(
        self_maintain=settings.self_maintain_available_card,
        agent_silent_s=settings.agent_silent_s,
        limits=gang_events.Limits(
            permit_s=settings.permit_s,
            followers_s=settings.followers_s,
            evicts_incomplete=settings.incomplete == "evict",
        ),
        bare_nodes=settings.bare_nodes,
    )
    dispatcher = Dispatcher(cache, wall)
    recorder = Recorder(
        client,
        component=COMPONENT,
        spacing_s=_EVENT_SPACING_S,
        count_dropped=metrics.events_dropped.inc,
    )
    decisions = LastDecisions()
    announcer = Announcer(recorder, decisions, wall, is_mute=settings.shadow)
    waker = _make_waker(client, cache, wall)
    dynamic = SettingsFollower(
        live_settings.from_settings(settings),
        adjust=callbacks.adjust,
        record=announcer.record_settings,
    )
    networks = NetworkTopology(cache, dynamic.in_force.rules)
    jobs_api = KubeJobs(client, recorder, waker, metrics)
    job_calls = JobCalls(cache, dispatcher.apply, jobs_api)
    rescheduler = _make_rescheduler(
        environment,
        callbacks,
        cache,
        apply=dispatcher.apply,
        networks=networks,
        jobs_api=jobs_api,
        job_calls=job_calls,
    )
    returns = rescheduler.returns if rescheduler else None
    why_not_placing = (
        rescheduler.why_not_placing if rescheduler else callbacks.why_not_ready
    )
    permits = BindPermits(cache, dispatcher.apply, clock=wall, metrics=metrics)
    planner = Planner(
        cache,
        dispatcher.apply,
        clock=wall,
        request_size=job_calls.request_size,
        topology=networks.snapshot,
        why_held=returns.why_held if returns else None,
        metrics=metrics,
        open_files=open_files.limit(),
    )
    binder = Binder(
        cache,
        dispatcher.apply,
        KubePods(client, bind_s=settings.bind_s),
        wait=permits.wait,
        clock=wall,
        metrics=metrics,
        on_bound=announcer.record_bound,
        why_not_leading=environment.why_not_leading,
    )
    preemptor = None  # then only kube-scheduler or Volcano evicts pods to make room
    if settings.preemption == "evict":
        preemptor = Preemptor(
            cache,
            dispatcher.apply,
            jobs_api,
            clock=wall,
            topology=networks.snapshot,
            why_wait=planner.why_wait,
        )
    volcano = VolcanoVerbs(
        VolcanoParts(
            cache=cache,
            apply=dispatcher.apply,
            sessions=Sessions(cache, dispatcher.apply, planner, wall),
            marks=ClaimWriter(partial(pods.patch_annotations, client)),
            groups=PodGroupConditions(PodGroupRequests(client), wall),
            notes=decisions,
            metrics=metrics,
            clock=wall,
            tell=announcer.record_refused_job,
        ),
        why_not_placing,
    )
    dispatcher.connect(
        Router(
            permits=permits.carry_out,
            job_calls=job_calls.carry_out,
            waker=waker.carry_out,
            announcer=announcer.carry_out,
            rescheduler=rescheduler.carry_out if rescheduler else ignore,
            owners={
                Owner.PLAN: planner.carry_out,
                Owner.BIND: binder.carry_out,
                Owner.VOLCANO: volcano.carry_out,
                Owner.PREEMPTION: preemptor.carry_out if preemptor else ignore,
                Owner.RESCHEDULING: ignore,
            },
        ).carry_out
    )
    informers = Informers(
        client,
        learn=callbacks.learn,
        settings=dynamic.follow,
        synced=callbacks.synced,
    )
    metrics.watch_cache(cache)
    metrics.watch("settings_unusable", lambda: dynamic.is_unusable)
    metrics.watch(
        "evictions_braked", lambda: rescheduler is not None and rescheduler.is_braked
    )
    namespace = settings.tor_share_namespace
    return Parts(
        cache=cache,
        apply=dispatcher.apply,
        recorder=recorder,
        waker=waker,
        networks=networks,
        job_calls=job_calls,
        permits=permits,
        planner=planner,
        binder=binder,
        preemptor=preemptor,
        rescheduler=rescheduler,
        kube_scheduler=KubeSchedulerVerbs(
            cache,
            binder,
            planner=planner,
            notes=decisions,
            metrics=metrics,
            clock=wall,
            why_not_ready=why_not_placing,
            on_refused=waker.note_refused,
            preemptor=preemptor,
            returns=returns,
        ),
        volcano=volcano,
        informers=informers,
        resync=Resync(
            informers, cache, metrics, learn=callbacks.learn, every_s=settings.resync_s
        ),
        queries=QueryRoutes(
            Sources(
                cache=cache,
                notes=decisions,
                planner=planner,
                networks=networks,
                clock=wall,
                is_evicting=returns is not None,
            ),
            callbacks.why_not_ready,
            read_pod=partial(pods.get, client),
            describe_move=rescheduler.describe if rescheduler else lambda _uid: {},
        ),
        shadow=(
            Shadow(
                cache,
                wall_s=wall.wall_s,
                topology=networks.snapshot,
                on_finding=partial(reporter.report_finding, metrics),
            )
            if settings.shadow
            else None
        ),
        tor_share=(
            TorShareWriter(
                cache, networks, partial(writers.write_tor_share, client, namespace)
            )
            if namespace and not settings.shadow
            else None
        ),
    )


def _make_waker(client: Client, cache: Cache, wall: Clock) -> SchedulerWaker:
    async def annotate(node: str) -> None:
        # nanoseconds, so that two values are never the same
        when = str(wall.now_ns())
        await nodes.patch(client, node, annotations={wake.ANNOTATION: when})

    return SchedulerWaker(annotate, lambda: next(iter(cache.index.names), ""))


def _make_rescheduler(  # noqa: PLR0913  # its collaborators
    environment: Environment,
    callbacks: Callbacks,
    cache: Cache,
    *,
    apply: Apply,
    networks: NetworkTopology,
    jobs_api: KubeJobs,
    job_calls: JobCalls,
) -> Rescheduler | None:
    """Return what moves pods after faults, or only tells them; None for neither."""
    settings, client = environment.settings, environment.client
    if settings.rescheduling == "off" or settings.shadow:
        return None  # then a pod whose chip breaks is told by its agent only
    is_evicting = settings.rescheduling == "evict"

    def make_mover(report: Callable[[MoveEvent], None]) -> Mover:
        return Mover(
            cache,
            apply,
            KubeMoves(client, settings.lease_namespace, environment.metrics),
            clock=environment.wall,
            topology=networks.snapshot,
            wake=jobs_api.wake,
            tell=jobs_api.tell_fault,
            report=report,
            why_not_leading=environment.why_not_leading,
        )

    return Rescheduler(
        cache,
        jobs_api,
        clock=environment.wall,
        read_size=job_calls.read_size,
        why_not_ready=callbacks.why_not_ready,
        topology=networks.snapshot,
        limits=Limits(is_evicting=is_evicting, is_braking=settings.fault_brake == "on"),
        make_mover=make_mover if is_evicting else None,
    )
