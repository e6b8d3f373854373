"""Servers for the libdcmi of the tests: what its script says of each family."""

from collections.abc import Mapping
from itertools import product
from pathlib import Path


class FakeMachine:
    """A script of the fake library. Protects what it says now."""

    def __init__(self, path: Path, chips: Mapping[tuple[int, int], str]) -> None:
        """Write a script of chips: {(card, device): its keys and values}."""
        self.path = path
        self.version = "24.1.rc2"
        #: what shows it
        self.library = Path("libdcmi.so")
        self._chips = dict(chips)
        self._more: list[str] = []
        self._write()

    @property
    def environment(self) -> dict[str, str]:
        """What a process must have in its environment to see this machine."""
        return {"FAKE_DCMI": str(self.path)}

    def say(self, card: int, device: int, **values: object) -> None:
        """Change what a chip says."""
        more = " ".join(f"{key}={value}" for key, value in values.items())
        kept = [
            word
            for word in self._chips[card, device].split()
            if word.partition("=")[0] not in values
        ]
        self._chips[card, device] = " ".join([*kept, more])
        self._write()

    def add(self, card: int, device: int, words: str) -> None:
        """Put a chip in."""
        self._chips[card, device] = words
        self._write()

    def remove(self, card: int, device: int) -> None:
        """Take a chip out."""
        del self._chips[card, device]
        self._write()

    def tell(self, *lines: str) -> None:
        """Have functions misbehave from now on, in these ways only."""
        self._more = list(lines)
        self._write()

    def event(self, logic_id: int, code: str, severity: int, assertion: int) -> None:
        """Have the library call back."""
        with Path(f"{self.path}.events").open("a") as file:
            file.write(f"{logic_id} {code} {severity} {assertion}\n")

    def _write(self) -> None:
        lines = [f"version {self.version}"]
        lines += [
            f"chip {card} {device} {words}"
            for (card, device), words in sorted(self._chips.items())
        ]
        new = self.path.with_suffix(".new")
        new.write_text("\n".join([*lines, *self._more]) + "\n")
        new.rename(self.path)


def training_910a(path: Path) -> FakeMachine:
    """Eight cards of one chip."""
    return FakeMachine(
        path,
        {
            (chip, 0): f"phy={chip} logic={chip} name=910A cores=32 board=0x40 "
            f"memory=32768 network=0 ip=192.168.20.{100 + chip}"
            for chip in range(8)
        },
    )


def module_910b(path: Path, count: int = 8) -> FakeMachine:
    """Cards of one chip, whose logic ids are not their physical ids."""
    return FakeMachine(
        path,
        {
            (chip, 0): f"phy={count - 1 - chip} logic={chip} name=910B3 cores=20 "
            f"board=0x30 memory=65536 network=0 ip=10.0.0.{chip + 1}"
            for chip in range(count)
        },
    )


def superpod_a3(path: Path) -> FakeMachine:
    """Eight cards of two dies, the third server of SuperPoD 4."""
    return FakeMachine(
        path,
        {
            (die // 2, die % 2): f"phy={die} logic={die} name=Ascend910 cores=24 "
            f"board=0xb0 memory=65536 network=6 sdid={4000 + die} pod=4 server=2"
            for die in range(16)
        },
    )


def _cards(path: Path, cards: int, devices: int, words: str) -> FakeMachine:
    """Cards of so many chips, which are numbered from the first card on."""
    places = product(range(cards), range(devices))
    chips = {at: f"phy={n} logic={n} {words}" for n, at in enumerate(places)}
    return FakeMachine(path, chips)


def cards_300i(path: Path, cards: int = 2) -> FakeMachine:
    """Cards of four 310, each with a controller besides."""
    return _cards(path, cards, 4, "name=310 cores=2")


def cards_duo(path: Path, cards: int = 3) -> FakeMachine:
    """Cards of two 310P."""
    return _cards(path, cards, 2, "name=310P3 cores=8 type=Atlas+300I+Duo")


def cards_310p(path: Path, cards: int = 3) -> FakeMachine:
    """Cards of one 310P, and a controller behind each chip."""
    machine = _cards(path, cards, 1, "name=310P3 cores=8 type=Atlas+300I+Pro")
    for card in range(cards):
        machine.add(card, 1, f"phy={64 + card} logic={64 + card} name=MCU unit=1")
    return machine
