"""Convert chip states, as the driver's library returned them, to readings.

The library (libdcmi) runs in a process of its own. A survey has the states of all
chips, as that process read them at one time. What a survey does not tell is no news:
the reading then has the last value that was told. Facts like models and addresses
outlive the agent (`memory`); faults and processes do not.

The first reading decides which rows of the product table are served, and they stay.
So it is not made before the survey is complete, or `wait_s` are over.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf

from agent.devices.board_size import UnknownMachineError, fit_row
from agent.devices.dcmi import machine
from agent.devices.dcmi.memory import Known
from agent.devices.dcmi.values import NO_SUPERPOD, ChipState, Code, Identity, Survey
from agent.devices.reading import (
    UNKNOWN,
    ChipDetails,
    ChipFault,
    Process,
    Reading,
    Unread,
    VirtualDevice,
)
from scheduler_core.node import chips as chip_sets
from scheduler_core.products.table import Product

#: Faults of the parameter-plane network and not of the chip.
#: Source: MindCluster, `pkg/common/fault_code.go` (at 22bb3d98).
NETWORK_CODES = frozenset({0x81078603, 0x81078607, 0x110000002, 0x110001024})
#: The driver's value for a number that it does not have; -1 in a reading.
_NONE = 0xFFFFFFFF
NOTHING = Known()


class IncompleteError(Exception):
    """Chips of the server are still missing from the surveys; the text says which."""


class Conversion:
    """Converter from surveys (all chips' states at one time) to readings.

    It stores the last state of each chip, and the time when each fault began.
    """

    def __init__(
        self,
        product: str = "",
        *,
        known: Known = NOTHING,
        wait_s: float = 0.0,
        device_ids: Callable[[], Iterable[int]] = tuple,
    ) -> None:
        """Start without the state of any chip.

        Args:
            product: Key of the only product row to serve; "" to detect the rows from
                the chips.
            known: What earlier agents on this node have been told.
            wait_s: Longest wait for a complete survey of a node without known rows,
                and for facts that no call has told. Unit: seconds.
            device_ids: Returns the numbers N of the host's files /dev/davinciN.
        """
        self._key = product
        self._known_rows = known.products
        #: {physical id: all that was ever told of a chip}, also of missing chips
        self._identities = {chip.physical_id: chip for chip in known.identities}
        self._wait_s = wait_s
        self._device_ids = device_ids
        #: when the wait for a complete survey is over; the first survey begins it
        self._survey_end_s = inf
        self._last_s = -inf
        self._products: tuple[Product, ...] = ()
        #: what was missing when the wait was over, and still is
        self._missing = ""
        #: rows with which the next agent is to begin
        self._next_products: tuple[Product, ...] = ()
        self._last_states: dict[int, ChipState] = {}
        #: {physical id of a chip seen so far: its row of the product table}
        self._rows: dict[int, Product] = {}
        self._since_ms: dict[tuple[int, int], int] = {}
        #: {(physical id, code): its events since it was last absent}
        self._event_counts: dict[tuple[int, int], int] = {}
        #: what shows that other rows should be served; "" if nothing does
        self._contradiction = ""
        #: when the agent begins anew without a complete survey
        self._contradiction_end_s = inf
        self._driver_version = ""

    def reading(self, survey: Survey, now_ms: int, now_s: float) -> Reading:
        """Convert `survey` to a reading; what was not read keeps its last value.

        Args:
            survey: States of all chips at one time.
            now_ms: Start date of each new fault that no event reported. Unit: Unix
                milliseconds.
            now_s: Time of this call. Unit: seconds of a monotonic clock.

        Raises:
            IncompleteError: Chips are still waited for.
            UnknownMachineError: No chip has been reported yet, or no row of the product
                table serves the chips. Or two chips have one physical id.
        """
        self._last_s = now_s
        if self._survey_end_s == inf:
            self._survey_end_s = now_s + self._wait_s
        surveyed = _by_id(survey.chips)
        self._count_events(surveyed)
        states = self._merge(surveyed, survey)
        identities = [look.identity for look in states.values()]
        if not self._products:
            _check_readable(states)
            incomplete = self._why_incomplete(identities, survey)
            self._products = self._first_rows(identities, incomplete, now_s)
            self._missing = "" if self._key or self._known_rows else incomplete
        elif self._missing:
            self._missing = self._why_incomplete(identities, survey)
        changed_row, rows = self._changed_row(identities, now_s)
        begins_anew = bool(changed_row) and (
            now_s >= self._contradiction_end_s
            or not self._why_incomplete(identities, survey)
        )
        self._next_products = rows if begins_anew else self._products
        outside: list[Unread] = []
        for chip, look in list(states.items()):
            row = self._row_of(look.identity)
            if row is None:
                del states[chip]
                reason = self._contradiction or "of another product"
                outside.append(Unread(chip=chip, reason=reason))
            else:
                self._rows[chip] = row
        self._last_states |= states
        self._forget_read(self._last_states.keys() - states.keys())
        self._driver_version = survey.driver_version or self._driver_version
        self._date(states.values(), now_ms)
        first, *others = (
            self._of_line(product, states, now_s) for product in self._products
        )
        return replace(
            first,
            other_lines=tuple(others),
            unread=(*first.unread, *(outside if self._contradiction else ())),
            changed_row=changed_row,
            begins_anew=begins_anew,
            missing=self._missing,
        )

    def change_rows(self) -> None:
        """Make the next readings of the rows that the chips have shown.

        What the chips have told stays; what they have not told is awaited again.
        """
        self._products = self._next_products
        self._rows = {}
        self._contradiction, self._contradiction_end_s = "", inf
        self._survey_end_s = inf
        self._missing = ""

    @property
    def due_s(self) -> float:
        """When the same survey gives another reading, since a wait is over; or `inf`.

        Unit: seconds of the clock of `reading`.
        """
        ends = (self._survey_end_s, self._contradiction_end_s)
        return min((end_s for end_s in ends if end_s > self._last_s), default=inf)

    def _merge(
        self, surveyed: Mapping[int, ChipState], survey: Survey
    ) -> dict[int, ChipState]:
        """Return the states of a survey, with the last values of what it does not tell.

        A chip that was read before and cannot be identified now has its last state.

        Args:
            surveyed: {physical id: state} of `survey`.
            survey: Has the places that could not be identified.
        """
        states = dict(surveyed)
        for card, device, reason in survey.unidentified:
            for chip, last in self._last_states.items():
                place = last.identity
                if place.card == card and device in (place.device, -1):
                    gone = replace(last, codes=(), unread=reason)
                    states.setdefault(chip, gone)
        merged = {chip: self._complete(look) for chip, look in sorted(states.items())}
        self._identities |= {chip: look.identity for chip, look in merged.items()}
        return merged

    def _complete(self, state: ChipState) -> ChipState:
        """Return `state`; what it does not tell comes from earlier states."""
        chip = state.identity.physical_id
        last = self._last_states.get(chip)
        identity = state.identity.or_known(self._identities.get(chip, state.identity))
        if last is None:
            return replace(state, identity=identity, was_read=not state.unread)
        if state.unread:
            codes = _with_events(state.codes, last)
            return replace(last, identity=identity, codes=codes, unread=state.unread)
        return replace(
            state,
            identity=identity,
            codes=_with_severities(state.codes, last.codes),
            pids=last.pids if state.unread_pids else state.pids,
            was_read=True,
        )

    def _forget_read(self, vanished: Iterable[int]) -> None:
        """Let chips that have vanished count as never read, until they are read again.

        What was read of such a chip is from before, and shows nothing while its codes
        cannot be read.
        """
        for chip in vanished:
            last = self._last_states[chip]
            self._last_states[chip] = replace(last, was_read=False)

    @property
    def known(self) -> Known:
        """The rows of the next start, and what has been told of the chips served."""
        identities = self._identities
        return Known(
            self._next_products, tuple(identities[chip] for chip in sorted(identities))
        )

    # -- rows ------------------------------------------------------------------------

    def _why_incomplete(self, chips: Sequence[Identity], survey: Survey) -> str:
        """Return what has not been read that could belong to other rows; "" if none."""
        if survey.unidentified:
            card, device, reason = survey.unidentified[0]
            where = f"card {card}, device {device}: " if device >= 0 else ""
            where = where or (f"card {card}: " if card >= 0 else "")
            return f"{where}{reason}"
        ids = {chip.physical_id for chip in chips}
        files = sorted(set(self._device_ids()) - ids)
        if files:
            listed = ", ".join(f"/dev/davinci{number}" for number in files)
            return f"the driver does not show the chip of {listed}"
        return machine.find_unknown(chips)

    def _has_waited(self, now_s: float) -> bool:
        """Whether the time is over in which a complete survey is waited for."""
        return now_s >= self._survey_end_s

    def _first_rows(
        self, chips: Sequence[Identity], incomplete: str, now_s: float
    ) -> tuple[Product, ...]:
        rows = self._known_rows
        if rows and self._key in ("", *(row.key for row in rows)):
            # if they are wrong, they serve until all is read that shows the right ones
            if incomplete or not self._find_contradiction(rows, chips):
                return rows
        elif incomplete and not self._key and not self._has_waited(now_s):
            raise IncompleteError(
                f"waiting for all chips, {self._wait_s:g} s at most: {incomplete}"
            )
        return self._rows_of(chips)

    def _rows_of(self, chips: Sequence[Identity]) -> tuple[Product, ...]:
        """Return the rows that these chips are served by.

        Raises:
            UnknownMachineError: No row serves them.
        """
        if not self._key:
            return machine.products_of(chips)
        row = fit_row(self._key, 0)
        own_ids = {chip.physical_id for chip in chips if _is_of(row, chip)}
        if not own_ids:
            raise UnknownMachineError(
                f"the driver shows no chip that could be of --product {self._key}"
            )
        other_ids = {chip.physical_id for chip in chips} - own_ids
        files = {number for number in self._device_ids() if number < row.chip_count}
        highest = max(own_ids | files - other_ids)
        return (fit_row(self._key, highest, chip_sets.mask_of(other_ids)),)

    def _find_contradiction(
        self, products: Sequence[Product], chips: Sequence[Identity]
    ) -> str:
        """Return what shows that rows are not those of these chips; "" if nothing does.

        With `--product`, chips of other product lines show nothing.
        """
        row = fit_row(self._key, 0) if self._key else None
        own = [chip for chip in chips if row is None or _is_of(row, chip)]
        return machine.find_contradiction(products, own, is_chosen=bool(self._key))

    def _changed_row(
        self, chips: Sequence[Identity], now_s: float
    ) -> tuple[str, tuple[Product, ...]]:
        """Return (why these chips have to be served by other rows, those rows).

        If they need not, return ("", the present rows).

        The agent does not begin anew before all chips are read, or `wait_s` are over:
        the next beginning would only wait for them.
        """
        text = self._find_contradiction(self._products, chips)
        if not text:
            self._contradiction_end_s = inf
        elif not self._contradiction:
            self._contradiction_end_s = now_s + self._wait_s
        self._contradiction = text
        if not text:
            return "", self._products
        try:
            rows = self._rows_of(chips)
        except UnknownMachineError:
            # nothing else could be served: the chip is told as unread
            return "", self._products
        is_other = list(map(_extent, rows)) != list(map(_extent, self._products))
        return text if is_other else "", rows

    def _row_of(self, chip: Identity) -> Product | None:
        """Return the product table's row that serves a chip; None if there is none.

        A chip of unknown model gets the node's only row, if this row has the chip's id.
        If the node has several rows, such a chip keeps its row from an earlier reading.
        """
        if not machine.line_of(chip) and len(self._products) > 1:
            return self._rows.get(chip.physical_id)
        rows = (row for row in self._products if row.all_chips >> chip.physical_id & 1)
        return next((row for row in rows if _is_of(row, chip)), None)

    # -- readings --------------------------------------------------------------------

    def _of_line(
        self,
        product: Product,
        states: Mapping[int, ChipState],
        now_s: float,
    ) -> Reading:
        """Return the reading of the chips of one product line.

        Args:
            product: Row of that product line.
            states: {physical id: state} of the chips of all product lines.
            now_s: As in `reading`.
        """
        line = [states[c] for c in sorted(states) if self._rows[c] is product]
        #: of these there are values, from now or from earlier
        read = [look for look in line if not look.unread or look.was_read]
        identities = self._identities_of(product, line)
        facts = machine.facts_of(identities.values())
        superpod = facts.superpod or NO_SUPERPOD
        return Reading(
            product=product,
            chip_name=facts.name,
            ai_core_count=facts.ai_core_count,
            product_type=facts.product_type or "",
            chips=tuple(look.identity.physical_id for look in read),
            numa=self._numa(product),
            details=self._details(product, identities, now_s),
            super_pod_id=_number(superpod.super_pod_id),
            server_index=_number(superpod.server_index),
            driver_version=self._driver_version,
            faults=tuple(
                self._fault(look, code) for look in read for code in look.codes
            ),
            processes=tuple(
                Process(chip=look.identity.physical_id, pid=pid)
                for look in read
                for pid in look.pids
            ),
            unread=tuple(
                Unread(
                    chip=look.identity.physical_id,
                    reason=reason,
                    is_partial=not look.unread,
                )
                for look in line
                if (reason := look.unread or look.unread_pids)
            ),
            virtual=tuple(_virtual_devices(look.identity for look in read)),
        )

    def _identities_of(
        self, product: Product, line: Iterable[ChipState]
    ) -> dict[int, Identity]:
        """Return {physical id: what was told} of the chips of a row, missing ones last.

        Args:
            product: The row.
            line: Chips of the row that the survey has.
        """
        present = {look.identity.physical_id: look.identity for look in line}
        missing = {
            chip: identity
            for chip, identity in self._identities.items()
            if chip not in present and self._row_of(identity) is product
        }
        return present | missing

    def _details(
        self, product: Product, identities: Mapping[int, Identity], now_s: float
    ) -> tuple[ChipDetails, ...]:
        """Return the details of the chips of a row, ordered by chip.

        A chip without an address has none after the wait. Until then its address is
        awaited, even if nothing else is known of the chip.
        """
        is_late = self._has_waited(now_s)
        return tuple(
            _details(identity, is_late=is_late)
            if (identity := identities.get(chip))
            else ChipDetails(chip=chip, logic_id=UNKNOWN, ip=None)
            for chip in chip_sets.ids_of(product.all_chips)
            if chip in identities or not is_late
        )

    def _date(self, states: Iterable[ChipState], now_ms: int) -> None:
        """Store the start time of each fault in `states`; forget those of other faults.

        A fault without a stored time gets the time of its event, or `now_ms` if it had
        no event. So does a fault that has been over and began again.
        """
        old_since_ms = self._since_ms
        self._since_ms = {}
        for look in states:
            for code in look.codes:
                key = look.identity.physical_id, code.code
                event_ms = now_ms if code.at_ms is None else code.at_ms
                self._since_ms[key] = (
                    event_ms if code.has_been_over else old_since_ms.get(key, event_ms)
                )

    def _count_events(self, states: Mapping[int, ChipState]) -> None:
        """Add the new events of each fault; forget those of faults that have gone.

        Args:
            states: {physical id: state} as surveyed, without earlier values.
        """
        known_chips = {chip for chip, state in states.items() if not state.unread}
        self._event_counts = {
            key: count
            for key, count in self._event_counts.items()
            if key[0] not in known_chips
        } | {
            (chip, code.code): self._event_counts.get((chip, code.code), 0) + code.count
            for chip in known_chips
            for code in states[chip].codes
        }

    def _fault(self, look: ChipState, code: Code) -> ChipFault:
        chip = look.identity.physical_id
        # events of an unread chip come again with its codes, and are counted then
        count = self._event_counts.get((chip, code.code), 0)
        count += code.count if look.unread else 0
        return ChipFault(
            chip=chip,
            code=f"{code.code:08X}",
            severity=code.severity,
            network=code.code in NETWORK_CODES,
            since_ms=self._since_ms[chip, code.code],
            count=count,
        )

    def _numa(self, product: Product) -> tuple[int, ...]:
        """Return the NUMA node of each chip of a row, ordered by chip id.

        The result is () if the NUMA node of any chip is unknown.
        """
        nodes = [
            identity.numa
            for chip in range(product.chip_count)
            if (identity := self._identities.get(chip)) is not None
        ]
        known = tuple(node for node in nodes if node is not None and node >= 0)
        return known if len(known) == product.chip_count else ()


def _extent(row: Product) -> tuple[str, int, int]:
    """Return key and chips of a row: rows themselves are compared by identity."""
    return row.key, row.chip_count, row.absent


def _check_readable(states: Mapping[int, ChipState]) -> None:
    """Raise `UnknownMachineError` if the state of no chip was read."""
    if not states:
        raise UnknownMachineError("the driver shows no chip")
    if all(look.unread for look in states.values()):
        chip, look = next(iter(states.items()))
        raise UnknownMachineError(f"no chip can be read; chip {chip}: {look.unread}")


def _with_events(events: Iterable[Code], last: ChipState) -> tuple[Code, ...]:
    """Return the codes of a chip that is unread: its last ones, and those of events.

    Args:
        events: Codes of the events since the chip's codes were read.
        last: Last state of the chip; if it is unread too, it has earlier of these.
    """
    codes = {
        code.code: code if last.unread else replace(code, count=0)
        for code in last.codes
    }
    return tuple((codes | {code.code: code for code in events}).values())


def _with_severities(codes: Iterable[Code], last: Iterable[Code]) -> tuple[Code, ...]:
    """Return codes; one without a severity has that of the last reading.

    Another worker process knows no event from before it began.
    """
    severities = {code.code: code.severity for code in last}
    return tuple(
        replace(code, severity=severities.get(code.code))
        if code.severity is None
        else code
        for code in codes
    )


def _virtual_devices(chips: Iterable[Identity]) -> list[VirtualDevice]:
    devices = [
        VirtualDevice(chip=chip.physical_id, number=number, kind=machine.kind_of(name))
        for chip in chips
        for number, name in chip.virtual or ()
    ]
    return sorted(devices, key=lambda device: device.number)


def _is_of(product: Product, chip: Identity) -> bool:
    """Whether a chip is of the product line of `product`, or of unknown model."""
    return machine.line_of(chip) in ("", product.chip_prefix.rstrip("-"))


def _by_id(chip_states: Iterable[ChipState]) -> dict[int, ChipState]:
    states: dict[int, ChipState] = {}
    for look in chip_states:
        chip = look.identity.physical_id
        if chip in states:
            raise UnknownMachineError(f"the driver shows two chips with the id {chip}")
        states[chip] = look
    return states


def _details(identity: Identity, *, is_late: bool) -> ChipDetails:
    """Return the details of a chip.

    Args:
        is_late: Whether a chip that has told no address by now counts as without one.
    """
    superpod = identity.superpod or NO_SUPERPOD
    return ChipDetails(
        chip=identity.physical_id,
        logic_id=identity.logic_id,
        ip="" if identity.ip is None and is_late else identity.ip,
        memory_mb=identity.memory_mb or 0,
        super_device_id=_number(superpod.super_device_id),
    )


def _number(number: int) -> int:
    return -1 if number == _NONE else number
