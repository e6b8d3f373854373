"""Convert chip states, as the driver's library returned them, to readings.

The library (libdcmi) runs in a process of its own. A survey has the states of all
chips, as that process read them at one time. What a survey does not tell is no news:
the reading then has the last value that was told. Facts like models and addresses
outlive the agent (`memory`); faults and processes do not.

The first reading decides which rows of the product table are served, and they stay.
So it is not made before the survey is complete, or `wait_s` are over.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from math import inf

from agent.devices.dcmi import machine
from agent.devices.dcmi.chip_states import ChipStates
from agent.devices.dcmi.memory import Known
from agent.devices.dcmi.rows import ServedRows
from agent.devices.dcmi.values import (
    NO_NUMBER,
    NO_SUPERPOD,
    SLOW,
    ChipState,
    Code,
    Identity,
    Survey,
)
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

NOTHING = Known()


class Conversion:
    """Converter from surveys (all chips' states at one time) to readings.

    It stores the driver's version; `ChipStates` and `ServedRows` store the rest.
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
        self._states = ChipStates(known.identities)
        self._rows = ServedRows(
            product, known.products, wait_s=wait_s, device_ids=device_ids
        )
        self._last_s = -inf
        self._driver_version = ""

    def reading(self, survey: Survey, now_ms: int, now_s: float) -> Reading:
        """Convert `survey` to a reading; what was not read keeps its last value.

        Args:
            survey: States of all chips at one time.
            now_ms: Begin of each new fault that no event reported. Unit: Unix
                milliseconds.
            now_s: Time of this call. Unit: seconds of a monotonic clock.

        Raises:
            IncompleteError: Chips are still waited for.
            UnknownMachineError: No chip has been reported yet, or no row of the product
                table serves the chips. Or two chips have one physical id.
        """
        self._last_s = now_s
        states = self._states.take(survey, now_ms)
        self._rows.take(states, survey, now_s)
        served, others = self._rows.split(states)
        self._states.keep(served)
        self._driver_version = survey.driver_version or self._driver_version
        first, *other_lines = (
            self._of_line(product, served, now_s) for product in self._rows.products
        )
        contradiction = self._rows.contradiction
        outside = [Unread(chip=chip, reason=contradiction) for chip in others]
        return replace(
            first,
            other_lines=tuple(other_lines),
            unread=(*first.unread, *(outside if contradiction else ())),
            changed_row=self._rows.changed_row,
            begins_anew=self._rows.begins_anew,
            looked_s=survey.looked_s,
            missing=self._rows.missing,
        )

    def change_rows(self) -> None:
        """Make the next readings of the rows that the chips have shown.

        What the chips have told stays; what they have not told is awaited again.
        """
        self._rows.change()

    def expect(self, inventory: Mapping[str, int]) -> None:
        """Take the chips that the Node has had for those of this server.

        They count while nothing else is known of earlier rows.

        Args:
            inventory: {product line: mask of its chips}.
        """
        self._rows.inventory = inventory

    @property
    def due_s(self) -> float:
        """When the same survey gives another reading, since a wait is over; or `inf`.

        Unit: seconds of the clock of `reading`.
        """
        return self._rows.due_s(self._last_s)

    @property
    def known(self) -> Known:
        """The rows of the next start, and what has been told of the chips served."""
        identities = self._states.identities
        return Known(
            self._rows.next_products,
            tuple(identities[chip] for chip in sorted(identities)),
        )

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
        line = [
            states[c]
            for c in sorted(states)
            if self._rows.row_of(states[c].identity) is product
        ]
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
            faults=tuple(_fault(look, code) for look in read for code in look.codes),
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
                    is_slow=look.unread == SLOW,
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
            for chip, identity in self._states.identities.items()
            if chip not in present and self._rows.row_of(identity) is product
        }
        return present | missing

    def _details(
        self, product: Product, identities: Mapping[int, Identity], now_s: float
    ) -> tuple[ChipDetails, ...]:
        """Return the details of the chips of a row, ordered by chip.

        A chip without an address has none after the wait. Until then its address is
        awaited, even if nothing else is known of the chip.
        """
        is_late = self._rows.has_waited(now_s)
        return tuple(
            _details(identity, is_late=is_late)
            if (identity := identities.get(chip))
            else ChipDetails(chip=chip, logic_id=UNKNOWN, ip=None)
            for chip in chip_sets.ids_of(product.all_chips)
            if chip in identities or not is_late
        )

    def _numa(self, product: Product) -> tuple[int, ...]:
        """Return the NUMA node of each chip of a row, ordered by chip id.

        The result is () if the NUMA node of any chip is unknown.
        """
        nodes = [
            identity.numa
            for chip in range(product.chip_count)
            if (identity := self._states.identities.get(chip)) is not None
        ]
        known = tuple(node for node in nodes if node is not None and node >= 0)
        return known if len(known) == product.chip_count else ()


def _fault(look: ChipState, code: Code) -> ChipFault:
    return ChipFault(
        chip=look.identity.physical_id,
        code=f"{code.code:08X}",
        severity=code.severity,
        since_ms=code.at_ms or 0,
        count=code.count,
    )


def _virtual_devices(chips: Iterable[Identity]) -> list[VirtualDevice]:
    devices = [
        VirtualDevice(chip=chip.physical_id, number=number, kind=machine.kind_of(name))
        for chip in chips
        for number, name in chip.virtual or ()
    ]
    return sorted(devices, key=lambda device: device.number)


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
    return -1 if number == NO_NUMBER else number
