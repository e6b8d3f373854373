"""What is published about a chip was told by the driver, or says that it is old.

A state machine over answers of the driver, cards that come and go, pods, and restarts
of worker and agent, in simulated time. The library notes what it has answered; after
each step all that is published is compared with that.
"""

import json
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from agent.claims.annotations import plan_patches
from agent.devices.dcmi.library import ABSENT, LEFT_OUT, NOT_READY, CallError
from agent.devices.dcmi.reader import DROPPED
from agent.devices.dcmi.values import SuperPodPlace
from agent.devices.reading import UNKNOWN, Reading
from agent.health.conditions import UNREAD_S, Condition
from agent.report import content
from agent.report.content import NodeReport
from scheduler_core.wire import annotations
from scheduler_core.wire.deviceinfo import Affinity
from tests.agent.devices.dcmi.booting import STEP_S, Node, known_of
from tests.agent.devices.played_library import ANY, PlayedLibrary, server
from tests.agent.node import HOST_IP, NodeLedger, pod

pytestmark = pytest.mark.long

PODS = [
    SuperPodPlace(super_device_id=4, super_pod_id=4, server_index=2),
    SuperPodPlace(super_device_id=9, super_pod_id=7, server_index=0),
]
CHIPS = server(
    4,
    2,
    name="Ascend910",
    ai_core_count=24,
    board_id=0xB0,
    superpod=PODS[0],
    ip="10.0.0.{n}",
)
ROW = "atlas-a3-8-superpod"
WAIT_S = 150.0
#: Codes of a fault of the chip, and of its network.
CODES = [(), (0x80E18402,), (0x80E01801, 0x81078603)]
FUNCTIONS = [
    *("cards", "device_count", "is_chip", "logic_id", "physical_id", "codes"),
    *("check_ready", "pids", "address", "super_pod", "board_id", "chip_info"),
]
ERRORS = [-8005, -8006, -8010, NOT_READY, LEFT_OUT]

chips = st.integers(0, 7)
cards = st.integers(0, 3)


class NotingLibrary(PlayedLibrary):
    """A library that notes its last answer about each chip."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        #: {chip: its address, "" for none}
        self.told_ip: dict[int, str] = {}
        self.told_superpod: dict[int, SuperPodPlace] = {}
        #: {chip: codes}, and when they were told
        self.told_codes: dict[int, tuple[int, ...]] = {}
        self.told_s: dict[int, float] = {}
        #: {chip: the last codes beside which its health was told too}
        self.ready_codes: dict[int, tuple[int, ...]] = {}
        self._codes: dict[int, tuple[int, ...] | None] = {}

    def _id(self, card: int, device: int) -> int:
        chip = self.chips.get((card, device))
        return UNKNOWN if chip is None else chip.physical_id

    def address(self, card: int, device: int) -> str:
        chip = self._id(card, device)
        try:
            self.told_ip[chip] = super().address(card, device)
        except CallError as error:
            if error.code in ABSENT:
                self.told_ip[chip] = ""
            raise
        return self.told_ip[chip]

    def super_pod(self, card: int, device: int) -> SuperPodPlace:
        place = super().super_pod(card, device)
        self.told_superpod[self._id(card, device)] = place
        return place

    def codes(self, card: int, device: int) -> tuple[int, ...]:
        chip = self._id(card, device)
        self._codes[chip] = None
        self._codes[chip] = super().codes(card, device)
        return self._codes[chip] or ()

    def check_ready(self, card: int, device: int) -> None:
        chip = self._id(card, device)
        codes = self._codes[chip]
        try:
            super().check_ready(card, device)
        except CallError as error:
            if error.code == NOT_READY:
                codes = (*(codes or ()), DROPPED)
            if codes is not None:
                self.told_codes[chip], self.told_s[chip] = codes, self.now_s
                if error.code != LEFT_OUT:
                    self.ready_codes[chip] = codes
            raise
        if codes is not None:
            self.ready_codes[chip] = self.told_codes[chip] = codes
            self.told_s[chip] = self.now_s


class DriverStory(RuleBasedStateMachine):
    """A node, what its driver has told, and what the agent has published."""

    @initialize(is_known=st.booleans())
    def boot(self, is_known: bool) -> None:  # hypothesis passes it
        self.library = NotingLibrary()
        self.node = Node(
            chips=CHIPS,
            wait_s=WAIT_S,
            shows_files=True,
            library=self.library,
            known=known_of(CHIPS) if is_known else Node(chips=()).known,
        )
        self.is_known = is_known
        if is_known:
            self.library.told_ip = {chip.physical_id: chip.ip or "" for chip in CHIPS}
            self.library.told_superpod = dict.fromkeys(range(8), PODS[0])
        self.ledger = NodeLedger(known_of(CHIPS).products[0])
        self.pods = 0
        self.reading: Reading | str = ""
        self.published_ips: set[int] = set()
        #: when no chip could be read, the last time
        self.blind_s = 0.0

    # what the driver answers

    @rule(chip=chips, ip=st.sampled_from(["10.1.1.1", "10.2.2.2", None]))
    def address_is(self, chip: int, ip: str | None) -> None:
        self._change(chip, ip=ip)

    @rule(place=st.sampled_from(PODS))
    def superpod_is(self, place: SuperPodPlace) -> None:
        for chip in range(8):
            self._change(chip, superpod=place)

    def _change(self, chip: int, **facts: object) -> None:
        made = replace(self.node.chips[chip], **facts)  # type: ignore[arg-type]
        self.node.chips = tuple(
            made if each.physical_id == chip else each for each in self.node.chips
        )
        if (made.card, made.device) in self.library.chips:
            self.library.put(made)

    @rule(chip=chips, codes=st.sampled_from(CODES))
    def codes_are(self, chip: int, codes: tuple[int, ...]) -> None:
        self.library.codes_of[chip] = codes

    @rule(
        function=st.sampled_from(FUNCTIONS),
        chip=st.one_of(st.just(ANY), chips),
        error=st.sampled_from(ERRORS),
    )
    def fails(self, function: str, chip: int, error: int) -> None:
        self.library.fail(error, function, chip=chip)

    @rule(chip=st.one_of(st.just(ANY), chips), error=st.sampled_from(ERRORS))
    def codes_fail(self, chip: int, error: int) -> None:
        self.library.fail(error, "codes", chip=chip)

    @rule(function=st.sampled_from(FUNCTIONS))
    def recovers(self, function: str) -> None:
        errors = self.library.errors
        self.library.errors = {at: errors[at] for at in errors if at[0] != function}

    @rule(card=cards, is_in=st.booleans())
    def card_changes(self, card: int, is_in: bool) -> None:
        if is_in or len({chip.card for chip in self.library.chips.values()}) == 1:
            self.node.plug(card)
        else:
            self.node.pull(card)

    # what happens beside

    @rule(chip=chips)
    def pod_comes(self, chip: int) -> None:
        held = {
            chip for hold in self.ledger.ledger.holds.values() for chip in hold.chips
        }
        if isinstance(self.reading, str) or {chip, chip ^ 1} & held:
            return
        self.pods += 1
        name = f"train-{self.pods}"
        both = sorted({chip, chip ^ 1})
        self.ledger.update(replace(pod(name, both), phase="Running"))
        self.ledger.mounts_for(name, *both)

    @rule()
    def worker_restarts(self) -> None:
        self.node.start_worker()

    @rule()
    def agent_restarts(self) -> None:
        if not self.node.known.products:  # nothing was published, nothing is stored
            self.library.told_ip.clear()
            self.library.told_superpod.clear()
        self.node.start_agent()
        self.reading = ""

    @rule(steps=st.integers(1, 4))
    def seconds_pass(self, steps: int) -> None:
        self.time_passes(steps)

    @rule(steps=st.sampled_from([10, 33, 80]))
    def time_passes(self, steps: int) -> None:
        for _ in range(steps):
            self.library.now_s = self.node.now_s + STEP_S
            self.reading = self.node.pass_step()
            self.check()

    # the law

    def check(self) -> None:
        if isinstance(self.reading, str):
            return
        report = content.node_report(
            self.reading,
            self.node.health,
            taken=(),
            affinity=Affinity(sequence=0),
        )
        if report.product.key != ROW:  # begun with after the wait
            assert not self.is_known
            assert not self.library.told_superpod or self.reading.changed_row
        if self.reading.is_old:
            self.blind_s = self.library.now_s
        self._check_addresses(report)
        self._check_faults(self.reading)
        self._check_conditions(self.reading)
        self._check_pods(report)

    def _check_addresses(self, report: NodeReport) -> None:
        told = self.library.told_ip
        for chip in range(8):
            address = report.addresses.of(chip)
            if report.addresses.awaited >> chip & 1:
                assert chip not in self.published_ips
                continue
            assert address.ip == told.get(chip, "")
            if chip in told:
                self.published_ips.add(chip)
            place = self.library.told_superpod.get(chip)
            number = UNKNOWN if place is None else place.super_device_id
            assert address.super_device_id == number
        places = {
            (place.super_pod_id, place.server_index)
            for place in self.library.told_superpod.values()
        }
        of_node = report.addresses.super_pod_id, report.addresses.server_index
        assert of_node in (places or {(UNKNOWN, UNKNOWN)})
        assert (report.info.super_pod_id, report.info.server_index) == of_node

    def _check_faults(self, reading: Reading) -> None:
        for chip in reading.chips:
            found = {int(fault.code, 16) for fault in reading.faults_of(chip)}
            is_told_old = any(
                each.chip == chip and not each.is_partial for each in reading.unread
            )
            told = set(self.library.told_codes[chip])
            if not is_told_old:
                assert found == told
                assert self.library.told_s[chip] == self.library.now_s
            # a chip whose health alone is not told counts as unread: codes of before
            assert found in (told, set(self.library.ready_codes.get(chip, ())))

    def _check_conditions(self, reading: Reading) -> None:
        for chip, health in self.node.health.chips.items():
            told_s = self.library.told_s.get(chip)
            codes = self.library.told_codes.get(chip, ())
            if told_s is None:
                assert health.condition is Condition.UNHEALTHY
                continue
            # the time counts while other chips can be read
            since_s = max(told_s, self.blind_s)
            is_late = self.library.now_s - since_s > UNREAD_S + STEP_S
            if health.condition in {Condition.HEALTHY, Condition.NETWORK_UNHEALTHY}:
                assert not is_late or reading.is_old
                assert DROPPED not in codes or reading.is_old

    def _check_pods(self, report: NodeReport) -> None:
        before = {
            uid: each.annotations.get(annotations.CONFIGURATION, "")
            for uid, each in self.ledger.ledger.pods.items()
        }
        for patch in plan_patches(
            self.ledger.ledger, host_ip=HOST_IP, addresses=report.addresses
        ):
            known = self.ledger.ledger.pods[patch.uid]
            merged = {**known.annotations, **patch.annotations}
            self.ledger.update(replace(known, annotations=merged))
        for uid, each in self.ledger.ledger.pods.items():
            text = each.annotations.get(annotations.CONFIGURATION, "")
            if text == before[uid]:
                continue
            given = _ips(before[uid])
            for chip, ip in _ips(text).items():
                if given.get(chip, "-1") != "-1":
                    assert ip == given[chip]  # for as long as the pod runs
                else:
                    assert ip == (self.library.told_ip.get(chip) or "-1")

    @invariant()
    def holds_stay(self) -> None:
        if hasattr(self, "pods"):
            assert len(self.ledger.ledger.holds) == self.pods


def _ips(text: str) -> dict[int, str]:
    devices = json.loads(text or '{"devices":[]}')["devices"]
    return {int(device["device_id"]): device["device_ip"] for device in devices}


TestDriverStory = DriverStory.TestCase
TestDriverStory.settings = settings(max_examples=100, stateful_step_count=30)
