"""Read the state of all chips through libdcmi, in the worker process.

A chip whose fault codes cannot be read is reported as unread. The agent then uses the
chip's last state that was read, and the faults of which events have told since. But a
chip that is not ready is reported with the fault `DROPPED`, even if its codes cannot be
read. A chip that was identified once keeps its identity, and is asked for its codes
even if it cannot be identified again or its card is no longer listed, also by a later
worker process. A chip whose ids cannot be read is reported as unidentified. A chip for
which libdcmi answers "no such device" is left out, and so is one that is not listed
and cannot be read for `GONE_S`. If any other value cannot be read, only that value is
None.

A chip whose last look took `SLOW_S` is slow. Between two calls of a slow chip, those
that are not have their turn. So a chip that answers at once is read `LOOK_EACH_S` and
one call after its last look, however many others are slow. A chip that has just become
slow costs the others one more call. A slow chip is reported once after each look, and
as unread between two looks. While all chips are slow, none has a turn in between.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from agent.devices.dcmi.library import (
    ABSENT,
    LEFT_OUT,
    NOT_EXIST,
    NOT_READY,
    CallError,
    Library,
)
from agent.devices.dcmi.values import (
    NO_SUPERPOD,
    SLOW,
    ChipState,
    Code,
    Identity,
    Survey,
)

#: Code of a chip that is not ready: it has dropped off.
#: Source: MindCluster, `devmanager/dcmi/dcmi.go` (at 22bb3d98).
DROPPED = 0x40F84E00
#: Time between two looks at a chip, so that a fault is seen without an event. Unit:
#: seconds.
LOOK_EACH_S = 1.0
#: The same for a chip without faults, if libdcmi reports faults by events.
QUIET_LOOK_EACH_S = 10.0
#: Time between two reads of identities; addresses can be reconfigured. Unit: seconds.
IDENTITIES_EACH_S = 60.0
#: The same for facts that only another driver or another card changes, like the model.
FIXED_EACH_S = 600.0
#: Duration from which on a look, or all before it, keeps other chips waiting. Unit:
#: seconds.
SLOW_S = 0.5
#: Time after which a chip has gone that is not listed and cannot be read: as long as
#: an unread chip stays in service. Unit: seconds.
GONE_S = 15.0
#: Highest number of codes whose events are remembered.
_MOST_SEVERITIES = 1024
#: The node of chips that are near to the CPUs of no single NUMA node.
_NO_NUMA = -1
_WHOLE_CARD = -1

_NO_PARTS: tuple[tuple[int, str], ...] = ()

T = TypeVar("T")
Place = tuple[int, int]


@dataclass(slots=True)
class _Chip:
    """What is known of the chip in one place, with the times of the reads."""

    identity: Identity
    #: None: the driver no longer has it, or it was not read yet
    state: ChipState | None = None
    #: when the last look began that is over
    read_at: float = float("-inf")
    #: whether it is to be read at once: an event has come, or a look is asked for
    is_wanted: bool = False
    fixed_at: float = float("-inf")
    #: since when its codes cannot be read
    unread_at: float = float("inf")
    #: whether the question for its health is left out
    is_silent: bool = False
    #: whether its last look took long, or its look is under way
    is_slow: bool = False
    #: whether `state` is not to be reported: it was, or its look is under way
    is_stale: bool = True

    @property
    def has_gone(self) -> bool:
        """Whether the last look found that the driver no longer has the chip."""
        return self.state is None and not self.is_stale

    @property
    def is_quiet(self) -> bool:
        """Whether the last look found a chip without faults."""
        state = self.state
        return state is not None and not (state.codes or state.unread)


class ChipReader:
    """Reader of all chips' states, with stored ids and fault events."""

    def __init__(
        self,
        library: Library,
        *,
        now_s: Callable[[], float],
        nodes: Path,
        has_events: bool = False,
        known: Iterable[Identity] = (),
    ) -> None:
        """Store the arguments; call no function of the library yet.

        Args:
            library: The library, already initialised.
            now_s: Returns the time of a monotonic clock. Unit: seconds.
            nodes: Folder where the kernel describes NUMA nodes.
            has_events: Whether the library calls back when a fault begins or ends.
            known: Place and ids alone of chips that were identified earlier.
        """
        self._library = library
        self._now_s = now_s
        self._nodes = nodes
        self._look_each_s = QUIET_LOOK_EACH_S if has_events else LOOK_EACH_S
        #: {(card, device): the chip there}, of those that were identified
        self._chips: dict[Place, _Chip] = {chip.place: _Chip(chip) for chip in known}
        #: whether no chip was known at first, and not all have been asked since
        self._begins = not self._chips
        self._unidentified: tuple[tuple[int, int, str], ...] = (
            (_WHOLE_CARD, _WHOLE_CARD, "the cards are not listed yet"),
        )
        #: known chips whose cards the driver does not list
        self._unlisted: frozenset[Place] = frozenset()
        self._identified_at = float("-inf")
        #: when the chips that are not slow had their last turn, or the look began
        self._turn_at = float("-inf")
        self._version = ""
        #: {(logic id, code): code with severity and time of its event}
        self._event_codes: dict[tuple[int, int], Code] = {}
        #: {(logic id, code): code} of events since the chip's codes were last read
        self._pulses: dict[tuple[int, int], Code] = {}
        #: {(logic id, code): True} of faults that an event said to be over
        self._over: dict[tuple[int, int], bool] = {}

    def use_events(self) -> None:
        """From now on libdcmi calls back when a fault begins or ends.

        Every chip is read once more in time: a fault may have begun just before.
        """
        for chip in self._chips.values():
            chip.read_at += self._look_each_s - QUIET_LOOK_EACH_S
        self._look_each_s = QUIET_LOOK_EACH_S

    def add_event(self, logic_id: int, code: Code, *, is_over: bool) -> None:
        """Store a fault event, so that the next `read_chips` reports the fault.

        The fault is reported even if it has ended by then, with the event's severity
        and time, and with the number of its events. If the chip's codes cannot be read,
        it is reported again by each call until they are. Later calls use this severity
        and time as long as libdcmi lists the code. An event about the end of a fault
        has its chip read at once, and matters if the fault begins again.

        Args:
            logic_id: Logic id of the chip.
            code: Fault code, severity and time of the event.
            is_over: Whether the event says that the fault is over.
        """
        for chip in self._chips.values():
            if chip.identity.logic_id == logic_id:
                chip.is_wanted = True
        key = (logic_id, code.code)
        if is_over:
            _store(self._over, key, value=True)
            return
        earlier = self._pulses.get(key, Code(code=code.code))
        has_been_over = self._over.pop(key, False) or earlier.has_been_over
        pulse = replace(code, count=earlier.count + 1, has_been_over=has_been_over)
        _store(self._pulses, key, pulse)
        _store(self._event_codes, key, code)

    def read_chips(self, *, is_asked: bool = False, is_between: bool = False) -> Survey:
        """Return the states of all chips of the node.

        A chip with faults is read each second, and one with a new event at once. A
        chip without is read each second too, or each 10 s if libdcmi has events.
        Identities (like ids and addresses) and the version are read each 60 s, the
        model and the like each 10 min. What cannot be identified is tried at each call.

        Args:
            is_asked: Whether every chip is to be read now.
            is_between: Whether this is a turn of the chips that are not slow, between
                two calls about others: then only those are read.

        Raises:
            CallError: No chip is known yet, and the list of cards cannot be read.
        """
        began_s = self._turn_at = self._now_s()
        if not is_between and began_s - self._identified_at >= IDENTITIES_EACH_S:
            self._identify()
            self._identified_at = began_s
        elif self._unidentified and not is_between:
            self._identify(is_known_enough=True)
        for chip in self._chips.values():
            is_due = is_asked or self._now_s() >= self._due_s(chip)
            if is_due and not (is_between and chip.is_slow):
                self._look_at(chip)
            elif is_asked:  # in the turn of all chips, which comes next
                chip.is_wanted = True
        self._begins = self._begins and not self._chips
        self._turn_at = self._now_s()
        chips = sorted(self._chips.values(), key=lambda chip: chip.identity.physical_id)
        survey = Survey(
            chips=tuple(filter(None, map(self._report, chips))),
            looked_s=min(
                (chip.read_at for chip in chips if not chip.is_stale),
                default=float("-inf"),
            ),
            unidentified=self._unidentified,
            driver_version=self._version,
        )
        for chip in chips:
            if chip.state is not None and not chip.state.unread:
                chip.state = _without_events(chip.state)
            chip.is_stale |= chip.is_slow and chip.state is not None
        return survey

    @property
    def is_mixed(self) -> bool:
        """Whether some chips are slow, and others are not."""
        return len({chip.is_slow for chip in self._chips.values()}) > 1

    @property
    def is_held_up(self) -> bool:
        """Whether chips that are not slow should have their turn before the next call.

        It also is while chips are identified. Never before each chip was asked once if
        none was known: a node is not served by less.
        """
        if self._begins:
            return False
        return self._now_s() - self._turn_at >= SLOW_S and not all(
            chip.is_slow for chip in self._chips.values()
        )

    @property
    def pause_s(self) -> float:
        """Seconds until the next chip is to be read, if no event comes."""
        if self._unidentified or not self._chips:
            return LOOK_EACH_S
        now = self._now_s()
        return max(0.0, min(map(self._due_s, self._chips.values())) - now)

    def _due_s(self, chip: _Chip) -> float:
        """Return when a chip is to be read again, if no event comes."""
        if chip.is_wanted:
            return float("-inf")
        return chip.read_at + (self._look_each_s if chip.is_quiet else LOOK_EACH_S)

    def _report(self, chip: _Chip) -> ChipState | None:
        """Return what to report of one chip; None if the driver no longer has it.

        Between two looks at a chip that could not be read, it stays unread.
        """
        if not chip.is_stale:
            return chip.state
        before = chip.state.unread if chip.state is not None else ""
        return self._unread(chip, before or SLOW)

    def _look_at(self, chip: _Chip) -> None:
        """Read one chip; meanwhile others may have their turn."""
        began_s = self._turn_at = self._now_s()
        chip.is_slow = chip.is_stale = True
        chip.is_wanted = False  # what comes during the look asks for another one
        chip.state = self._read(chip)
        chip.read_at = began_s
        chip.is_slow, chip.is_stale = self._now_s() - began_s >= SLOW_S, False

    def _read(self, chip: _Chip) -> ChipState | None:
        """Return the state of one chip; None if the driver no longer has that chip."""
        identity = chip.identity
        card, device, logic_id = identity.card, identity.device, identity.logic_id
        try:
            polled = self._codes(chip)
        except CallError as error:
            now = self._now_s()
            chip.unread_at = min(chip.unread_at, now)
            is_unlisted = (card, device) in self._unlisted
            is_lost = is_unlisted and now - chip.unread_at >= GONE_S
            if is_lost or error.code == NOT_EXIST:
                return None
            return self._unread(chip, str(error))
        chip.unread_at = float("inf")
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
            pids=pids,
            unread_pids=unread,
        )

    def _unread(self, chip: _Chip, reason: str) -> ChipState:
        """Return the state of a chip whose codes are not read, with its events."""
        logic_id = chip.identity.logic_id
        events = tuple(c for key, c in self._pulses.items() if key[0] == logic_id)
        return ChipState(identity=chip.identity, codes=events, unread=reason)

    def _pids(self, card: int, device: int) -> tuple[tuple[int, ...], str]:
        """Return (pids of the processes on a chip, why the pids could not be read).

        The reason is "" if the pids were read, or if libdcmi does not support this for
        the chip.
        """
        try:
            return self._library.pids(card, device), ""
        except CallError as error:
            return (), "" if error.code in ABSENT else str(error)

    def _codes(self, chip: _Chip) -> tuple[int, ...]:
        """Return the fault codes of a chip; with `DROPPED` if it is not ready.

        Whether a chip is ready counts only if libdcmi says that it is not. It counts as
        unread if libdcmi does not come back from the question, but does for others.

        Raises:
            CallError: The codes cannot be read, and the chip is not known to be absent.
        """
        place = chip.identity.card, chip.identity.device
        codes: tuple[int, ...] = ()
        failure: CallError | None = None
        try:
            codes = self._library.codes(*place)
        except CallError as error:
            failure = error
        chip.is_silent = False
        try:
            self._library.check_ready(*place)
        except CallError as error:
            if error.code == NOT_READY:
                return tuple(dict.fromkeys((*codes, DROPPED)))
            chip.is_silent = error.code == LEFT_OUT
            if chip.is_silent and not all(c.is_silent for c in self._chips.values()):
                failure = failure or error
        if failure is not None:
            raise failure
        return codes

    def _forget(self, logic_id: int, reported: Container[int]) -> None:
        """Delete a chip's stored fault events whose code is not in `reported`."""
        for events in (self._event_codes, self._over):
            for key in [key for key in events if key[0] == logic_id]:
                if key[1] not in reported:
                    del events[key]

    # -- identities ------------------------------------------------------------------

    def _identify(self, *, is_known_enough: bool = False) -> None:
        """Find the chips of all cards, and read their identities.

        Args:
            is_known_enough: Whether chips that are known need not be identified again.

        Raises:
            CallError: No chip is known yet, and the list of cards cannot be read.
        """
        try:
            cards, unnamed = self._library.cards()
        except CallError as error:
            if not self._chips:
                raise
            self._unidentified = ((_WHOLE_CARD, _WHOLE_CARD, str(error)),)
            return
        if self._chips and not (cards or unnamed):
            # as a list that cannot be read; whether chips are gone is told with codes
            reason = "the driver lists no card"
            self._unidentified = ((_WHOLE_CARD, _WHOLE_CARD, reason),)
            return
        problems: list[tuple[int, int, str]] = []
        if unnamed:
            reason = f"the driver cannot name {unnamed} of its cards yet"
            problems.append((_WHOLE_CARD, _WHOLE_CARD, reason))
        found: dict[Place, _Chip] = {}
        for place in self._places(cards, problems):
            chip = self._chips.get(place)
            if chip is None or not is_known_enough:
                chip = self._try_to_identify(place, chip, problems)
            if chip is not None:
                found[place] = chip
        # a list may be short by mistake; whether chips are gone is told with codes
        unlisted = {
            place: chip
            for place, chip in self._chips.items()
            if place not in found and not chip.has_gone
        }
        self._unlisted = frozenset(unlisted)
        doubted = {(card, device) for card, device, _ in problems} | unlisted.keys()
        self._chips = self._without_doubles(found | unlisted, doubted, problems)
        self._unidentified = tuple(problems)
        self._version = _ask(self._library.version, "", or_=self._version) or ""

    def _places(
        self, cards: Iterable[int], problems: list[tuple[int, int, str]]
    ) -> Iterator[Place]:
        """Yield the place of each device; of a card that does not say, the known ones.

        Args:
            problems: Gets the cards that do not say how many devices they have.
        """
        for card in cards:
            try:
                devices = range(self._library.device_count(card))
            except CallError as error:
                problems.append((card, _WHOLE_CARD, str(error)))
                yield from [place for place in self._chips if place[0] == card]
            else:
                yield from ((card, device) for device in devices)

    def _without_doubles(
        self,
        found: dict[Place, _Chip],
        doubted: set[Place],
        problems: list[tuple[int, int, str]],
    ) -> dict[Place, _Chip]:
        """Return chips, of which those that have the id of another are as known before.

        Args:
            doubted: Places that are not listed, or could not be identified now. Of two
                chips with the same id, the one in such a place is left out.
            problems: Gets the places whose chips are as known before.
        """
        doubted = doubted & _doubles(found)
        chips = {at: chip for at, chip in found.items() if at not in doubted}
        for at in _doubles(chips):
            number, known = found[at].identity.physical_id, self._chips.get(at)
            if known is not None and known is not found[at]:
                chips[at] = known
                problems.append(
                    (*at, f"the driver shows two chips with the id {number}")
                )
        return chips

    def _try_to_identify(
        self, place: Place, known: _Chip | None, problems: list[tuple[int, int, str]]
    ) -> _Chip | None:
        """Return the chip in a place; if it cannot be identified, as it was `known`.

        Args:
            problems: Gets the place if the chip cannot be identified.
        """
        try:
            return self._identify_chip(place, known)
        except CallError as error:
            if error.code != NOT_EXIST:
                problems.append((*place, str(error)))
            # whether a known chip is still there is told with its codes
            return known

    def _identify_chip(self, place: Place, known: _Chip | None) -> _Chip | None:
        """Return the chip in a place, with what is known of it; None if it is no chip.

        Raises:
            CallError: Its ids cannot be read.
        """
        library = self._library
        if known is None and not library.is_chip(*place):
            return None
        logic_id = library.logic_id(*place)
        physical_id = library.physical_id(*place, logic_id)
        ids = Identity(
            card=place[0], device=place[1], physical_id=physical_id, logic_id=logic_id
        )
        if known is None or known.identity.physical_id != physical_id:
            known = _Chip(ids)
        earlier = known.identity
        identity = replace(
            ids,
            ip=_ask_again(library.address, "", place, earlier.ip),
            superpod=_ask_again(
                library.super_pod, NO_SUPERPOD, place, earlier.superpod
            ),
            virtual=_ask_again(library.virtual, _NO_PARTS, place, earlier.virtual),
        )
        now = self._now_s()
        if now - known.fixed_at >= FIXED_EACH_S:
            known.fixed_at = now
        else:
            identity = identity.or_known(earlier)
        known.identity = self._with_fixed(identity, place).or_known(earlier)
        if known.state is not None:
            known.state = replace(known.state, identity=known.identity)
        return known

    def _with_fixed(self, identity: Identity, place: Place) -> Identity:
        """Return an identity with those fixed facts that it lacks, like the model."""
        library, facts = self._library, dict[str, Any]()
        if identity.name is None:
            name, cores = _ask(library.chip_info, ("", 0), *place) or (None, None)
            facts |= {"name": name or None, "ai_core_count": cores or None}
        if not identity.board_id:  # 0: asked again
            facts["board_id"] = _ask(library.board_id, 0, *place)
        if identity.product_type is None:
            facts["product_type"] = _ask(library.product_type, "", *place)
        if identity.memory_mb is None:
            facts["memory_mb"] = _ask(library.memory_mb, 0, *place) or None
        if identity.numa is None:
            cpus = _ask(library.near_cpus, "", *place)
            facts["numa"] = None if cpus is None else self._numa(cpus)
        return replace(identity, **facts)

    def _numa(self, cpus: str) -> int:
        """Return the NUMA node with exactly these CPUs; -1 if there is no such node.

        Args:
            cpus: CPUs in the kernel's list format ("0-23"); "" for none.
        """
        for node in sorted(self._nodes.glob("node[0-9]*")) if cpus else ():
            try:
                cpu_list = (node / "cpulist").read_text().strip()
            except OSError:
                continue
            if cpu_list == cpus:
                return int(node.name.removeprefix("node"))
        return _NO_NUMA


def _doubles(chips: Mapping[Place, _Chip]) -> set[Place]:
    """Return the places of chips that have the id of another."""
    counts = Counter(chip.identity.physical_id for chip in chips.values())
    return {at for at, c in chips.items() if counts[c.identity.physical_id] > 1}


def _without_events(state: ChipState) -> ChipState:
    """Return a state that was told, so that its events do not count again."""
    codes = tuple(replace(c, count=0, has_been_over=False) for c in state.codes)
    return replace(state, codes=codes)


def _store(events: dict[tuple[int, int], T], key: tuple[int, int], value: T) -> None:
    """Store an event as the newest; forget the oldest beyond `_MOST_SEVERITIES`."""
    events.pop(key, None)
    events[key] = value
    if len(events) > _MOST_SEVERITIES:
        del events[next(iter(events))]


def _ask(
    function: Callable[..., T], absent: T, *place: int, or_: T | None = None
) -> T | None:
    """Return `function(*place)`; `absent` if the driver says that there is none.

    Returns:
        The argument `or_` if the call has failed: then it is not known.
    """
    try:
        return function(*place)
    except CallError as error:
        return absent if error.code in ABSENT else or_


def _ask_again(
    function: Callable[..., T], absent: T, place: Place, earlier: T | None
) -> T | None:
    """Return `function(*place)`, of a fact that was told `earlier` and may change.

    Returns:
        `earlier` if the call has failed. So it is if the driver says now that there is
        none: a chip that has told a fact supports the question.
    """
    return _ask(function, absent if earlier is None else earlier, *place, or_=earlier)
