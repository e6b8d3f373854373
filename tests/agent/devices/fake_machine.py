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

    def take_out(self, card: int, device: int) -> str:
        """Take a chip out; return what it said, with which it is put in again."""
        words = self._chips[card, device]
        self.remove(card, device)
        return words

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


def _cards(path: Path, cards: int, devices: int, words: str) -> FakeMachine:
    """Cards of so many chips, which are numbered from the first card on.

    Args:
        words: What each chip says besides, with its number in place of `{n}`.
    """
    places = product(range(cards), range(devices))
    chips = {
        at: f"phy={n} logic={n} {words.format(n=n)}" for n, at in enumerate(places)
    }
    return FakeMachine(path, chips)


def training_910a(path: Path) -> FakeMachine:
    """Eight cards of one chip."""
    chip = "name=910A cores=32 board=0x40 memory=32768 network=0 ip=192.168.20.10{n}"
    return _cards(path, 8, 1, chip)


def module_910b(path: Path) -> FakeMachine:
    """Cards of one chip, whose logic ids are not their physical ids."""
    machine = _cards(
        path, 8, 1, "name=910B3 cores=20 board=0x30 memory=65536 network=0"
    )
    for chip in range(8):
        machine.say(chip, 0, phy=7 - chip, ip=f"10.0.0.{chip + 1}")
    return machine


def superpod_a3(path: Path) -> FakeMachine:
    """Eight cards of two dies, the third server of SuperPoD 4."""
    die = "name=Ascend910 cores=24 board=0xb0 memory=65536 network=6"
    return _cards(path, 8, 2, f"{die} sdid=40{{n:02}} pod=4 server=2")


def cards_300i(path: Path) -> FakeMachine:
    """Cards of four 310, each with a controller besides."""
    return _cards(path, 2, 4, "name=310 cores=2")


def cards_duo(path: Path) -> FakeMachine:
    """Cards of two 310P."""
    return _cards(path, 3, 2, "name=310P3 cores=8 type=Atlas+300I+Duo")


def cards_310p(path: Path) -> FakeMachine:
    """Cards of one 310P, and a controller behind each chip."""
    machine = _cards(path, 3, 1, "name=310P3 cores=8 type=Atlas+300I+Pro")
    for card in range(3):
        machine.add(card, 1, f"phy={64 + card} logic={64 + card} name=MCU unit=1")
    return machine
