"""A libdcmi whose chips a test puts in and out, and whose calls it lets fail."""

from collections.abc import Iterable
from itertools import product
from typing import Any

from agent.devices.dcmi.library import NOT_EXIST, NOT_SUPPORTED, CallError
from agent.devices.dcmi.progress import Call
from agent.devices.dcmi.values import Identity, SuperPodPlace

#: Any chip, as the key of an error.
ANY = -1


class PlayedLibrary:
    """A library that tells what the test says now; a fact of None does not exist."""

    def __init__(self, chips: Iterable[Identity] = ()) -> None:
        #: {(card, device): the chip there}
        self.chips = {(chip.card, chip.device): chip for chip in chips}
        #: {physical id: codes that the driver lists}
        self.codes_of: dict[int, tuple[int, ...]] = {}
        #: {physical id: processes on the chip}
        self.pids_of: dict[int, tuple[int, ...]] = {}
        #: {(function, physical id or ANY): error that it returns}
        self.errors: dict[tuple[str, int], int] = {}
        #: cards that are counted with a negative id
        self.unnamed = 0

    def put(self, *chips: Identity) -> None:
        """Put chips in, or change what they tell."""
        self.chips |= {(chip.card, chip.device): chip for chip in chips}

    def fail(self, code: int, *functions: str, chip: int = ANY) -> None:
        """Let functions fail from now on."""
        self.errors |= {(function, chip): code for function in functions}

    def _chip(self, function: str, card: int, device: int) -> Identity:
        call = Call(function=function, card=card, device=device)
        chip = self.chips.get((card, device))
        if chip is None:
            raise CallError(call, NOT_EXIST)
        for key in ((function, chip.physical_id), (function, ANY)):
            if key in self.errors:
                raise CallError(call, self.errors[key])
        return chip

    def _fact(self, function: str, card: int, device: int, field: str) -> Any:
        value = getattr(self._chip(function, card, device), field)
        if value is None:
            call = Call(function=function, card=card, device=device)
            raise CallError(call, NOT_SUPPORTED)
        return value

    def version(self) -> str:
        return "24.1.rc2"

    def cards(self) -> tuple[tuple[int, ...], int]:
        if ("cards", ANY) in self.errors:
            raise CallError(Call(function="cards"), self.errors["cards", ANY])
        return tuple(sorted({card for card, _ in self.chips})), self.unnamed

    def device_count(self, card: int) -> int:
        on_card = [place for place in self.chips if place[0] == card]
        self._chip("device_count", *min(on_card, default=(card, 0)))
        return max(device for _, device in on_card) + 1

    def is_chip(self, card: int, device: int) -> bool:
        self._chip("is_chip", card, device)
        return True

    def logic_id(self, card: int, device: int) -> int:
        return self._chip("logic_id", card, device).logic_id

    def physical_id(self, card: int, device: int, _logic_id: int) -> int:
        return self._chip("physical_id", card, device).physical_id

    def check_ready(self, card: int, device: int) -> None:
        self._chip("check_ready", card, device)

    def codes(self, card: int, device: int) -> tuple[int, ...]:
        chip = self._chip("codes", card, device)
        return self.codes_of.get(chip.physical_id, ())

    def pids(self, card: int, device: int) -> tuple[int, ...]:
        chip = self._chip("pids", card, device)
        return self.pids_of.get(chip.physical_id, ())

    def chip_info(self, card: int, device: int) -> tuple[str, int]:
        name = self._fact("chip_info", card, device, "name")
        return str(name), self.chips[card, device].ai_core_count or 0

    def board_id(self, card: int, device: int) -> int:
        return int(self._fact("board_id", card, device, "board_id"))

    def product_type(self, card: int, device: int) -> str:
        return str(self._fact("product_type", card, device, "product_type"))

    def memory_mb(self, card: int, device: int) -> int:
        return int(self._fact("memory_mb", card, device, "memory_mb"))

    def address(self, card: int, device: int) -> str:
        return self._chip("address", card, device).ip or ""

    def super_pod(self, card: int, device: int) -> SuperPodPlace:
        place: SuperPodPlace = self._fact("super_pod", card, device, "superpod")
        return place

    def virtual(self, card: int, device: int) -> tuple[tuple[int, str], ...]:
        parts: tuple[tuple[int, str], ...]
        parts = self._fact("virtual", card, device, "virtual")
        return parts

    def near_cpus(self, card: int, device: int) -> str:
        self._chip("near_cpus", card, device)
        return ""


def server(cards: int, devices: int = 1, **facts: object) -> tuple[Identity, ...]:
    """The chips of cards, numbered from the first card on.

    Args:
        facts: What each chip tells; `{n}` in a text is its number.
    """
    return tuple(
        Identity(
            card=card,
            device=device,
            physical_id=number,
            logic_id=number,
            memory_mb=65536,
            **{
                key: value.format(n=number) if isinstance(value, str) else value
                for key, value in facts.items()
            },  # type: ignore[arg-type]
        )
        for number, (card, device) in enumerate(product(range(cards), range(devices)))
    )


_DIE = {"name": "Ascend910", "ai_core_count": 24, "board_id": 0xB0}
_POD = SuperPodPlace(super_device_id=4000, super_pod_id=4, server_index=2)
_NO_POD = SuperPodPlace(super_device_id=0, super_pod_id=0xFFFFFFFF, server_index=0)

ATLAS_800 = server(8, name="910A", ai_core_count=32, board_id=0x40, ip="10.0.0.{n}")
ATLAS_A2 = server(8, name="910B3", ai_core_count=20, board_id=0x30, ip="10.0.0.{n}")
BOX16 = server(16, name="910B3", ai_core_count=20, board_id=0x30, ip="10.0.0.{n}")
A3 = server(8, 2, **_DIE, superpod=_NO_POD, ip="10.0.0.{n}")
A3_SUPERPOD = server(8, 2, **_DIE, superpod=_POD, ip="10.0.0.{n}")
DUO = server(3, 2, name="310P3", ai_core_count=8, product_type="Atlas 300I Duo")

#: {key of the row: (chips of the server, highest physical id)}
SERVERS = {
    "atlas-800-training": ATLAS_800,
    "atlas-a2-8": ATLAS_A2,
    "atlas-a2-box16": BOX16,
    "atlas-a3-16": A3,
    "atlas-a3-16-superpod": A3_SUPERPOD,
    "atlas-300i-duo-chip": DUO,
}
