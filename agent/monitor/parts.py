"""Turn the readings of chips into the health of their parts, of one kind.

A part is as healthy as its chip, and foreign if its chip is. The driver does not tell
which processes a part has, so none keep it from being free.
"""

from collections.abc import Mapping
from dataclasses import replace

from agent.claims.events import ChipsRead, ChipsUnreadable, ForeignRead
from agent.claims.store import LedgerStore
from agent.devices.poller import Observation
from agent.devices.reading import Reading, VirtualDevice
from agent.monitor.chips import ChipMonitor
from scheduler_core.node import chips as chip_sets
from scheduler_core.products import lookup
from scheduler_core.products.table import Product
from scheduler_core.wire import annotations


def kinds_of(reading: Reading) -> tuple[Product, ...]:
    """Return the row of each kind of part that is served by claims, with its parts.

    The parts of other kinds are given out as the kubelet chooses: of kinds that the
    extender does not know, and of those with a number that is not one of its chip.
    """
    kinds = sorted({device.kind for device in reading.virtual})
    rows = []
    for kind in kinds:
        resource = f"{reading.product.resource}-{kind}"
        row = lookup.find_virtual_row(resource)
        if row is None or resource not in lookup.STATIC_PARTS:
            continue
        ids = devices_of(reading, row)
        if len(ids) == sum(device.kind == kind for device in reading.virtual):
            rows.append(_with_parts(row, chip_sets.mask_of(ids)))
    return tuple(rows)


def devices_of(reading: Reading, row: Product) -> dict[int, VirtualDevice]:
    """Return {id: part} of the parts of one kind; without those that have no id."""
    whole_row = lookup.find_virtual_row(row.resource) or row
    ids = {
        annotations.part_id(device.number, device.chip, whole_row): device
        for device in reading.virtual
        if f"{reading.product.resource}-{device.kind}" == row.resource
    }
    return {part: device for part, device in ids.items() if part is not None}


def _with_parts(row: Product, mask: int) -> Product:
    """Return the row of a node that has these parts."""
    return replace(row, absent=((1 << row.chip_count) - 1) & ~mask)


class PartMonitor:
    """Monitor of the parts of one kind, by the monitor of their chips."""

    def __init__(
        self, store: LedgerStore, whole: ChipMonitor, whole_store: LedgerStore
    ) -> None:
        """Construct without telling the ledger anything.

        Args:
            store: Ledger of the kind; its row has the parts of the node.
            whole: Monitor of the chips.
            whole_store: Ledger of the chips.
        """
        self._store, self._whole, self._whole_store = store, whole, whole_store
        #: {id: part} of all parts that the driver ever showed
        self._devices: dict[int, VirtualDevice] = {}

    @property
    def devices(self) -> Mapping[int, VirtualDevice]:
        """All parts that the driver ever showed, by id."""
        return self._devices

    def observe(self, _observation: Observation) -> bool:
        """Tell the ledger what its chips' monitor has made of an observation.

        Returns:
            Whether another observation is needed soon: a pod with a part has ended.
        """
        self.judge_again()
        return bool(self._store.ledger.ended_s)

    def lose_driver(self) -> None:
        """Have the ledger wait for no look, as that of the chips."""
        if not self._store.ledger.unreadable:
            self._store.apply(ChipsUnreadable())

    def judge_again(self) -> None:
        """Tell the ledger which parts there are, and which can be given out.

        Parts that have been cut since are added; those that have gone are unhealthy.
        """
        reading, store = self._whole.reading, self._store
        present = devices_of(reading, store.ledger.product)
        self._devices |= present
        known = store.ledger.product.all_chips
        every = known | chip_sets.mask_of(present)
        if every != known:
            row = _with_parts(store.ledger.product, every)
            store.replace(replace(store.ledger, product=row))
        in_service = set(self._whole.health.in_service)
        fit = (part for part, device in present.items() if device.chip in in_service)
        event = ChipsRead(
            unhealthy=every & ~chip_sets.mask_of(fit),
            busy=0,
            began_s=self._whole.looked_s,
        )
        ledger = store.ledger
        if event.unhealthy != ledger.unhealthy or ledger.ended_s or ledger.unreadable:
            store.apply(event)
        users = self._whole_store.ledger.foreign
        foreign = {
            part: users[device.chip]
            for part, device in self._devices.items()
            if device.chip in users
        }
        if foreign != store.ledger.foreign:
            store.apply(ForeignRead(foreign))
