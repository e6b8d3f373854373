"""From what the library said to what the agent works with: pure but for what it keeps.

A chip that cannot be read keeps what was last known of it. What is kept here is lost
with the process and found again by the next look.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from agent.devices.board_size import UnknownMachineError, sized
from agent.devices.dcmi import machine
from agent.devices.dcmi.values import ChipLook, Code, Identity, Survey
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
#: Answers of the network check that are no fault: all is well, and not begun yet.
_NETWORK_FINE = frozenset({0, 6})
#: A number that the driver does not have is this to it, and -1 to readers.
_NONE = 0xFFFFFFFF


class Conversion:
    """Protects what is known of each chip, and since when it has each fault."""

    def __init__(self, product: str) -> None:
        """Know nothing yet.

        Args:
            product: Key of the row of the table, whose chips alone are served; "" to
                tell the rows from the chips.
        """
        self._key = product
        self._products: tuple[Product, ...] = ()
        self._known: dict[int, ChipLook] = {}
        #: {chip that was ever seen: the row by which it is served}
        self._rows: dict[int, Product] = {}
        self._since_ms: dict[tuple[int, int], int] = {}

    def reading(self, survey: Survey, now_ms: int) -> Reading:
        """Take in a survey.

        Args:
            survey: A look at the machine.
            now_ms: When it came. Unit: Unix milliseconds.

        Raises:
            UnknownMachineError: It shows no server that we could serve.
        """
        looks = _by_id(survey.chips)
        self._products = self._products or self._products_of(looks.values())
        late = () if self._key else tuple(self._late(looks))
        rows = {chip: self._row_of(look.identity) for chip, look in looks.items()}
        self._rows |= {chip: row for chip, row in rows.items() if row is not None}
        looks = {chip: look for chip, look in looks.items() if rows[chip] is not None}
        unread = self._carried(looks, survey)
        self._known |= looks
        self._date(looks.values(), now_ms)
        first, *beside = (
            self._of_line(product, looks, unread, survey) for product in self._products
        )
        return replace(first, beside=tuple(beside), unread=(*first.unread, *late))

    def _of_line(
        self,
        product: Product,
        looks: Mapping[int, ChipLook],
        unread: Iterable[Unread],
        survey: Survey,
    ) -> Reading:
        """What is known of the chips of one product line."""
        looks = {
            chip: look for chip, look in looks.items() if self._rows[chip] is product
        }
        chips = tuple(sorted(looks))
        first = looks[chips[0]].identity if chips else None
        return Reading(
            product=product,
            chip_name=first.name if first else "",
            ai_core_count=first.ai_core_count if first else 0,
            product_type=first.product_type if first else "",
            chips=chips,
            numa=self._numa(product),
            details=tuple(_details(looks[chip].identity) for chip in chips),
            super_pod_id=_number(first.super_pod_id) if first else UNKNOWN,
            server_index=_number(first.server_index) if first else UNKNOWN,
            driver_version=survey.driver_version,
            faults=tuple(
                self._fault(chip, code) for chip in chips for code in looks[chip].codes
            ),
            unreachable=tuple(c for c in chips if not _is_reachable(looks[c])),
            processes=tuple(
                Process(chip=chip, pid=pid)
                for chip in chips
                for pid in looks[chip].pids
            ),
            unread=tuple(each for each in unread if self._rows[each.chip] is product),
            virtual=tuple(_parts(looks[chip].identity for chip in chips)),
        )

    def _row_of(self, chip: Identity) -> Product | None:
        """The row by which a chip is served; None: by none.

        One of no family is of the only line that there is, or of what it was before.
        """
        if not machine.line_of(chip) and len(self._products) > 1:
            return self._rows.get(chip.physical_id)
        rows = (row for row in self._products if row.all_chips >> chip.physical_id & 1)
        return next((row for row in rows if _is_of(row, chip)), None)

    def _late(self, looks: Mapping[int, ChipLook]) -> Iterator[Unread]:
        """Yield the chips of product lines that were not there at the start."""
        ours = {row.chip_prefix.rstrip("-") for row in self._products}
        for chip, look in sorted(looks.items()):
            line = machine.line_of(look.identity)
            if line and line not in ours:
                yield Unread(
                    chip=chip,
                    why=f"there was no {line} on this node when the agent started, "
                    "which has to be started again to serve it",
                )

    def _carried(
        self, looks: dict[int, ChipLook], survey: Survey
    ) -> tuple[Unread, ...]:
        """Put what was known into looks that could not tell, and say of which.

        A chip that was never read is left out: what nobody has seen is not served.
        """
        why = {i: look.unread for i, look in looks.items() if look.unread}
        for card, device, reason in survey.unidentified:
            for chip, known in self._known.items():
                place = known.identity
                if place.card == card and device in (place.device, -1):
                    why.setdefault(chip, reason)
        for chip in why:
            if chip in self._known:
                looks[chip] = self._known[chip]
            else:
                looks.pop(chip, None)
        for chip, look in looks.items():
            if look.unread_pids:
                why.setdefault(chip, look.unread_pids)
            looks[chip] = _completed(look, self._known.get(chip, look))
        return tuple(Unread(chip=chip, why=why[chip]) for chip in sorted(why))

    def _products_of(self, looks: Iterable[ChipLook]) -> tuple[Product, ...]:
        identities = [look.identity for look in looks]
        if not identities:
            raise UnknownMachineError("the driver shows no chip")
        if not self._key:
            return machine.products_of(identities)
        row = sized(self._key, 0)
        ours = {chip.physical_id for chip in identities if _is_of(row, chip)}
        if not ours:
            raise UnknownMachineError(
                f"the driver shows no chip that could be of --product {self._key}"
            )
        others = {chip.physical_id for chip in identities} - ours
        return (sized(self._key, max(ours), chip_sets.mask_of(others)),)

    def _date(self, looks: Iterable[ChipLook], now_ms: int) -> None:
        """Date each fault: as before when it is known already, else by its event."""
        self._since_ms = {
            (look.identity.physical_id, code.code): self._since_ms.get(
                (look.identity.physical_id, code.code),
                now_ms if code.at_ms is None else code.at_ms,
            )
            for look in looks
            for code in look.codes
        }

    def _fault(self, chip: int, code: Code) -> ChipFault:
        return ChipFault(
            chip=chip,
            code=f"{code.code:08X}",
            severity=code.severity,
            network=code.code in NETWORK_CODES,
            since_ms=self._since_ms[chip, code.code],
        )

    def _numa(self, product: Product) -> tuple[int, ...]:
        """The NUMA node of each chip; none of them where one is not known."""
        found = [
            look.identity.numa
            for chip in range(product.chip_count)
            if (look := self._known.get(chip)) is not None
        ]
        nodes = tuple(node for node in found if node is not None)
        return nodes if len(nodes) == product.chip_count else ()


def _parts(chips: Iterable[Identity]) -> list[VirtualDevice]:
    found = [
        VirtualDevice(chip=chip.physical_id, number=number, kind=kind)
        for chip in chips
        for number, name in chip.virtual or ()
        if (kind := machine.kind_of(name))
    ]
    return sorted(found, key=lambda device: device.number)


def _completed(look: ChipLook, known: ChipLook) -> ChipLook:
    """Put into a look what single calls could not tell."""
    if look.unread_pids:
        look = replace(look, pids=known.pids)
    if look.identity.virtual is None:
        # a chip of which parts are given out must not look whole
        parts = known.identity.virtual
        look = replace(look, identity=replace(look.identity, virtual=parts))
    return look


def _is_of(product: Product, chip: Identity) -> bool:
    """Whether a chip is of the product line of a row; one of no line is of any."""
    return machine.line_of(chip) in ("", product.chip_prefix.rstrip("-"))


def _by_id(looks: Iterable[ChipLook]) -> dict[int, ChipLook]:
    found: dict[int, ChipLook] = {}
    for look in looks:
        chip = look.identity.physical_id
        if chip in found:
            raise UnknownMachineError(f"the driver shows two chips with the id {chip}")
        found[chip] = look
    return found


def _details(identity: Identity) -> ChipDetails:
    return ChipDetails(
        chip=identity.physical_id,
        logic_id=identity.logic_id,
        ip=identity.ip,
        memory_mb=identity.memory_mb,
        super_device_id=_number(identity.super_device_id),
    )


def _number(said: int) -> int:
    return -1 if said == _NONE else said


def _is_reachable(look: ChipLook) -> bool:
    return look.network is None or look.network in _NETWORK_FINE
