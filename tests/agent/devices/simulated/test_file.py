"""The file of a simulated machine: what it can say, and what is refused."""

from pathlib import Path

import pytest

from agent.devices.reading import ChipFault, Level, Process, Reading, VirtualDevice
from agent.devices.simulated import file
from scheduler_core.documents.reader import DocumentError
from scheduler_core.products.table import ATLAS_800_TRAINING, PRODUCTS

KEYS = ", ".join(row.key for row in PRODUCTS)


FIELDS = "product, faults, processes, vanished, virtual, stand_in, numa, beside"


def flaws_of(text: str) -> list[str]:
    with pytest.raises(DocumentError) as caught:
        file.parse(text)
    return list(caught.value.problems)


def test_a_product_alone_is_a_machine_without_faults() -> None:
    reading = file.parse("product: atlas-800-training\n")

    assert reading == Reading(
        product=ATLAS_800_TRAINING,
        chip_name="910A",
        ai_core_count=32,
        chips=(0, 1, 2, 3, 4, 5, 6, 7),
    )


def test_everything_that_a_file_can_say() -> None:
    reading = file.parse(
        """
        product: atlas-800-training
        faults:
          - {chip: 3, code: "80e01801"}
          - {chip: 0, code: "81078603", level: PreSeparateNPU, network: true}
          - {chip: 3, code: "020001002", level: NotHandleFault, severity: 0}
        virtual:
          - {chip: 7, number: 101, kind: 2c}
          - {chip: 7, number: 100, kind: 4c.3cpu}
        processes:
          - {chip: 1, pid: 12}
          - {chip: 1, pid: 11}
        vanished: [5]
        stand_in: /dev/null
        numa: [0, 0, 0, 0, 1, 1, 1, 1]
        """
    )

    assert reading == Reading(
        product=ATLAS_800_TRAINING,
        chip_name="910A",
        ai_core_count=32,
        chips=(0, 1, 2, 3, 4, 6, 7),
        numa=(0, 0, 0, 0, 1, 1, 1, 1),
        faults=(
            ChipFault(chip=0, code="81078603", level=Level.PRE_SEPARATE, network=True),
            ChipFault(chip=3, code="80E01801"),
            ChipFault(chip=3, code="020001002", level=Level.NOT_HANDLED, severity=0),
        ),
        virtual=(
            VirtualDevice(chip=7, number=100, kind="4c.3cpu"),
            VirtualDevice(chip=7, number=101, kind="2c"),
        ),
        processes=(Process(chip=1, pid=11), Process(chip=1, pid=12)),
        stand_in="/dev/null",
    )


@pytest.mark.parametrize("value", ["/etc/passwd", "/dev/", "/dev/../etc", "7"])
def test_only_a_device_can_stand_in_for_a_chip(value: str) -> None:
    text = f"product: atlas-800-training\nstand_in: {value}\n"
    shown = value if value == "7" else repr(value)

    assert flaws_of(text) == [
        f"stand_in: expected a device like /dev/null, found {shown}"
    ]


def test_numa_nodes_are_said_for_each_chip_or_for_none() -> None:
    text = "product: atlas-800-training\nnuma: [0, 0, -1, 'x']\n"

    assert flaws_of(text) == [
        "numa[2]: expected a NUMA node from 0 to 1023, found -1",
        "numa[3]: expected a NUMA node from 0 to 1023, found 'x'",
        "numa: expected a NUMA node for each of 8 chips, found 2 of them",
    ]


def test_the_file_that_ships_as_an_example_has_faults_and_no_flaw() -> None:
    text = (Path(__file__).parents[4] / "docs" / "examples" / "broken.yaml").read_text()

    assert [fault.chip for fault in file.parse(text).faults] == [0, 3]


def test_empty_lists_may_be_left_blank() -> None:
    text = "product: atlas-800-training\nfaults:\nprocesses: []\n"

    assert file.parse(text).faults == ()


@pytest.mark.parametrize(
    ("text", "flaw"),
    [
        ("", "document: expected an object, found nothing"),
        ("  \n", "document: expected an object, found nothing"),
        ("# only a comment", "document: expected an object, found nothing"),
        ("- 1", "document: expected an object, found [1]"),
        (
            "product: [",
            (
                "line 1, column 11: expected YAML, found expected the node content, "
                "but found '<stream end>'"
            ),
        ),
        (
            "product: a\nproduct: b",
            "line 2, column 1: expected YAML, found the key 'product' twice",
        ),
        ("product: x", f"product: expected one of {KEYS}, found 'x'"),
        ("faults: []", f"product: expected one of {KEYS}, found nothing"),
    ],
)
def test_what_is_no_machine_is_refused(text: str, flaw: str) -> None:
    assert flaw in flaws_of(text)


@pytest.mark.parametrize(
    ("line", "flaw"),
    [
        ("fault: []", "fault: no such key, did you mean 'faults'?"),
        ("7: []", f"7: no such key, expected one of {FIELDS}"),
        ("faults: 3", "faults: expected a list, found 3"),
        ("faults: [x]", "faults[0]: expected an object, found 'x'"),
        (
            'faults: [{chip: 0, code: "80E01801"}, {chip: 0, code: "80e01801"}]',
            "faults[1]: expected each chip and code once, found (0, '80E01801')",
        ),
        (
            "processes: [{chip: 0, pid: 0}]",
            "processes[0].pid: expected a process id of at least 1, found 0",
        ),
        (
            "processes: [{chip: 0, pid: 1}, {chip: 0, pid: 1}]",
            "processes[1]: expected each chip and pid once, found (0, 1)",
        ),
        ("vanished: [9]", "vanished[0]: expected a chip from 0 to 7, found 9"),
        (
            "virtual: [{chip: 0, number: 99, kind: 4c}]",
            "virtual[0].number: expected a whole number from 100 to 1123, found 99",
        ),
        (
            "virtual: [{chip: 0, number: 100, kind: vir04}]",
            "virtual[0].kind: expected a kind like 4c or 4c.3cpu, found 'vir04'",
        ),
        (
            (
                "virtual: [{chip: 0, number: 100, kind: 4c}, "
                "{chip: 1, number: 100, kind: 4c}]"
            ),
            "virtual[1]: expected each number once, found 100",
        ),
        ("vanished: [1, 1]", "vanished[1]: expected each chip once, found 1"),
    ],
)
def test_what_is_not_understood_is_refused_with_its_place(line: str, flaw: str) -> None:
    assert flaws_of(f"product: atlas-800-training\n{line}\n") == [flaw]


CODE = 'code: "80E01801"'


@pytest.mark.parametrize(
    ("fault", "flaw"),
    [
        (f"chip: 8, {CODE}", "chip: expected a chip from 0 to 7, found 8"),
        (f"chip: -1, {CODE}", "chip: expected a chip from 0 to 7, found -1"),
        (f"chip: true, {CODE}", "chip: expected a chip from 0 to 7, found True"),
        (CODE, "chip: expected a chip from 0 to 7, found nothing"),
        (
            "chip: 0, code: 81078603",
            'code: expected a fault code in quotes, like "80E01801", found 81078603',
        ),
        (
            f"chip: 0, {CODE}, level: Bad",
            (
                "level: expected one of NotHandleFault, SubHealthFault, "
                "RestartRequest, RestartBusiness, FreeRestartNPU, RestartNPU, "
                "PreSeparateNPU, SeparateNPU, ManuallySeparateNPU, found 'Bad'"
            ),
        ),
        (
            f"chip: 0, {CODE}, severity: 4",
            "severity: expected a severity from 0 to 3, found 4",
        ),
        (f"chip: 0, {CODE}, network: 1", "network: expected true or false, found 1"),
        (
            f"chip: 0, {CODE}, colour: red",
            "colour: no such key, expected one of chip, code, level, severity, network",
        ),
    ],
)
def test_a_fault_that_is_not_understood_is_refused(fault: str, flaw: str) -> None:
    text = f"product: atlas-800-training\nfaults: [{{{fault}}}]\n"

    assert flaws_of(text) == [f"faults[0].{flaw}"]


def test_all_flaws_come_at_once_also_without_a_product() -> None:
    assert flaws_of('faults: [{chip: 1, code: ""}]\ncolour: red\n') == [
        f"colour: no such key, expected one of {FIELDS}",
        f"product: expected one of {KEYS}, found nothing",
        "faults[0].code: expected a fault code in quotes, like \"80E01801\", found ''",
    ]


def test_a_long_wrong_value_is_cut() -> None:
    (flaw,) = flaws_of(f"product: {'x' * 1000}\n")

    assert len(flaw) < 160 + len(KEYS)


def test_a_short_text_that_stands_for_a_huge_value_is_refused_at_once() -> None:
    nine = "[" + ",".join(["*k{0}"] * 9) + "]"
    lines = [f"  k{n}: &k{n} {nine.format(n - 1)}" for n in range(1, 30)]
    text = "\n".join(
        ["product: atlas-800-training", "faults:", "  k0: &k0 [x]", *lines]
    )

    with pytest.raises(DocumentError, match="faults: expected a list"):
        file.parse(text)


LINES = """
product: atlas-800-training
faults: [{chip: 9, code: "80E01801"}, {chip: 3, code: "80E18005"}]
processes: [{chip: 8, pid: 4711}]
vanished: [2]
virtual: [{chip: 8, number: 100, kind: 4c}]
numa: [0, 0, 0, 0, 1, 1, 1, 1, 2, 3]
beside: [{product: atlas-310p, chips: [8, 9]}]
"""


def test_further_product_lines_have_ids_of_their_own() -> None:
    first, beside = file.parse(LINES).lines
    row = beside.product

    assert first == Reading(
        product=ATLAS_800_TRAINING,
        chip_name="910A",
        ai_core_count=32,
        chips=(0, 1, 3, 4, 5, 6, 7),
        numa=(0, 0, 0, 0, 1, 1, 1, 1),
        faults=(ChipFault(chip=3, code="80E18005"),),
    )
    assert beside == Reading(
        product=row,
        chips=(8, 9),
        numa=(0, 0, 0, 0, 1, 1, 1, 1, 2, 3),
        faults=(ChipFault(chip=9, code="80E01801"),),
        processes=(Process(chip=8, pid=4711),),
        virtual=(VirtualDevice(chip=8, number=100, kind="4c"),),
    )
    assert (row.key, row.resource, row.all_chips, row.counts) == (
        "atlas-310p",
        "huawei.com/Ascend310P",
        0b11 << 8,
        tuple(range(1, 11)),
    )


@pytest.mark.parametrize(
    ("line", "flaw"),
    [
        (
            "beside: [{product: atlas-310p, chips: [7, 8]}]",
            "beside[0].chips: expected each chip of the machine once, found 7",
        ),
        (
            "beside: [{product: mesh-16, chips: [8]}]",
            "beside[0]: expected each resource once, found 'huawei.com/Ascend910'",
        ),
        (
            "beside: [{product: atlas-310p}]",
            "beside[0].chips: expected the ids of its chips, found nothing",
        ),
        (
            "beside: [{product: atlas-300i-duo-chip, chips: [16]}]",
            (
                "beside[0].chips: expected chips 0 to 15 of a "
                "server with 300I Duo cards, by chip, found chip 16"
            ),
        ),
        (
            "beside: [{product: atlas-310p, chips: [8]}]\nvanished: [9]",
            "vanished[0]: expected a chip from 0 to 8, found 9",
        ),
        (
            "beside: [{product: atlas-310p, chips: [10]}]\nvanished: [8]",
            (
                "vanished[0]: expected one of the chips 0, 1, 2, 3, 4, 5, 6, 7, 10, "
                "found 8"
            ),
        ),
    ],
)
def test_a_further_product_line_that_cannot_be_is_refused(line: str, flaw: str) -> None:
    assert flaws_of(f"product: atlas-800-training\n{line}\n") == [flaw]
