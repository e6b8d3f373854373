"""The running extender: feeds its parts, and runs them while this replica leads."""

import asyncio
import logging
import os
from collections.abc import Callable
from functools import partial

from aiohttp import web

from extender import clocks, wiring
from extender.apiserver.live_settings import DynamicSettings
from extender.cache import events
from extender.clocks import Clock
from extender.election.elector import election_of
from extender.election.lease import Phase
from extender.election.term import Leadership
from extender.http import listeners
from extender.metrics import Metrics
from extender.settings import Settings
from extender.shadow import reporter
from extender.wiring import COMPONENT, Callbacks, Environment
from kube import credentials
from kube.client import Client
from service import clock, gc_freeze
from service.metrics import open_registry

log = logging.getLogger(__name__)

#: Seconds between two checks for silent agents, expired plans and lost binds.
_TICK_S = 1.0


class Extender:
    """The parts of the extender for one term as leader.

    Its own state is whether all first lists have been read.
    """

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
            client: Open client of the API server; owned by the caller.
            metrics: Metrics of the process. From now on they show this extender's
                cache.
            why_not_leading: Returns why this extender may not decide now; None if
                it may.
        """
        self._why_not_leading = why_not_leading
        #: whether all first lists are complete; they stay so
        self._is_synced = False
        self._parts = wiring.connect(
            Environment(
                settings=settings,
                client=client,
                wall=wall,
                metrics=metrics,
                why_not_leading=why_not_leading,
            ),
            Callbacks(
                learn=self._learn,
                adjust=self._adjust,
                synced=self._synced,
                why_not_ready=self.why_not_ready,
            ),
        )

    def routes(self) -> list[web.RouteDef]:
        """Return all HTTP routes of the extender.

        In shadow mode the extender decides nothing, and only routes under `/v1/` are
        returned.
        """
        parts = self._parts
        routes = [*parts.kube_scheduler.routes(), *parts.volcano.routes()]
        if parts.shadow is not None:
            routes = reporter.routes(parts.shadow, routes)
        return [*routes, *parts.queries.routes()]

    @property
    def is_quiet(self) -> bool:
        """Whether no bind or eviction of this extender can take effect any more.

        If True when the program ends, the Lease is released for the next leader.
        """
        rescheduler = self._parts.rescheduler
        is_still = rescheduler is None or rescheduler.is_quiet
        return is_still and self._parts.binder.is_quiet

    def why_not_ready(self) -> str | None:
        """Return why the extender serves no scheduler now; None if it serves them.

        It serves none while this replica does not lead. Nor does it serve any before
        the watches of nodes, pods, device ConfigMaps and settings have complete lists.
        With a partial view of the cluster, chips look free that are not.
        """
        why_not_leading = self._why_not_leading()
        if why_not_leading or self._is_synced:
            return why_not_leading
        return f"waiting for {self._parts.informers.name_unsynced()}"

    async def run(self) -> None:
        """Run all parts until cancelled; then end open requests to the API server.

        After the cancellation, binder and rescheduler send nothing new and wait up to
        `binder.STOP_S` for what they have sent. All other open requests are cancelled.
        """
        parts = self._parts
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(parts.informers.run(), name="informers")
                group.create_task(parts.resync.run(), name="resync")
                group.create_task(parts.recorder.run(), name="events")
                group.create_task(parts.waker.run(), name="waker")
                group.create_task(self._tick(), name="tick")
                if parts.tor_share is not None:
                    group.create_task(parts.tor_share.run(), name="tor-share")
        finally:
            if parts.preemptor is not None:
                await parts.preemptor.stop()
            await parts.job_calls.stop()
            await parts.permits.stop()
            async with asyncio.TaskGroup() as group:
                if parts.rescheduler is not None:
                    group.create_task(parts.rescheduler.stop(), name="moves stop")
                group.create_task(parts.binder.stop(), name="binds stop")
            await parts.volcano.stop()

    async def _tick(self) -> None:
        parts = self._parts
        while True:
            await asyncio.sleep(_TICK_S)
            self._learn(events.Ticked(lost=parts.informers.name_disconnected()))
            parts.permits.tick()
            parts.job_calls.tick(clock.wall_s())
            if parts.planner.tick():
                parts.waker.retry_all()
            parts.volcano.tick()
            if self.why_not_ready() is not None:
                continue
            if parts.preemptor is not None:
                parts.preemptor.tick()
            if parts.rescheduler is not None:
                parts.rescheduler.tick()

    def _adjust(self, settings: DynamicSettings) -> None:
        """Put changed settings into force, and make schedulers retry refused pods."""
        self._parts.networks.set_rules(settings.rules)
        if self._parts.rescheduler is not None:
            self._parts.rescheduler.hold_all(is_held=settings.holds_moves)
        self._learn(events.SelfMaintainSet(self_maintain=settings.self_maintain))
        self._parts.waker.retry_all()

    def _synced(self) -> None:
        """Finish the extender's start once all required watches have complete lists.

        Reserve the chips that Volcano has allocated to unbound pods, unless in shadow
        mode. Then exclude all objects in memory from Python's garbage collection, which
        would delay filter requests by tens of milliseconds. Later calls do nothing.
        """
        parts = self._parts
        if not self._is_synced and not parts.informers.name_unsynced():
            self._is_synced = True
            if parts.shadow is None:
                parts.volcano.adopt()
            gc_freeze.freeze_live_objects()
            sizes = {"nodes": len(parts.cache.index), "pods": len(parts.cache.pods)}
            log.info("in step with the cluster", extra=sizes)

    def _learn(self, change: events.Change) -> None:
        if self._parts.shadow is not None:
            self._parts.shadow.compare_bound(change)
        self._parts.apply(change)


async def main(settings: Settings) -> None:
    """Run the extender until cancelled, with a new `Extender` for each term as leader.

    Raises:
        SettingsError: An address to serve, or its certificate, cannot be used.
            Or the settings give no usable address or credentials of an API server.
    """
    gc_freeze.collect_less_often()  # until the first lists are complete, all is kept
    registry = open_registry("ascend_extender")
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
        extender = partial(Extender, settings, client, wall=wall, metrics=metrics)
        if election is not None:
            extender = partial(extender, why_not_leading=election.why_not_leading)
        leadership = Leadership(extender, election)
        metrics.watch(
            "leading", lambda: election is None or election.phase is Phase.LEADING
        )
        async with listeners.serve(
            settings, registry, leadership.why_not_ready, leadership.routes()
        ) as addresses:
            log.info("serving", extra={"address": addresses[0]})
            await leadership.run()
