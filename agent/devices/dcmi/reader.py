"""What the worker does with the library: who is there, and how each of them is.

A chip whose codes cannot be read is not a chip without faults: it is told as unread,
and the agent keeps what it knew. Everything else about a chip is worth having and
never worth failing for.
"""

from collections.abc import Callable, Container
from pathlib import Path
from typing import TypeVar

from agent.devices.dcmi.library import (
    NO_FUNCTION,
    NOT_EXIST,
    NOT_SUPPORTED,
    CallError,
    Library,
)
from agent.devices.dcmi.values import UNKNOWN, ChipLook, Code, Identity, Survey

#: A chip that is not ready has dropped off: the code that stands for that.
#: Source: MindCluster, `devmanager/dcmi/dcmi.go` (at 22bb3d98).
DROPPED = 0x40F84E00
#: The driver's check of the network waits for answers from the network.
NETWORK_EACH_S = 5.0
#: Addresses change when somebody configures them.
IDENTITIES_EACH_S = 60.0
#: Codes of events that are remembered for their severity.
_MOST_SEVERITIES = 1024

T = TypeVar("T")


class Looker:
    """Protects what the last looks have found, and what events have brought since."""

    def __init__(
        self, library: Library, *, now_s: Callable[[], float], nodes: Path
    ) -> None:
        """Ask nothing yet.

        Args:
            library: The library, begun.
            now_s: A clock that never goes back. Unit: seconds.
            nodes: Where the kernel describes NUMA nodes.
        """
        self._library = library
        self._now_s = now_s
        self._nodes = nodes
        self._identities: tuple[Identity, ...] = ()
        self._unidentified: tuple[tuple[int, int, str], ...] = ()
        self._identified_at = float("-inf")
        self._version = ""
        self._networks: dict[int, int | None] = {}
        self._networks_at = float("-inf")
        #: {(logic id, code): what its event said}
        self._said: dict[tuple[int, int], Code] = {}
        #: what events have brought since the last look
        self._pulses: dict[tuple[int, int], Code] = {}

    def take_in(self, logic_id: int, code: Code, *, is_over: bool) -> None:
        """Remember an event until the next look, and its severity for longer."""
        key = (logic_id, code.code)
        if is_over:
            return
        self._pulses[key] = code
        self._said.pop(key, None)
        self._said[key] = code
        if len(self._said) > _MOST_SEVERITIES:
            del self._said[next(iter(self._said))]

    def look(self) -> Survey:
        """Look at every chip.

        Raises:
            CallError: Not even the cards can be counted.
        """
        now = self._now_s()
        if now - self._identified_at >= IDENTITIES_EACH_S or self._unidentified:
            self._identify()
            self._identified_at = now
        if now - self._networks_at >= NETWORK_EACH_S:
            self._networks = {
                each.logic_id: self._network(each) for each in self._identities
            }
            self._networks_at = now
        pulses, self._pulses = self._pulses, {}
        looks = (self._chip(each, pulses) for each in self._identities)
        return Survey(
            chips=tuple(look for look in looks if look is not None),
            unidentified=self._unidentified,
            driver_version=self._version,
        )

    def _chip(
        self, identity: Identity, pulses: dict[tuple[int, int], Code]
    ) -> ChipLook | None:
        """Look at one chip; None when it is gone."""
        card, device, logic_id = identity.card, identity.device, identity.logic_id
        network = self._networks.get(logic_id)
        try:
            polled = self._codes(card, device)
        except CallError as error:
            if error.code == NOT_EXIST:
                return None
            return ChipLook(identity=identity, network=network, unread=str(error))
        codes = {
            code: self._said.get((logic_id, code), Code(code=code)) for code in polled
        }
        for (of, number), code in pulses.items():
            if of == logic_id:
                codes[number] = code
        self._forget(logic_id, codes.keys())
        pids, unread = self._pids(card, device)
        return ChipLook(
            identity=identity,
            codes=tuple(codes.values()),
            network=network,
            pids=pids,
            unread_pids=unread,
        )

    def _pids(self, card: int, device: int) -> tuple[tuple[int, ...], str]:
        """The processes on a chip, and why they are not known."""
        try:
            return self._library.pids(card, device), ""
        except CallError as error:
            return (), "" if error.code == NOT_SUPPORTED else str(error)

    def _codes(self, card: int, device: int) -> tuple[int, ...]:
        if self._library.is_ready(card, device):
            return self._library.codes(card, device)
        none: tuple[int, ...] = ()
        codes = _or(self._library.codes, none, card, device)
        return tuple(dict.fromkeys((*codes, DROPPED)))

    def _forget(self, logic_id: int, reported: Container[int]) -> None:
        """Let go of events whose codes are no longer reported."""
        stale = [
            key for key in self._said if key[0] == logic_id and key[1] not in reported
        ]
        for key in stale:
            del self._said[key]

    def _network(self, identity: Identity) -> int | None:
        return _or(self._library.network, None, identity.card, identity.device)

    def _identify(self) -> None:
        found: list[Identity] = []
        problems: list[tuple[int, int, str]] = []
        for card in self._library.cards():
            try:
                devices = self._library.devices(card)
            except CallError as error:
                problems.append((card, -1, str(error)))
                continue
            for device in devices:
                try:
                    found.append(self._identity(card, device))
                except CallError as error:
                    if error.code != NOT_EXIST:
                        problems.append((card, device, str(error)))
        self._identities = tuple(sorted(found, key=lambda each: each.physical_id))
        self._unidentified = tuple(problems)
        try:
            self._version = self._library.version()
        except CallError:
            self._version = ""

    def _identity(self, card: int, device: int) -> Identity:
        ask = self._library
        logic_id = ask.logic_id(card, device)
        name, ai_core_count = _or(ask.chip_info, ("", 0), card, device)
        nowhere = (UNKNOWN, UNKNOWN, UNKNOWN)
        super_device_id, super_pod_id, index = _or(ask.super_pod, nowhere, card, device)
        return Identity(
            card=card,
            device=device,
            physical_id=ask.physical_id(card, device, logic_id),
            logic_id=logic_id,
            name=name,
            board_id=_or(ask.board_id, 0, card, device),
            ai_core_count=ai_core_count,
            product_type=_or(ask.product_type, "", card, device),
            numa=self._numa(_or(ask.near_cpus, "", card, device)),
            ip=_or(ask.address, "", card, device),
            memory_mb=_or(ask.memory_mb, 0, card, device),
            super_device_id=super_device_id,
            super_pod_id=super_pod_id,
            server_index=index,
            virtual=self._virtual(card, device),
        )

    def _virtual(self, card: int, device: int) -> tuple[tuple[int, str], ...] | None:
        """The parts of a chip; None when they are not known: it may have some."""
        try:
            return self._library.virtual(card, device)
        except CallError as error:
            return () if error.code in (NOT_SUPPORTED, NO_FUNCTION) else None

    def _numa(self, cpus: str) -> int | None:
        """The NUMA node that has exactly these CPUs."""
        for node in sorted(self._nodes.glob("node[0-9]*")) if cpus else ():
            try:
                found = (node / "cpulist").read_text().strip()
            except OSError:
                continue
            if found == cpus:
                return int(node.name.removeprefix("node"))
        return None


def _or(function: Callable[[int, int], T], otherwise: T, card: int, device: int) -> T:
    """What a function says of a chip, or something else where it fails."""
    try:
        return function(card, device)
    except CallError:
        return otherwise
