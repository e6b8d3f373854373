"""A libdcmi whose chips have the fault codes that a test gives them."""

from typing import NoReturn

from agent.devices.dcmi.library import NOT_SUPPORTED, CallError
from agent.devices.dcmi.progress import Call


class ScriptedLibrary:
    """A card for each chip, with the same number; all but ids and codes is unknown."""

    def __init__(self, *, chips: int = 8) -> None:
        #: {card: codes that the driver lists}
        self.codes_of: dict[int, tuple[int, ...]] = dict.fromkeys(range(chips), ())
        #: Cards whose codes cannot be read.
        self.mute: set[int] = set()

    def cards(self) -> tuple[tuple[int, ...], int]:
        return tuple(self.codes_of), 0

    def device_count(self, card: int) -> int:
        return 1

    def is_chip(self, card: int, device: int) -> bool:
        return True

    def logic_id(self, card: int, device: int) -> int:
        return card

    def physical_id(self, card: int, device: int, logic_id: int) -> int:
        return card

    def check_ready(self, card: int, device: int) -> None:
        """Every chip is ready."""

    def codes(self, card: int, device: int) -> tuple[int, ...]:
        if card in self.mute:
            raise CallError(Call(function="codes", card=card, device=device), -8006)
        return self.codes_of[card]

    def __getattr__(self, function: str) -> object:
        def refuse(card: int = -1, device: int = -1) -> NoReturn:
            call = Call(function=function, card=card, device=device)
            raise CallError(call, NOT_SUPPORTED)

        return refuse
