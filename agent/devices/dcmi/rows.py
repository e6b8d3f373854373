"""Decide which rows of the product table serve a node, from what its chips tell.

The first decision stays. So it is not made before the survey is complete, or the wait
for that is over. Chips that contradict it later have the agent begin anew with other
rows.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf

from agent.devices.board_size import UnknownMachineError, fit_row
from agent.devices.dcmi import machine
from agent.devices.dcmi.values import SLOW, ChipState, Identity, Survey
from scheduler_core.node import chips as chip_sets
from scheduler_core.products.table import Product


class IncompleteError(Exception):
    """Chips of the server are still missing from the surveys; the text says which."""


class ServedRows:
    """The rows that serve a node, and what speaks against them.

    Attributes:
        inventory: {product line: mask of its chips} that the Node has had; {} if that
            is not known.
        products: The rows; () before the first `take`.
        next_products: Rows with which the next agent is to begin.
        missing: What was missing at the first decision, and still is; "" if nothing, or
            if earlier agents have served the rows.
        contradiction: What shows that other rows should be served; "" if nothing does.
        changed_row: The contradiction, if other rows would serve the chips; else "".
        begins_anew: Whether all is read on which those rows depend.
    """

    def __init__(
        self,
        key: str,
        known_rows: tuple[Product, ...],
        *,
        wait_s: float,
        device_ids: Callable[[], Iterable[int]],
    ) -> None:
        """Decide nothing yet; the arguments are those of `Conversion`.

        Args:
            key: Key of the only row to serve; "" to detect the rows from the chips.
            known_rows: Rows that earlier agents on this node have served.
            wait_s: Longest wait for a complete survey. Unit: seconds.
            device_ids: Returns the numbers N of the host's files /dev/davinciN.
        """
        self._key = key
        self._known_rows = known_rows
        self._wait_s = wait_s
        self._device_ids = device_ids
        self.inventory: Mapping[str, int] = {}
        self.products: tuple[Product, ...] = ()
        self.next_products: tuple[Product, ...] = ()
        self.missing = self.contradiction = self.changed_row = ""
        self.begins_anew = False
        #: when the wait for a complete survey is over; the first survey begins it
        self._survey_end_s = inf
        #: when the agent begins anew without a complete survey
        self._contradiction_end_s = inf
        #: {physical id of a chip seen so far: its row of the product table}
        self._row_by_chip: dict[int, Product] = {}

    def take(
        self, states: Mapping[int, ChipState], survey: Survey, now_s: float
    ) -> None:
        """Choose the rows, or compare them with what the chips have told since.

        Args:
            states: {physical id: state} of a survey, completed by earlier ones.
            survey: Has the places that could not be identified.
            now_s: Time of this call. Unit: seconds of a monotonic clock.

        Raises:
            IncompleteError: Chips are still waited for.
            UnknownMachineError: No chip has been reported yet, or no row of the product
                table serves the chips.
        """
        if self._survey_end_s == inf:
            self._survey_end_s = now_s + self._wait_s
        identities = [look.identity for look in states.values()]
        machine.refuse_soc(identities)
        if not self.products:
            _check_readable(states)
            incomplete = self._why_incomplete(identities, survey)
            self.products = self._first_rows(identities, incomplete, now_s)
            self.missing = "" if self._key or self._known_rows else incomplete
        elif self.missing:
            self.missing = self._why_incomplete(identities, survey)
        self.changed_row, rows = self._changed_row(identities, now_s)
        self.begins_anew = bool(self.changed_row) and (
            now_s >= self._contradiction_end_s
            or not self._why_incomplete(identities, survey)
        )
        self.next_products = rows if self.begins_anew else self.products

    def split(
        self, states: Mapping[int, ChipState]
    ) -> tuple[dict[int, ChipState], list[int]]:
        """Return the states of the chips that are served, and the other chips' ids."""
        served = {}
        for chip, look in states.items():
            row = self.row_of(look.identity)
            if row is not None:
                served[chip] = look
                self._row_by_chip[chip] = row
        return served, [chip for chip in states if chip not in served]

    def change(self) -> None:
        """Serve the rows that the chips have shown; wait anew for what is missing."""
        self.products = self.next_products
        self._row_by_chip = {}
        self.missing = self.contradiction = ""
        self._survey_end_s = self._contradiction_end_s = inf

    def due_s(self, last_s: float) -> float:
        """Return when the next wait is over that was not at `last_s`; inf if none.

        Unit: seconds of the clock of `take`.
        """
        ends = (self._survey_end_s, self._contradiction_end_s)
        return min((end_s for end_s in ends if end_s > last_s), default=inf)

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

    def has_waited(self, now_s: float) -> bool:
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
        elif incomplete and not self._key and not self.has_waited(now_s):
            rows = self._rows_by_inventory(chips)
            if rows:
                return rows
            raise IncompleteError(
                f"waiting for all chips, {self._wait_s:g} s at most: {incomplete}"
            )
        return self._find_rows(chips)

    def _rows_by_inventory(self, chips: Sequence[Identity]) -> tuple[Product, ...]:
        """Return the rows of the chips that the Node had; () if these do not fit."""
        known_ids = chip_sets.mask_of(
            chip for mask in self.inventory.values() for chip in chip_sets.ids_of(mask)
        )
        if chip_sets.mask_of(self._device_ids()) & ~known_ids:
            return ()
        return machine.products_by_inventory(chips, self.inventory)

    def _find_rows(self, chips: Sequence[Identity]) -> tuple[Product, ...]:
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
        text = self._find_contradiction(self.products, chips)
        if not text:
            self._contradiction_end_s = inf
        elif not self.contradiction:
            self._contradiction_end_s = now_s + self._wait_s
        self.contradiction = text
        if not text:
            return "", self.products
        try:
            rows = self._find_rows(chips)
        except UnknownMachineError:
            # nothing else could be served: the chip is told as unread
            return "", self.products
        is_other = list(map(_extent, rows)) != list(map(_extent, self.products))
        return text if is_other else "", rows

    def row_of(self, chip: Identity) -> Product | None:
        """Return the product table's row that serves a chip; None if there is none.

        A chip of unknown model gets the node's only row, if this row has the chip's id.
        If the node has several rows, such a chip keeps its row from an earlier reading.
        """
        if not machine.line_of(chip) and len(self.products) > 1:
            return self._row_by_chip.get(chip.physical_id)
        rows = (row for row in self.products if row.all_chips >> chip.physical_id & 1)
        return next((row for row in rows if _is_of(row, chip)), None)


def _extent(row: Product) -> tuple[str, int, int]:
    """Return key and chips of a row: rows themselves are compared by identity."""
    return row.key, row.chip_count, row.absent


def _check_readable(states: Mapping[int, ChipState]) -> None:
    """Raise `UnknownMachineError` if no chip was read, or one has yet to be asked."""
    if not states:
        raise UnknownMachineError("the driver shows no chip")
    for chip, look in states.items():
        if look.unread == SLOW:
            raise UnknownMachineError(f"chip {chip} is not read yet: {SLOW}")
    if all(look.unread for look in states.values()):
        chip, look = next(iter(states.items()))
        raise UnknownMachineError(f"no chip can be read; chip {chip}: {look.unread}")


def _is_of(product: Product, chip: Identity) -> bool:
    """Whether a chip is of the product line of `product`, or of unknown model."""
    return machine.line_of(chip) in ("", product.chip_prefix.rstrip("-"))
