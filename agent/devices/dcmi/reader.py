"""Read the state of all chips through libdcmi, in the worker process.

A chip whose health or fault codes cannot be read is reported as unread. The agent then
uses the chip's last state that was read. But a chip that is not ready is reported with
the fault `DROPPED`, even if its other codes cannot be read. A chip whose ids cannot be
read is reported as unidentified. A chip for which libdcmi answers "no such device" is
left out. If any other value cannot be read, only that value is missing.
"""

from collections.abc import Callable, Container
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from agent.devices.dcmi.library import (
    NO_FUNCTION,
    NOT_EXIST,
    NOT_SUPPORTED,
    CallError,
    Library,
)
from agent.devices.dcmi.values import UNKNOWN, ChipState, Code, Identity, Survey

#: Code of a chip that is not ready: it has dropped off.
#: Source: MindCluster, `devmanager/dcmi/dcmi.go` (at 22bb3d98).
DROPPED = 0x40F84E00
#: Time between two results of the driver's check of the network, which waits for
#: answers from the network. Unit: seconds.
NETWORK_EACH_S = 5.0
#: Time between two reads of identities; addresses can be reconfigured. Unit: seconds.
IDENTITIES_EACH_S = 60.0
#: Highest number of codes whose events are remembered.
_MOST_SEVERITIES = 1024

T = TypeVar("T")


class ChipReader:
    """Reader of all chips' states, with stored ids, network states and fault events."""

    def __init__(
        self, library: Library, *, now_s: Callable[[], float], nodes: Path
    ) -> None:
        """Store the arguments; call no function of the library yet.

        Args:
            library: The library, already initialised.
            now_s: Returns the time of a monotonic clock. Unit: seconds.
            nodes: Folder where the kernel describes NUMA nodes.
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
        #: {(logic id, code): code with severity and time of its event}
        self._event_codes: dict[tuple[int, int], Code] = {}
        #: {(logic id, code): code} of events since the chip's codes were last read
        self._pulses: dict[tuple[int, int], Code] = {}
        #: {(logic id, code): True} of faults that an event said to be over
        self._over: dict[tuple[int, int], bool] = {}

    def add_event(self, logic_id: int, code: Code, *, is_over: bool) -> None:
        """Store a fault event, so that the next `read_chips` reports the fault.

        The fault is reported even if it has ended by then, with the event's severity
        and time, and with the number of its events. If the chip's codes cannot be read
        in that call, a later call reports it. Further calls use this severity and time
        as long as libdcmi lists the code. An event about the end of a fault only
        matters if the fault begins again: `read_chips` sees the end itself.

        Args:
            logic_id: Logic id of the chip.
            code: Fault code, severity and time of the event.
            is_over: Whether the event says that the fault is over.
        """
        key = (logic_id, code.code)
        if is_over:
            _store(self._over, key, value=True)
            return
        earlier = self._pulses.get(key, Code(code=code.code))
        has_been_over = self._over.pop(key, False) or earlier.has_been_over
        pulse = replace(code, count=earlier.count + 1, has_been_over=has_been_over)
        _store(self._pulses, key, pulse)
        _store(self._event_codes, key, code)

    def read_chips(self) -> Survey:
        """Return the states of all chips of the node.

        Identities (like ids and models) and the version are read once in 60 s, but at
        each call while any chip is unidentified. Network states are read once in 5 s.
        Fault codes and processes are read at each call.

        Raises:
            CallError: The list of cards cannot be read.
        """
        now = self._now_s()
        if now - self._identified_at >= IDENTITIES_EACH_S or self._unidentified:
            self._identify()
            self._identified_at = now
        if now - self._networks_at >= NETWORK_EACH_S:
            self._networks = {
                identity.logic_id: self._network(identity)
                for identity in self._identities
            }
            self._networks_at = now
        states = (self._chip(identity) for identity in self._identities)
        return Survey(
            chips=tuple(state for state in states if state is not None),
            unidentified=self._unidentified,
            driver_version=self._version,
        )

    def _chip(self, identity: Identity) -> ChipState | None:
        """Return the state of one chip; None if the driver no longer has that chip."""
        card, device, logic_id = identity.card, identity.device, identity.logic_id
        network = self._networks.get(logic_id)
        try:
            polled = self._codes(card, device)
        except CallError as error:
            if error.code == NOT_EXIST:
                return None
            return ChipState(identity=identity, network=network, unread=str(error))
        codes = {
            code: self._event_codes.get((logic_id, code), Code(code=code))
            for code in polled
        }
        for key in [key for key in self._pulses if key[0] == logic_id]:
            codes[key[1]] = self._pulses.pop(key)
        self._forget(logic_id, codes.keys())
        pids, unread = self._pids(card, device)
        return ChipState(
            identity=identity,
            codes=tuple(codes.values()),
            network=network,
            pids=pids,
            unread_pids=unread,
        )

    def _pids(self, card: int, device: int) -> tuple[tuple[int, ...], str]:
        """Return (pids of the processes on a chip, why the pids could not be read).

        The reason is "" if the pids were read, or if libdcmi does not support this for
        the chip.
        """
        try:
            return self._library.pids(card, device), ""
        except CallError as error:
            return (), "" if error.code == NOT_SUPPORTED else str(error)

    def _codes(self, card: int, device: int) -> tuple[int, ...]:
        if self._library.is_ready(card, device):
            return self._library.codes(card, device)
        none: tuple[int, ...] = ()
        codes = _call_or(self._library.codes, none, card, device)
        return tuple(dict.fromkeys((*codes, DROPPED)))

    def _forget(self, logic_id: int, reported: Container[int]) -> None:
        """Delete a chip's stored fault events whose code is not in `reported`."""
        for events in (self._event_codes, self._over):
            for key in [key for key in events if key[0] == logic_id]:
                if key[1] not in reported:
                    del events[key]

    def _network(self, identity: Identity) -> int | None:
        return _call_or(self._library.network, None, identity.card, identity.device)

    def _identify(self) -> None:
        identities: list[Identity] = []
        problems: list[tuple[int, int, str]] = []
        for card in self._library.cards():
            try:
                devices = self._library.devices(card)
            except CallError as error:
                problems.append((card, -1, str(error)))
                continue
            for device in devices:
                try:
                    identities.append(self._identity(card, device))
                except CallError as error:
                    if error.code != NOT_EXIST:
                        problems.append((card, device, str(error)))
        self._identities = tuple(
            sorted(identities, key=lambda identity: identity.physical_id)
        )
        self._unidentified = tuple(problems)
        self._version = _call_or(self._library.version, "")

    def _identity(self, card: int, device: int) -> Identity:
        library = self._library
        logic_id = library.logic_id(card, device)
        name, ai_core_count = _call_or(library.chip_info, ("", 0), card, device)
        no_superpod = (UNKNOWN, UNKNOWN, UNKNOWN)
        super_device_id, super_pod_id, index = _call_or(
            library.super_pod, no_superpod, card, device
        )
        return Identity(
            card=card,
            device=device,
            physical_id=library.physical_id(card, device, logic_id),
            logic_id=logic_id,
            name=name,
            board_id=_call_or(library.board_id, 0, card, device),
            ai_core_count=ai_core_count,
            product_type=_call_or(library.product_type, "", card, device),
            numa=self._numa(_call_or(library.near_cpus, "", card, device)),
            ip=_call_or(library.address, "", card, device),
            memory_mb=_call_or(library.memory_mb, 0, card, device),
            super_device_id=super_device_id,
            super_pod_id=super_pod_id,
            server_index=index,
            virtual=self._virtual(card, device),
        )

    def _virtual(self, card: int, device: int) -> tuple[tuple[int, str], ...] | None:
        """Return (number, template name) of each virtual device of a chip.

        The result is None if libdcmi cannot tell whether the chip has virtual devices.
        It is empty if libdcmi does not support virtual devices.
        """
        try:
            return self._library.virtual(card, device)
        except CallError as error:
            return () if error.code in (NOT_SUPPORTED, NO_FUNCTION) else None

    def _numa(self, cpus: str) -> int | None:
        """Return the NUMA node with exactly these CPUs; None if there is no such node.

        Args:
            cpus: CPUs in the kernel's list format ("0-23"); "" if unknown.
        """
        for node in sorted(self._nodes.glob("node[0-9]*")) if cpus else ():
            try:
                cpu_list = (node / "cpulist").read_text().strip()
            except OSError:
                continue
            if cpu_list == cpus:
                return int(node.name.removeprefix("node"))
        return None


def _store(events: dict[tuple[int, int], T], key: tuple[int, int], value: T) -> None:
    """Store an event as the newest; forget the oldest beyond `_MOST_SEVERITIES`."""
    events.pop(key, None)
    events[key] = value
    if len(events) > _MOST_SEVERITIES:
        del events[next(iter(events))]


def _call_or(function: Callable[..., T], otherwise: T, *place: int) -> T:
    """Return `function(*place)`; `otherwise` if that raises `CallError`."""
    try:
        return function(*place)
    except CallError:
        return otherwise
