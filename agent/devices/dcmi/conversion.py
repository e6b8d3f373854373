"""Convert chip states, as the driver's library returned them, to readings.

The library (libdcmi) runs in a process of its own. A survey has the states of all
chips, as that process read them at one time. If a chip could not be read, the reading
has the chip's last state that was read. Only the agent's memory has these last states,
so a restarted agent begins without them.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from agent.devices.board_size import UnknownMachineError, fit_row
from agent.devices.dcmi import machine
from agent.devices.dcmi.values import ChipState, Code, Identity, Survey
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
#: Results of the network check without a fault: fine, and not begun yet.
_NETWORK_FINE = frozenset({0, 6})
#: The driver's value for a number that it does not have; -1 in a reading.
_NONE = 0xFFFFFFFF


class Conversion:
    """Converter from surveys (all chips' states at one time) to readings.

    It stores the last state of each chip, and the time when each fault began.
    """

    def __init__(self, product: str) -> None:
        """Start without the state of any chip.

        Args:
            product: Key of the only product row to serve; "" to detect the rows from
                the chips.
        """
        self._key = product
        self._products: tuple[Product, ...] = ()
        self._last_states: dict[int, ChipState] = {}
        #: {physical id of a chip seen so far: its row of the product table}
        self._rows: dict[int, Product] = {}
        self._since_ms: dict[tuple[int, int], int] = {}
        #: {(physical id, code): its events since it was last absent}
        self._event_counts: dict[tuple[int, int], int] = {}

    def reading(self, survey: Survey, now_ms: int) -> Reading:
        """Convert `survey` to a reading; a chip that was not read keeps its last state.

        Args:
            survey: States of all chips at one time.
            now_ms: Start date of each new fault that no event reported. Unit: Unix
                milliseconds.

        Raises:
            UnknownMachineError: No chip has been reported yet, or no row of the product
                table serves the chips. Or two chips have one physical id.
        """
        states = _by_id(survey.chips)
        self._products = self._products or self._products_of(states.values())
        late_chips = () if self._key else tuple(self._late_chips(states))
        rows = {chip: self._row_of(look.identity) for chip, look in states.items()}
        self._rows |= {chip: row for chip, row in rows.items() if row is not None}
        states = {chip: look for chip, look in states.items() if rows[chip] is not None}
        self._count_events(states)
        unread = self._carry_over(states, survey)
        self._last_states |= states
        self._date(states.values(), now_ms)
        first, *others = (
            self._of_line(product, states, unread, survey) for product in self._products
        )
        return replace(
            first, other_lines=tuple(others), unread=(*first.unread, *late_chips)
        )

    def _of_line(
        self,
        product: Product,
        states: Mapping[int, ChipState],
        unread: Iterable[Unread],
        survey: Survey,
    ) -> Reading:
        """Return the reading of the chips of one product line.

        Args:
            product: Row of that product line.
            states: {physical id: state} of the chips of all product lines.
            unread: Chips of all product lines that could not be read completely.
            survey: Gives the version of the driver.
        """
        states = {
            chip: look for chip, look in states.items() if self._rows[chip] is product
        }
        chips = tuple(sorted(states))
        first = states[chips[0]].identity if chips else None
        return Reading(
            product=product,
            chip_name=first.name if first else "",
            ai_core_count=first.ai_core_count if first else 0,
            product_type=first.product_type if first else "",
            chips=chips,
            numa=self._numa(product),
            details=tuple(_details(states[chip].identity) for chip in chips),
            super_pod_id=_number(first.super_pod_id) if first else UNKNOWN,
            server_index=_number(first.server_index) if first else UNKNOWN,
            driver_version=survey.driver_version,
            faults=tuple(
                self._fault(chip, code) for chip in chips for code in states[chip].codes
            ),
            unreachable=tuple(c for c in chips if not _is_reachable(states[c])),
            processes=tuple(
                Process(chip=chip, pid=pid)
                for chip in chips
                for pid in states[chip].pids
            ),
            unread=tuple(
                chip_unread
                for chip_unread in unread
                if self._rows[chip_unread.chip] is product
            ),
            virtual=tuple(_virtual_devices(states[chip].identity for chip in chips)),
        )

    def _row_of(self, chip: Identity) -> Product | None:
        """Return the product table's row that serves a chip; None if there is none.

        A chip of unknown model gets the node's only row, if this row has the chip's id.
        If the node has several rows, such a chip keeps its row from an earlier reading.
        """
        if not machine.line_of(chip) and len(self._products) > 1:
            return self._rows.get(chip.physical_id)
        rows = (row for row in self._products if row.all_chips >> chip.physical_id & 1)
        return next((row for row in rows if _is_of(row, chip)), None)

    def _late_chips(self, states: Mapping[int, ChipState]) -> Iterator[Unread]:
        """Yield an `Unread` for each chip whose product line the agent does not serve.

        Such a product line (like "Ascend910") had no chip when the agent started. The
        agent must be started again to serve it.
        """
        served_lines = {row.chip_prefix.rstrip("-") for row in self._products}
        for chip, look in sorted(states.items()):
            line = machine.line_of(look.identity)
            if line and line not in served_lines:
                yield Unread(
                    chip=chip,
                    reason=f"there was no {line} on this node when the agent started, "
                    "which has to be started again to serve it",
                )

    def _carry_over(
        self, states: dict[int, ChipState], survey: Survey
    ) -> tuple[Unread, ...]:
        """Put into `states` the earlier values of chips that `survey` did not read.

        A chip that could not be read gets its whole earlier state. If it has no earlier
        state, it is removed from `states`. If only processes or virtual devices could
        not be read, only these come from the earlier state.

        Returns:
            Every chip with a known physical id whose state or processes could not be
            read, with the reason, ascending by chip.
        """
        reasons = {i: look.unread for i, look in states.items() if look.unread}
        for card, device, reason in survey.unidentified:
            for chip, state in self._last_states.items():
                identity = state.identity
                if identity.card == card and device in (identity.device, -1):
                    reasons.setdefault(chip, reason)
        for chip in reasons:
            if chip in self._last_states:
                states[chip] = self._last_states[chip]
            else:
                states.pop(chip, None)
        for chip, look in states.items():
            if look.unread_pids:
                reasons.setdefault(chip, look.unread_pids)
            states[chip] = _complete(look, self._last_states.get(chip, look))
        return tuple(
            Unread(chip=chip, reason=reasons[chip]) for chip in sorted(reasons)
        )

    def _products_of(self, states: Iterable[ChipState]) -> tuple[Product, ...]:
        identities = [look.identity for look in states]
        if not identities:
            raise UnknownMachineError("the driver shows no chip")
        if not self._key:
            return machine.products_of(identities)
        row = fit_row(self._key, 0)
        own_ids = {chip.physical_id for chip in identities if _is_of(row, chip)}
        if not own_ids:
            raise UnknownMachineError(
                f"the driver shows no chip that could be of --product {self._key}"
            )
        other_ids = {chip.physical_id for chip in identities} - own_ids
        return (fit_row(self._key, max(own_ids), chip_sets.mask_of(other_ids)),)

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

    def _fault(self, chip: int, code: Code) -> ChipFault:
        return ChipFault(
            chip=chip,
            code=f"{code.code:08X}",
            severity=code.severity,
            network=code.code in NETWORK_CODES,
            since_ms=self._since_ms[chip, code.code],
            count=self._event_counts.get((chip, code.code), 0),
        )

    def _numa(self, product: Product) -> tuple[int, ...]:
        """Return the NUMA node of each chip of a row, ordered by chip id.

        The result is () if the NUMA node of any chip is unknown.
        """
        nodes_or_none = [
            look.identity.numa
            for chip in range(product.chip_count)
            if (look := self._last_states.get(chip)) is not None
        ]
        nodes = tuple(node for node in nodes_or_none if node is not None)
        return nodes if len(nodes) == product.chip_count else ()


def _virtual_devices(chips: Iterable[Identity]) -> list[VirtualDevice]:
    devices = [
        VirtualDevice(chip=chip.physical_id, number=number, kind=kind)
        for chip in chips
        for number, name in chip.virtual or ()
        if (kind := machine.kind_of(name))
    ]
    return sorted(devices, key=lambda device: device.number)


def _complete(state: ChipState, last_state: ChipState) -> ChipState:
    """Return `state`; unread processes and virtual devices come from `last_state`."""
    if state.unread_pids:
        state = replace(state, pids=last_state.pids)
    if state.identity.virtual is None:
        # a chip with parts in use must not look whole
        parts = last_state.identity.virtual
        state = replace(state, identity=replace(state.identity, virtual=parts))
    return state


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


def _details(identity: Identity) -> ChipDetails:
    return ChipDetails(
        chip=identity.physical_id,
        logic_id=identity.logic_id,
        ip=identity.ip,
        memory_mb=identity.memory_mb,
        super_device_id=_number(identity.super_device_id),
    )


def _number(number: int) -> int:
    return -1 if number == _NONE else number


def _is_reachable(look: ChipState) -> bool:
    return look.network is None or look.network in _NETWORK_FINE
