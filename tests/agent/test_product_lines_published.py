"""What is read, said and kept of a node with chips of two product lines."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent import wiring
from agent.claims import occupancy
from agent.claims.events import AllocateAsked
from agent.claims.refusals import render_bad_ids
from agent.claims.values import Hold, Ledger
from agent.devices.poller import Observation
from agent.devices.reading import Reading
from agent.devices.simulated import file
from agent.health.conditions import Health, ReadingTaken, step
from agent.health.findings import Findings, SeparatedNames
from agent.journal import writer
from agent.journal.file import Journal
from agent.journal.writer import JournalWriter
from agent.monitor.chips import ChipMonitor
from agent.monitor.driver import DriverMonitor
from agent.observe.problems import Subject
from agent.plugin import cdi
from agent.plugin.mounts import MountMethod, Mounts
from agent.report import content
from agent.report.content import NodeReport
from agent.settings import Settings
from agent.status import document as status_document
from agent.status.document import View
from scheduler_core.wire.deviceinfo import Affinity
from scheduler_core.wire.faults import UpgradeReason, parse_separated
from service.settings import load
from tests.agent.announcing import Announced
from tests.agent.conftest import Compare
from tests.agent.node import NODE, current, ids, pod
from tests.agent.report.test_content import as_text
from tests.agent.reporting import report_of

MACHINE = """
product: atlas-800-training
faults:
  - {chip: 3, code: "80E01801"}
  - {chip: 9, code: "80E18402"}
beside: [{product: atlas-310p, chips: [8, 9]}]
"""
READING = file.parse(MACHINE)
TRAINING, INFERENCE = READING.lines


def drawn(reading: Reading, **parts: Any) -> NodeReport:
    affinity = parts.pop("affinity", Affinity(sequence=1))
    findings = Findings(**parts)
    return report_of(reading, taken=affinity.held, affinity=affinity, findings=findings)


def both() -> NodeReport:
    hand = UpgradeReason(
        chip=8, code="", level="ManuallySeparateNPU", type="FaultAutofill", time_ms=9
    )
    return content.merge_lines(
        [
            drawn(
                TRAINING,
                affinity=Affinity(held=(0, 1), sequence=3),
                separated=SeparatedNames(text="", read="x", names=""),
            ),
            drawn(
                INFERENCE,
                affinity=Affinity(held=(8,), lost=(8,), sequence=4),
                separated=SeparatedNames(
                    text="Ascend310P-8", read="x", names="Ascend310P-8"
                ),
                upgrades=(hand,),
            ),
        ]
    )


def test_the_configmap_of_two_lines_byte_for_byte(compare: Compare) -> None:
    text = as_text(content.configmap_data(both(), update_time=1_700_000_000))
    compare("configmap-lines.txt", text)


def test_the_node_has_the_labels_of_its_first_line_and_names_all_chips() -> None:
    marks = content.node_marks(both())

    assert marks.labels == content.node_marks(both().lines[0]).labels
    named = json.loads(marks.annotations["baseDeviceInfos"])
    assert list(named) == [
        *("Ascend310P-8", "Ascend310P-9"),
        *(f"Ascend910-{chip}" for chip in range(8)),
    ]


def test_the_310_and_the_310p_tell_their_faults_under_one_key() -> None:
    machine = """
product: atlas-300i-duo-chip
faults: [{chip: 0, code: "80E01801"}, {chip: 17, code: "80E18402"}]
beside: [{product: atlas-300i-chip, chips: [16, 17, 18, 19]}]
"""
    lines = file.parse(machine).lines
    shown = content.merge_lines([drawn(line) for line in lines])

    data = content.configmap_data(shown, update_time=1)
    listed = json.loads(data["DeviceInfoCfg"])["DeviceInfo"]["DeviceList"]
    faults = json.loads(listed["huawei.com/Ascend310P-Fault"])
    assert [fault["npu_name"] for fault in faults] == ["Ascend310P-0", "Ascend310-17"]
    assert content.node_marks(shown).labels["infer-card-type"] == "card-300i-duo"


def test_names_of_separated_chips_stay_as_they_stand_while_they_are_right() -> None:
    read = "Ascend310P-8, Ascend910-3"
    right = SeparatedNames(text=read, read=read, names="Ascend910-3")
    also_right = SeparatedNames(text=read, read=read, names="Ascend310P-8")
    wrong = SeparatedNames(text="", read=read, names="")

    def text(*lines: SeparatedNames) -> str:
        rows = zip((TRAINING, INFERENCE), lines, strict=True)
        shown = [drawn(reading, separated=said) for reading, said in rows]
        return content.merge_lines(shown).separated.text

    assert text(right, also_right) == read
    assert text(right, wrong) == "Ascend910-3"
    assert text(wrong, also_right) == "Ascend310P-8"


class World(Announced):
    """The diagnoses of both lines, and what people are told."""

    def __init__(self) -> None:
        super().__init__()
        self.lines = [
            ChipMonitor(
                current(),
                reading=reading,
                recover_s=1.0,
                announcer=self.announcer,
                wall_ms=lambda: 10_000,
                other_products=[other.product],
            )
            for reading, other in ((TRAINING, INFERENCE), (INFERENCE, TRAINING))
        ]
        self.driver_monitor = DriverMonitor(
            self.lines,
            problems=self.problems,
            metrics=self.metrics,
            loop_s=lambda: 10.0,
        )

    def report(self, names: str) -> list[tuple[int, ...]]:
        """Let the ConfigMap name these; the chips that each line then leaves out."""
        for line in self.lines:
            line.apply_configmap({"ManuallySeparateNPU": names})
        return [
            tuple(sorted(parse_separated(each.names, line.product)))
            for line in self.lines
            for each in [line.findings.separated]
        ]


def test_each_line_takes_out_the_chips_of_its_own_that_are_named() -> None:
    world = World()
    assert world.report("") == [(), ()]

    assert world.report("Ascend910-3, Ascend310P-8") == [(3,), (8,)]
    assert world.report("Ascend310P-8") == [(), (8,)]


def test_a_name_of_no_line_is_told_once_and_changes_neither() -> None:
    world = World()
    world.report("")
    world.report("Ascend910-3,Ascend310P-7")

    told = [reason for reason, _ in world.events if "Sep" in reason]
    assert told == ["NpuSeparationUnreadable"]
    assert [line.findings.separated.names for line in world.lines] == ["", ""]


def test_the_chips_of_all_lines_are_counted_together() -> None:
    world = World()
    reading = replace(READING, read_s=10.0)
    world.driver_monitor.observe(Observation(reading=reading, took_s=0.1))

    assert world.metric("chips", condition="healthy") == 8
    assert world.metric("chips", condition="unhealthy") == 2
    assert world.metric("driver_read_duration_seconds_count") == 1


def test_a_rival_that_has_gone_from_one_line_is_not_gone_from_the_node() -> None:
    told = Announced()
    lines = [line.product.resource for line in READING.lines]
    for line in lines:
        told.problems.tell(Subject.RIVAL_PLUGIN, f"another plugin for {line}", of=line)

    found = []
    for line in lines:
        told.problems.tell(Subject.RIVAL_PLUGIN, "", of=line)
        found.append(told.metric("rival", kind="device-plugin"))

    assert [text for reason, text in told.events if reason == "NpuRivalGone"] == [
        f"nobody else serves {lines[0]} any more",
        "nobody else serves this node's kubelet any more",
    ]
    assert found == [1.0, 0.0]


def test_the_kubelet_is_told_of_no_ids_below_those_of_a_second_line() -> None:
    ledger = Ledger(product=INFERENCE.product, node=NODE)

    assert occupancy.list_devices(ledger) == (
        ("Ascend310P-8", True),
        ("Ascend310P-9", True),
    )
    assert occupancy.chip_of(INFERENCE.product, "Ascend310P-3") == -1
    assert "from Ascend310P-8 to Ascend310P-9, found" in render_bad_ids(
        ledger, (), ["x"]
    )


async def test_one_journal_keeps_the_holds_of_all_lines_and_those_of_others(
    tmp_path: Path,
) -> None:
    journal = Journal(tmp_path / "holds", boot_id="boot", node=NODE)
    book = JournalWriter(
        journal,
        observe_s=lambda _: None,
        on_outcome=lambda why: pytest.fail(why) if why else None,
    )
    lines = current(pod("train", [3])), current(pod("other", [4]))
    for line in lines:
        book.follow(line)
    gone = Hold(sequence=1, kubelet_ids=("Ascend310-7",), chips=(7,), slot="u", need=0)
    book.keep([gone])

    for line, chip in zip(lines, (3, 4), strict=True):
        line.apply(AllocateAsked(ids(chip), last_call=True))
        await book.write()

    found = journal.read()
    assert isinstance(found, tuple)
    assert [entry.chips for entry in found] == [(7,), (3,), (4,)]


@pytest.mark.parametrize("chip", [3, 9])
def test_a_hold_of_which_no_id_is_left_is_of_the_line_whose_chips_it_keeps(
    chip: int,
) -> None:
    left = Hold(
        sequence=1, kubelet_ids=(), chips=(), reserved=(chip,), slot="u", need=0
    )

    owners = [
        line.product.key
        for line in READING.lines
        if writer.is_of_line(left, line.product)
    ]
    assert owners == [TRAINING.product.key if chip == 3 else INFERENCE.product.key]


def test_a_person_reads_the_names_of_chips_where_numbers_are_not_enough() -> None:
    views = [
        View(
            ledger=Ledger(product=line.product, node=NODE),
            reading=line,
            health=step(Health(), ReadingTaken(reading=line), 0.0)[0],
            changes=(),
        )
        for line in READING.lines
    ]
    no_problems = Announced().problems.status()
    document = status_document.document(
        *views,
        node=NODE,
        version="1",
        mode="scheduled",
        waiting_for=None,
        problems=no_problems,
    )
    text = status_document.text(document)

    assert [chip["chip"] for chip in document["chips"]] == list(range(10))
    assert "atlas-800-training, atlas-310p, scheduled, agent 1\n" in text
    assert "\nAscend310P-9  unhealthy  -      SeparateNPU 80E18402" in text


@pytest.mark.parametrize("own", [0, 1])
def test_the_cdi_spec_has_the_chips_of_all_lines_whoever_writes_it(
    own: int, tmp_path: Path
) -> None:
    (tmp_path / "davinci_manager").touch()
    mounts = Mounts(
        MountMethod.CDI,
        last_reading=lambda: READING.lines[own],
        cdi_dir=tmp_path,
        dev=tmp_path,
        readings=lambda: READING.lines,
    )

    assert mounts.problem() is None
    spec = json.loads((tmp_path / cdi.FILE).read_text())
    assert [device["name"] for device in spec["devices"]] == [
        str(chip) for chip in range(10)
    ]


@pytest.mark.parametrize(
    ("told", "served"),
    [
        ("", ["atlas-800-training", "atlas-310p"]),
        ("atlas-310p", ["atlas-310p"]),
        ("atlas-800-training-half", ["atlas-800-training"]),
        ("atlas-300i-chip", ["atlas-800-training", "atlas-310p"]),
    ],
)
def test_a_product_restricts_the_agent_to_its_line(
    told: str, served: list[str]
) -> None:
    argv = ["--node-name", NODE, "--product", told]
    settings = load(Settings, argv, {})

    found = wiring.lines(settings, READING)
    assert [line.product.key for line in found] == served
