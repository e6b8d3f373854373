"""What pods are told of their chips' addresses: only what the driver has told (F2, F5).

Simulated time. Each course of one chip's address, with each restart in between.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

import pytest

from agent.claims.annotations import plan_patches
from agent.devices.dcmi.memory import Known
from agent.devices.reading import Reading
from agent.report import content
from scheduler_core.products.table import by_key
from scheduler_core.wire import annotations, inventory
from scheduler_core.wire.addresses import Addresses
from tests.agent.devices.dcmi.booting import STEP_S, Node
from tests.agent.devices.played_library import ATLAS_A2, server
from tests.agent.node import HOST_IP, NodeLedger, pod, running

pytestmark = pytest.mark.long

#: The chip of the pod.
CHIP = 1
WAIT_S = 150.0
#: Longer than the time between two reads of addresses; three of them are the wait.
PHASE_S = 64.0
OLD, NEW = "10.0.0.1", "10.0.0.99"
FAILS, NONE, PULLED = "fails", "none", "pulled"
COURSES = [
    course
    for course in product((OLD, NEW, FAILS, NONE, PULLED), repeat=3)
    if course[0] != PULLED and course[0] != NEW
]


class Site:
    """A node with two cards, and the configuration of a pod on the second."""

    def __init__(self, first: str, *, chosen: str = "") -> None:
        chips = server(
            2, name="910B3", ai_core_count=20, board_id=0x30, ip="10.0.0.{n}"
        )
        known = Known((by_key("atlas-a2-8"),))
        self.node = Node(
            chips=chips, wait_s=WAIT_S, known=known, product=chosen, now_s=0.0
        )
        self.ledger: NodeLedger = running(pod("train", [CHIP]))
        #: as last reported
        self.addresses = Addresses()
        self.tell(first)

    def tell(self, address: str) -> None:
        """Let the driver tell an address of the chip, or none, or fail."""
        library = self.node.library
        library.errors.clear()
        if address == PULLED:
            self.node.pull(CHIP)
            return
        self.node.plug(CHIP)
        chip = replace(self.node.chips[CHIP], ip=None if address == NONE else address)
        self.node.chips = (self.node.chips[0], chip)
        library.put(chip)
        if address == FAILS:
            library.fail(-8006, "address", chip=CHIP)

    def pass_s(self, duration_s: float) -> Iterator[str]:
        """Let seconds pass as the annotator does; yield each configuration."""
        until_s = self.node.now_s + duration_s
        while self.node.now_s < until_s:
            reading = self.node.pass_step()
            assert isinstance(reading, Reading), reading
            self.addresses = content.addresses(reading)
            self.write()
            yield self.configured

    def write(self) -> None:
        """Write what is to be written now, as the annotator does."""
        now = self.ledger.ledger
        for patch in plan_patches(now, host_ip=HOST_IP, addresses=self.addresses):
            known = self.ledger.ledger.pods[patch.uid]
            merged = {**known.annotations, **patch.annotations}
            self.ledger.update(replace(known, annotations=merged))

    @property
    def configured(self) -> str:
        """The chip's address in the configuration of its pod; "" without one."""
        written = self.ledger.ledger.pods["uid-train"].annotations
        text = written.get(annotations.CONFIGURATION)
        if text is None:
            return ""
        (device,) = json.loads(text)["devices"]
        return str(device["device_ip"])

    @property
    def shown(self) -> str | None:
        """The chip's address as the extender reads it; None: it waits for it."""
        line = by_key("atlas-a2-8")
        found = inventory.parse_addresses(
            inventory.render(range(8), line, self.addresses), line
        )
        return found[CHIP].ip if CHIP in found else None


def expected(course: Sequence[str], restart_at: int | None) -> list[str]:
    """The configuration after each phase: the first address, -1 without, or none."""
    told: str | None = None
    written, began = "", 0
    after = []
    for phase, address in enumerate(course):
        began = phase if phase == restart_at else began
        if address == NONE:
            told = "-1"
        elif address not in {FAILS, PULLED}:
            told = address
        has_waited = (phase + 1 - began) * PHASE_S >= WAIT_S
        if written in {"", "-1"}:  # else the pod was given an address
            written = told or ("-1" if has_waited else written)
        after.append(written)
    return after


@pytest.mark.parametrize("course", COURSES, ids=" ".join)
@pytest.mark.parametrize(
    ("what", "restart_at"), [("", None), ("worker", 2), ("agent", 1), ("agent", 2)]
)
def test_d28_a_configuration_keeps_the_first_address_that_was_told(
    course: tuple[str, ...], what: str, restart_at: int | None
) -> None:
    site = Site(course[0])
    found, last = [], NONE
    for phase, address in enumerate(course):
        site.tell(address)
        if phase == restart_at and what == "worker":
            site.node.start_worker()
        elif phase == restart_at:
            site.node.start_agent()
        written = list(site.pass_s(PHASE_S))
        found.append(written[-1])
        shown = site.shown
        if address not in {FAILS, PULLED}:
            last = address
        if shown is not None:
            assert shown == ("" if last == NONE else last)

    assert found == expected(course, restart_at if what == "agent" else None)


def test_of_a_product_without_that_network_no_address_is_waited_for() -> None:
    site = Site(NONE)

    assert next(site.pass_s(PHASE_S)) == "-1"
    assert site.shown == ""


@pytest.mark.parametrize("code", [-8005, -8006, -8010, -8012, -8020, -99996])
def test_an_address_that_is_learnt_late_is_written_then(code: int) -> None:
    site = Site(FAILS)
    site.node.library.fail(code, "address", chip=CHIP)
    course = list(site.pass_s(WAIT_S + PHASE_S))
    waits = course.index("-1")
    assert (set(course[:waits]), set(course[waits:])) == ({""}, {"-1"})
    assert (waits + 1) * STEP_S == WAIT_S + STEP_S
    site.tell(NEW)

    assert list(site.pass_s(PHASE_S))[-1] == NEW


def test_with_a_product_that_is_told_the_address_is_waited_for_too() -> None:
    site = Site(FAILS, chosen="atlas-a2-8")
    assert set(site.pass_s(WAIT_S - PHASE_S)) == {""}
    assert site.shown is None
    site.tell(OLD)

    assert list(site.pass_s(PHASE_S))[-1] == OLD


def test_of_a_chip_that_was_never_seen_no_address_is_made_up_before_the_wait() -> None:
    site = Site(PULLED)
    assert set(site.pass_s(WAIT_S - STEP_S)) == {""}
    assert site.shown is None

    assert list(site.pass_s(PHASE_S))[-1] == "-1"


def test_the_configuration_of_a_pod_waits_for_each_of_its_chips() -> None:
    node = Node(chips=ATLAS_A2, wait_s=WAIT_S)
    node.library.fail(-8006, "address", chip=3)
    node.pass_s(STEP_S)
    reading = node.read()
    assert isinstance(reading, Reading)
    addresses = content.addresses(reading)
    now = running(pod("has", [2, 3]), pod("has not", [4, 5]))
    patches = plan_patches(now.ledger, host_ip=HOST_IP, addresses=addresses)

    assert {
        patch.name: annotations.CONFIGURATION in patch.annotations for patch in patches
    } == {"has": False, "has not": True}
    assert addresses.awaited == 0b1000
