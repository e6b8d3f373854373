"""Taking part in the election of the extender that decides: reads and writes the lease.

What to do is said by `lease.step`; here it is done, one request after the other.
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
from extender.election.lease import Phase, State, Terms
from extender.settings import Settings
from kube import leases
from kube.client import Client
from kube.errors import ConflictError, KubeError, NotFoundError
from kube.objects import Lease, LeaseSpec
from service import clock

log = logging.getLogger(__name__)

#: So many answers are followed up at once; then it is the next tick's turn.
_ROUNDS_MOST = 4


class LeaseApi(Protocol):
    """What an election asks of the API server."""

    async def get(self) -> Lease:
        """Return the lease as it is now."""

    async def create(self, spec: LeaseSpec) -> Lease:
        """Make the lease."""

    async def write(self, before: Lease, spec: LeaseSpec) -> Lease:
        """Write the lease if it is still as before."""


class KubeLease:
    """The lease at the API server."""

    def __init__(
        self, client: Client, namespace: str, name: str, *, timeout_s: float
    ) -> None:
        """Use an open client."""
        self._client = client
        self._namespace = namespace
        self._name = name
        self._timeout_s = timeout_s

    async def get(self) -> Lease:
        """Return the lease as it is now."""
        return await leases.get(
            self._client, self._namespace, self._name, timeout_s=self._timeout_s
        )

    async def create(self, spec: LeaseSpec) -> Lease:
        """Make the lease."""
        return await leases.create(
            self._client, self._namespace, self._name, spec, timeout_s=self._timeout_s
        )

    async def write(self, before: Lease, spec: LeaseSpec) -> Lease:
        """Write the lease if it is still as before."""
        return await leases.write(self._client, before, spec, timeout_s=self._timeout_s)


class Election:
    """One extender's part in it. Owner of what is known of the lease."""

    def __init__(
        self,
        api: LeaseApi,
        terms: Terms,
        *,
        wall: Clock,
        now_s: Callable[[], float] = clock.loop_s,
    ) -> None:
        """Take no part yet.

        Args:
            api: Where the lease is.
            terms: How long things last, and who we are.
            wall: For the times that people read in the lease.
            now_s: Counts seconds, and only goes forwards.
        """
        self._api = api
        self._terms = terms
        self._wall = wall
        self._now_s = now_s
        self._state = State()
        self._changed = asyncio.Condition()

    @property
    def phase(self) -> Phase:
        """How far we are."""
        return self._state.phase

    def why_not(self) -> str | None:
        """Why we decide nothing now; None: we do."""
        return lease_machine.why_not(self._state, self._now_s())

    async def until(self, *, leads: bool) -> None:
        """Wait until it has become our turn to decide, or is no longer."""
        async with self._changed:
            await self._changed.wait_for(
                lambda: (self._state.phase is Phase.LEADING) is leads
            )

    async def run(self) -> NoReturn:
        """Look after the lease until cancelled."""
        while True:
            await self.tick()
            await asyncio.sleep(self._terms.retry_s)

    async def tick(self) -> None:
        """Read or renew the lease once, and do what follows at once."""
        events: list[lease_machine.Event] = [lease_machine.Ticked()]
        before = self._state.phase
        for _ in range(_ROUNDS_MOST):
            effects: list[lease_machine.Effect] = []
            for event in events:
                self._state, more = lease_machine.step(
                    self._state, event, self._now_s(), self._terms
                )
                effects += more
            if self._state.phase is not before:
                before = await self._tell()
            events = [e for e in [await self._do(one) for one in effects] if e]
            if not events:
                return

    async def release(self) -> None:
        """Give the lease back, so that another need not wait until it runs out.

        To be called when nothing that we decided is under way any more.
        """
        state = self._state
        if (
            lease_machine.why_not(state, self._now_s()) is not None
            or state.lease is None
        ):
            return
        self._state = replace(state, phase=Phase.WAITING)
        try:
            await self._give_back(state.lease)
        except KubeError as error:
            log.warning("lease not given back", extra={"error": str(error)})

    async def _give_back(self, lease: Lease) -> None:
        try:
            await self._api.write(lease, lease_machine.freed(lease, self._now()))
        except ConflictError:
            # Our last write was cut off and got through all the same.
            found = await self._api.get()
            if lease_machine.holder_of(found) == self._terms.me:
                await self._api.write(found, lease_machine.freed(found, self._now()))

    async def _tell(self) -> Phase:
        """Wake who waits for our turn."""
        holder = lease_machine.holder_of(self._state.lease)
        log.info("election", extra={"phase": self._state.phase.value, "holder": holder})
        async with self._changed:
            self._changed.notify_all()
        return self._state.phase

    async def _do(self, effect: lease_machine.Effect) -> lease_machine.Event | None:
        match effect:
            case lease_machine.Read():
                return await self._read()
            case lease_machine.Write(over=over):
                return await self._write(over)
            case lease_machine.Begin() | lease_machine.End():
                return None  # whoever waits in `until` has been woken
            case _:
                assert_never(effect)

    async def _read(self) -> lease_machine.Event | None:
        try:
            found = await self._api.get()
        except NotFoundError:
            return lease_machine.Found(lease=None)
        except KubeError as error:
            log.warning("lease not read", extra={"error": str(error)})
            return None
        began_s = clock.parsed(found.spec.acquire_time or "")
        if began_s is None:
            return lease_machine.Found(lease=found)
        return lease_machine.Found(lease=found, age_s=self._wall.wall_s() - began_s)

    async def _write(self, over: Lease | None) -> lease_machine.Event | None:
        sent_s = self._now_s()
        spec = lease_machine.taken(over, self._terms, self._now())
        try:
            if over is None:
                written = await self._api.create(spec)
            else:
                written = await self._api.write(over, spec)
        except (ConflictError, NotFoundError):
            return lease_machine.Refused()
        except KubeError as error:
            log.warning("lease not written", extra={"error": str(error)})
            return None
        return lease_machine.Written(lease=written, sent_s=sent_s)

    def _now(self) -> str:
        return clock.rfc3339_micro(self._wall.wall_s())


def election_of(settings: Settings, client: Client, wall: Clock) -> Election | None:
    """Our part in the election of the extender that decides; None: we are alone."""
    if not settings.lease:
        return None
    me = settings.identity or f"{socket.gethostname()}_{os.getpid()}_{wall.now_ns()}"
    terms = lease_machine.terms(me, lease_s=settings.lease_s, bind_s=settings.bind_s)
    lease = KubeLease(
        client, settings.lease_namespace, settings.lease, timeout_s=terms.retry_s * 2
    )
    return Election(lease, terms, wall=wall)
