"""A libdcmi whose calls have the outcomes that a test gives them."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from agent.devices.dcmi.library import LEFT_OUT, NOT_SUPPORTED, CallError
from agent.devices.dcmi.progress import Call

T = TypeVar("T")
#: {method of `Library`: the C functions that it calls for a chip without an IPv4
#: address and without virtual devices}
FUNCTIONS: Mapping[str, tuple[str, ...]] = {
    "can_subscribe": ("dcmi_subscribe_fault_event",),
    "version": ("dcmi_get_dcmi_version",),
    "cards": ("dcmi_get_card_list",),
    "device_count": ("dcmi_get_device_num_in_card",),
    "is_chip": ("dcmi_get_device_type",),
    "logic_id": ("dcmi_get_device_logic_id",),
    "physical_id": ("dcmi_get_device_phyid_from_logicid",),
    "chip_info": ("dcmi_get_device_chip_info_v2",),
    "board_id": ("dcmi_get_device_board_info",),
    "product_type": ("dcmi_get_product_type",),
    "check_ready": ("dcmi_get_device_health",),
    "codes": ("dcmi_get_device_errorcode_v2",),
    "pids": ("dcmi_get_device_resource_info",),
    "address": ("dcmi_get_device_ip", "dcmi_get_device_ip"),
    "memory_mb": ("dcmi_get_device_hbm_info",),
    "super_pod": ("dcmi_get_device_info",),
    "virtual": ("dcmi_get_device_info",),
    "near_cpus": ("dcmi_get_affinity_cpu_info_by_device_id",),
}


class HungError(BaseException):
    """A call does not come back. No code of the project catches this."""

    def __init__(self, call: Call) -> None:
        super().__init__(str(call))
        self.call = call


@dataclass(frozen=True, slots=True)
class Fails:
    """The call returns an error code."""

    code: int


@dataclass(frozen=True, slots=True)
class Hangs:
    """The call does not come back."""


@dataclass(frozen=True, slots=True)
class IsLate:
    """The call answers after so many seconds."""

    for_s: float


@dataclass(frozen=True, slots=True)
class Answers:
    """The call answers this, right or wrong."""

    value: Any


Outcome = Fails | Hangs | IsLate | Answers
#: Card and device; None for all.
Place = tuple[int, int] | None


class ScriptedLibrary:
    """Cards of one or more chips, which are numbered from the first card on.

    A call without an answer in `facts` is not supported, but for ids and codes.
    """

    def __init__(
        self,
        *,
        chips: int = 8,
        dies: int = 1,
        facts: Mapping[str, Callable[[int], Any]] | None = None,
        pass_s: Callable[[float], None] = lambda _seconds: None,
    ) -> None:
        """Begin without faults.

        Args:
            chips: How many there are.
            dies: Of these on each card.
            facts: {method: returns its answer for a chip}.
            pass_s: Lets time pass, for a call that is late.
        """
        #: {chip: codes that the driver lists}
        self.codes_of: dict[int, tuple[int, ...]] = dict.fromkeys(range(chips), ())
        #: Chips whose codes cannot be read.
        self.mute: set[int] = set()
        #: {(method, where): what comes of it, in place of the answer}
        self.outcomes: dict[tuple[str, Place], Outcome] = {}
        #: {C function: how often it was called}
        self.counts: Counter[str] = Counter()
        #: Card and device of each call; (-1, -1) of those about no chip.
        self.places: set[tuple[int, int]] = set()
        #: Whether a call must be skipped, as the worker was told.
        self.leave_out: Callable[[Call], bool] = lambda _call: False
        self._dies = dies
        self._facts = dict(facts or {})
        self.pass_s = pass_s

    def can_subscribe(self) -> bool:
        """Subscribe to events, as the worker does before it reads chips."""
        try:
            return self._do("can_subscribe", -1, -1, lambda: True)
        except CallError:
            return False

    def cards(self) -> tuple[tuple[int, ...], int]:
        numbers = {chip // self._dies for chip in self.codes_of}
        return self._do("cards", -1, -1, lambda: (tuple(sorted(numbers)), 0))

    def device_count(self, card: int) -> int:
        chips = [chip for chip in self.codes_of if chip // self._dies == card]
        return self._do("device_count", card, 0, lambda: len(chips))

    def is_chip(self, card: int, device: int) -> bool:
        return self._do("is_chip", card, device, lambda: True)

    def logic_id(self, card: int, device: int) -> int:
        return self._do("logic_id", card, device, lambda: self._chip(card, device))

    def physical_id(self, card: int, device: int, logic_id: int) -> int:
        return self._do("physical_id", card, device, lambda: logic_id)

    def check_ready(self, card: int, device: int) -> None:
        """Every chip is ready."""
        self._do("check_ready", card, device, lambda: None)

    def codes(self, card: int, device: int) -> tuple[int, ...]:
        chip = self._chip(card, device)
        if chip in self.mute:
            raise CallError(Call(function="codes", card=card, device=device), -8006)
        return self._do("codes", card, device, lambda: self.codes_of[chip])

    def version(self) -> str:
        return self._do("version", -1, -1, lambda: str(self._fact("version", -1, -1)))

    def __getattr__(self, method: str) -> Callable[[int, int], Any]:
        def ask(card: int, device: int) -> Any:
            return self._do(
                method, card, device, lambda: self._fact(method, card, device)
            )

        return ask

    def _chip(self, card: int, device: int) -> int:
        return card * self._dies + device

    def _fact(self, method: str, card: int, device: int) -> Any:
        if method not in self._facts:
            call = Call(function=FUNCTIONS[method][0], card=card, device=device)
            raise CallError(call, NOT_SUPPORTED)
        return self._facts[method](self._chip(card, device))

    def _do(self, method: str, card: int, device: int, answer: Callable[[], T]) -> T:
        functions = FUNCTIONS[method]
        call = Call(function=functions[0], card=card, device=device)
        if self.leave_out(call):
            raise CallError(call, LEFT_OUT)
        self.counts.update(functions)
        self.places.add((card, device))
        here = self.outcomes.get((method, (card, device)))
        match here or self.outcomes.get((method, None)):
            case Fails(code):
                raise CallError(call, code)
            case Hangs():
                raise HungError(call)
            case Answers(value):
                return cast("T", value)
            case IsLate(for_s):
                self.pass_s(for_s)
            case None:
                pass
        return answer()
