"""One extender's part in the leader election: reads, renews and releases the Lease.

`lease.step` decides which requests to send, except for the release. This module sends
them, one at a time.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from dataclasses import replace
from typing import NoReturn, Protocol, assert_never

from extender.clocks import Clock
from extender.election import lease as lease_machine
from extender.election.lease import LeaseConfig, Phase, State
from extender.settings import Settings
from kube.client import Client
from kube.errors import ConflictError, KubeError, NotFoundError
from kube.leases import LeaseRequests
from kube.objects import Lease, LeaseSpec
from service import clock

log = logging.getLogger(__name__)

#: Most requests in a row that one tick may send, each asked for by the answer before.
_ROUNDS_MOST = 4


class LeaseApi(Protocol):
    """The three requests of `LeaseRequests` that `Election` sends, as an interface."""

    async def get(self) -> Lease:
        """Read the Lease from the API server."""

    async def create(self, spec: LeaseSpec) -> Lease:
        """Create the Lease with this spec, and return it."""

    async def write(self, current: Lease, spec: LeaseSpec) -> Lease:
        """Replace the spec if the Lease is still `current`; return it as written."""


class Election:
    """Leader election of this extender: takes, renews and releases the Lease."""

    def __init__(
        self,
        api: LeaseApi,
        config: LeaseConfig,
        *,
        wall: Clock,
        now_s: Callable[[], float] = clock.loop_s,
    ) -> None:
        """Start in phase WAITING. `run` sends the first request.

        Args:
            api: Reads and writes the Lease.
            config: Identity of this extender, and durations of the election.
            wall: Gives the times of day in the Lease, and the age of a Lease.
            now_s: Returns seconds of a clock that only goes forwards.
        """
        self._api = api
        self._config = config
        self._wall = wall
        self._now_s = now_s
        self._state = State()
        self._changed = asyncio.Condition()

    @property
    def phase(self) -> Phase:
        """Phase of this extender: WAITING, SETTLING or LEADING."""
        return self._state.phase

    def why_not_leading(self) -> str | None:
        """Return why this extender may not place or bind pods now; None if it may."""
        return lease_machine.why_not_leading(self._state, self._now_s())

    async def until(self, *, leads: bool) -> None:
        """Wait until this extender leads; with `leads=False`, until it does not."""
        async with self._changed:
            await self._changed.wait_for(
                lambda: (self._state.phase is Phase.LEADING) is leads
            )

    async def run(self) -> NoReturn:
        """Call `tick` every `retry_s` until cancelled."""
        while True:
            await self.tick()
            await asyncio.sleep(self._config.retry_s)

    async def tick(self) -> None:
        """Read the Lease if this extender is WAITING; otherwise renew the Lease.

        The answer may require a further request: a free Lease, for example, is written
        after it was read. One tick sends at most `_ROUNDS_MOST` requests, one by one.
        """
        event: lease_machine.Event | None = lease_machine.Ticked()
        announced = self._state.phase
        for _ in range(_ROUNDS_MOST):
            if event is None:
                return
            self._state, effects = lease_machine.step(
                self._state, event, self._now_s(), self._config
            )
            if self._state.phase is not announced:
                announced = await self._announce_phase()
            event = None
            for effect in effects:  # one at most
                event = await self._carry_out(effect)

    async def release(self) -> None:
        """If this extender leads, write the Lease without a holder.

        Another extender can then take the Lease at once, before `lease_s` have passed.
        A failure is only logged. Call this only after all bind requests of this
        extender are finished.
        """
        state = self._state
        if (
            lease_machine.why_not_leading(state, self._now_s()) is not None
            or state.lease is None
        ):
            return
        self._state = replace(state, phase=Phase.WAITING)
        try:
            await self._write_released(state.lease)
        except KubeError as error:
            log.warning("lease not released", extra={"error": str(error)})

    async def _write_released(self, lease: Lease) -> None:
        try:
            await self._api.write(
                lease, lease_machine.render_released(lease, self._now_text())
            )
        except ConflictError:
            # Our last write has succeeded, although its answer never arrived.
            lease = await self._api.get()
            if lease_machine.holder_of(lease) == self._config.identity:
                await self._api.write(
                    lease, lease_machine.render_released(lease, self._now_text())
                )

    async def _announce_phase(self) -> Phase:
        """Log the new phase, wake the tasks that wait in `until`, return the phase."""
        holder = lease_machine.holder_of(self._state.lease)
        log.info("election", extra={"phase": self._state.phase.value, "holder": holder})
        async with self._changed:
            self._changed.notify_all()
        return self._state.phase

    async def _carry_out(
        self, effect: lease_machine.Effect
    ) -> lease_machine.Event | None:
        match effect:
            case lease_machine.ReadLease():
                return await self._read()
            case lease_machine.WriteLease(over=over):
                return await self._write(over)
            case _:
                assert_never(effect)

    async def _read(self) -> lease_machine.Event | None:
        try:
            lease = await self._api.get()
        except NotFoundError:
            return lease_machine.LeaseRead(lease=None)
        except KubeError as error:
            log.warning("lease not read", extra={"error": str(error)})
            return None
        acquired_s = clock.parse_time(lease.spec.acquire_time or "")
        if acquired_s is None:
            return lease_machine.LeaseRead(lease=lease)
        return lease_machine.LeaseRead(
            lease=lease, age_s=self._wall.wall_s() - acquired_s
        )

    async def _write(self, over: Lease | None) -> lease_machine.Event | None:
        sent_s = self._now_s()
        spec = lease_machine.render_held(over, self._config, self._now_text())
        try:
            if over is None:
                written = await self._api.create(spec)
            else:
                written = await self._api.write(over, spec)
        except (ConflictError, NotFoundError):
            return lease_machine.WriteRefused()
        except KubeError as error:
            log.warning("lease not written", extra={"error": str(error)})
            return None
        return lease_machine.LeaseWritten(lease=written, sent_s=sent_s)

    def _now_text(self) -> str:
        return clock.rfc3339_micro(self._wall.wall_s())


def election_of(settings: Settings, client: Client, wall: Clock) -> Election | None:
    """Return the election of this extender; None if the settings name no Lease.

    Args:
        settings: Name and durations of the Lease, and the extender's identity.
        client: Open client of the API server.
        wall: Gives the times of day in the Lease.
    """
    if not settings.lease:
        return None
    identity = (
        settings.identity or f"{socket.gethostname()}_{os.getpid()}_{wall.now_ns()}"
    )
    config = LeaseConfig(
        identity=identity,
        lease_s=settings.lease_s,
        bind_s=settings.bind_s * lease_machine.NETWORK_FACTOR,
    )
    lease = LeaseRequests(
        client, settings.lease_namespace, settings.lease, timeout_s=config.retry_s * 2
    )
    return Election(lease, config, wall=wall)
