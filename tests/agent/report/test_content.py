"""What the cluster is told: ConfigMap and Node, byte for byte."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from agent.devices.reading import ChipDetails, Reading
from agent.devices.simulated import file
from agent.health.findings import Findings, SeparatedNames
from agent.report import content
from agent.report.content import NodeMarks, NodeReport
from kube.objects import FieldManager, ManagedMeta, ManagedNode
from scheduler_core.products import lookup
from scheduler_core.products.table import (
    ATLAS_800_TRAINING,
    PRODUCTS,
    Product,
    by_key,
)
from scheduler_core.wire import deviceinfo, inventory
from scheduler_core.wire.deviceinfo import Affinity, DeviceInfo, Fault
from scheduler_core.wire.faults import UpgradeReason
from tests.agent.conftest import Compare
from tests.agent.reporting import report_of

#: Chip 3 has a fault, chip 5 has vanished, chip 0 has a network fault.
TROUBLED = """
product: atlas-800-training
faults:
  - {chip: 3, code: "80E01801"}
  - {chip: 0, code: "81078603", level: PreSeparateNPU, network: true}
vanished: [5]
"""


def drawn(text: str, *before: str, **parts: Any) -> NodeReport:
    """The report of the last look, after these."""
    return report_of(*map(file.parse, (*before, text)), **parts)


GOOD = "product: atlas-800-training\n"


def test_a_good_machine_is_wholly_available() -> None:
    assert drawn(GOOD) == NodeReport(
        product=ATLAS_800_TRAINING,
        chips=(0, 1, 2, 3, 4, 5, 6, 7),
        chip_name="910A",
        ai_core_count=32,
        info=DeviceInfo(available=(0, 1, 2, 3, 4, 5, 6, 7), update_time=0),
        affinity=Affinity(sequence=0, products=("atlas-800-training", "a300t")),
    )


@pytest.mark.seed("000-07")
def test_taken_chips_are_not_available() -> None:
    assert drawn(GOOD, taken=(0, 1, 7)).info == DeviceInfo(
        available=(2, 3, 4, 5, 6), update_time=0
    )


@pytest.mark.seed("000-01")
def test_each_condition_has_its_list_and_each_fault_its_entry() -> None:
    assert drawn(TROUBLED, GOOD).info == DeviceInfo(
        available=(0, 1, 2, 4, 6, 7),
        unhealthy=(3, 5),
        network_unhealthy=(0,),
        faults=(
            Fault(chip=0, code="81078603", level="PreSeparateNPU", network=True),
            Fault(chip=3, code="80E01801", level="SeparateNPU"),
            Fault(chip=5, code="", level="SeparateNPU"),
        ),
        update_time=0,
    )


def test_a_chip_that_recovers_is_listed_as_such_and_not_available() -> None:
    assert drawn(GOOD, TROUBLED.replace("vanished: [5]", "")).info == DeviceInfo(
        available=(0, 1, 2, 4, 5, 6, 7),
        network_unhealthy=(0,),
        recovering=(3,),
        update_time=0,
    )


def test_what_is_written_is_what_the_extender_reads() -> None:
    affinity = Affinity(held=(1, 2), releasing=(4,), sequence=7, lost=(2,))
    shown = drawn(TROUBLED, GOOD, taken=(1, 2, 4), affinity=affinity)

    data = content.configmap_data(shown, update_time=1_700_000_000)

    info = deviceinfo.parse_device_info(data["DeviceInfoCfg"], ATLAS_800_TRAINING)
    assert (info.available, info.unhealthy, info.update_time) == (
        (0, 6, 7),
        (3, 5),
        1_700_000_000,
    )
    read = deviceinfo.parse_affinity(data["AscendAffinity"], ATLAS_800_TRAINING)
    assert read == replace(affinity, products=("atlas-800-training", "a300t"))


def as_text(data: Mapping[str, str]) -> str:
    """As `kubectl describe` shows the data of a ConfigMap."""
    parts = [f"{key}:\n----\n{data[key]}\n" for key in sorted(data)]
    return "\n".join(parts)


@pytest.mark.seed("000-07")
@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("configmap-good.txt", drawn(GOOD, taken=(0, 1))),
        (
            "configmap-troubled.txt",
            drawn(
                TROUBLED,
                GOOD,
                taken=(1, 2),
                affinity=Affinity(held=(1,), releasing=(2,), sequence=3),
            ),
        ),
    ],
)
def test_the_configmap_byte_for_byte(
    name: str, shown: NodeReport, compare: Compare
) -> None:
    text = as_text(content.configmap_data(shown, update_time=1_700_000_000))
    compare(name, text)


@pytest.mark.seed("000-07")
def test_the_list_has_the_format_of_the_seed() -> None:
    data = content.configmap_data(drawn(GOOD, taken=(0,)), update_time=1)

    listed = json.loads(data["DeviceInfoCfg"])["DeviceInfo"]["DeviceList"]
    assert listed["huawei.com/Ascend910"] == (
        "Ascend910-1,Ascend910-2,Ascend910-3,Ascend910-4,"
        "Ascend910-5,Ascend910-6,Ascend910-7"
    )


MARKS = content.node_marks(drawn(GOOD))


def test_the_marks_of_a_node() -> None:
    base = inventory.render(range(8), ATLAS_800_TRAINING)

    assert content.node_marks(drawn(GOOD)) == NodeMarks(
        labels={
            "accelerator": "huawei-Ascend910",
            "node.kubernetes.io/npu.chip.name": "910A",
        },
        annotations={"baseDeviceInfos": base},
        defaults={"servertype": "Ascend910-32"},
        accelerator_type="module",
    )


def test_a_vanished_chip_stays_in_the_inventory() -> None:
    vanished = content.node_marks(drawn("product: atlas-800-training", TROUBLED, GOOD))

    assert vanished.annotations == MARKS.annotations


TYPE = "accelerator-type"


def node(
    labels: dict[str, str], annotations: dict[str, str], *managers: str
) -> ManagedNode:
    """A Node whose labels these programs have set."""
    fields: Any = {"f:metadata": {"f:labels": {f"f:{key}": {} for key in labels}}}
    meta = ManagedMeta(
        name="n1",
        labels=labels,
        annotations=annotations,
        managed_fields=[FieldManager(manager=name, fields=fields) for name in managers],
    )
    return ManagedNode(metadata=meta)


def test_a_new_node_lacks_all_marks() -> None:
    assert content.node_patch(node({}, {}), MARKS) == (
        {**MARKS.labels, **MARKS.defaults},
        MARKS.annotations,
    )


def test_a_node_with_all_marks_lacks_nothing() -> None:
    complete = node({**MARKS.labels, **MARKS.defaults}, dict(MARKS.annotations))

    assert content.node_patch(complete, MARKS) == ({}, {})


def test_only_what_differs_is_set_and_a_servertype_is_left_alone() -> None:
    labels = {"accelerator": "x", "servertype": "soc", "mine": "1"}
    labels["node.kubernetes.io/npu.chip.name"] = "910A"

    assert content.node_patch(node(labels, dict(MARKS.annotations)), MARKS) == (
        {"accelerator": "huawei-Ascend910"},
        {},
    )


@pytest.mark.parametrize(
    ("present", "managers", "wanted", "written"),
    [
        (None, (), "module", {TYPE: "module"}),
        (None, (), "", {}),
        ("half", ("me",), "module", {TYPE: "module"}),
        ("half", ("me",), "half", {}),
        ("half", ("me",), "", {TYPE: None}),
        ("half", ("kubectl-label",), "module", {}),
        ("half", ("kubectl-label",), "", {}),
        ("half", ("me", "kubectl-apply"), "module", {}),
        ("", ("kubectl-label",), "module", {}),
        # a server that keeps no managers of fields
        ("half", (), "module", {}),
    ],
)
def test_an_accelerator_type_is_changed_only_by_the_agent_that_set_it(
    present: str | None,
    managers: tuple[str, ...],
    wanted: str,
    written: dict[str, str | None],
) -> None:
    shown = node({} if present is None else {TYPE: present}, {}, *managers)
    marks = replace(MARKS, accelerator_type=wanted)

    assert content.own_labels_patch(shown, marks, manager="me") == written


@pytest.mark.parametrize("row", PRODUCTS, ids=lambda row: row.key)
def test_the_accelerator_type_of_a_row_means_that_row(row: Product) -> None:
    text = lookup.accelerator_type_of(row)

    if text:
        labels = {TYPE: text}
        assert lookup.find_node_row(row.resource, labels) is row


DETAILS = tuple(
    ChipDetails(
        chip=chip,
        logic_id=chip,
        ip=f"192.168.20.{chip}",
        memory_mb=65536,
        super_device_id=chip + 100,
    )
    for chip in range(16)
)
A3 = Reading(
    product=by_key("atlas-a3-16-superpod"),
    chip_name="Ascend910_9391",
    ai_core_count=24,
    chips=tuple(range(16)),
    details=DETAILS,
    super_pod_id=3,
    server_index=7,
    driver_version="25.2.0",
)


def of_a3(reading: Reading = A3) -> NodeReport:
    findings = Findings(
        separated=SeparatedNames(text="Ascend910-15"),
        upgrades=(
            UpgradeReason(
                chip=15,
                code="80E01801",
                level="ManuallySeparateNPU",
                type="FaultFrequency",
                time_ms=9,
            ),
        ),
    )
    return report_of(reading, findings=findings)


@pytest.mark.parametrize("name", ["configmap-a3.txt", "configmap-separated.txt"])
def test_the_keys_of_faults_byte_for_byte(name: str, compare: Compare) -> None:
    shown = of_a3()
    if name == "configmap-separated.txt":  # a server without switches of its own
        shown = replace(drawn(GOOD), separated=SeparatedNames(text="Ascend910-3"))
    text = as_text(content.configmap_data(shown, update_time=1_700_000_000))
    compare(name, text)


def test_the_marks_of_a_server_of_a_superpod(compare: Compare) -> None:
    marks = content.node_marks(of_a3())
    text = as_text({**marks.labels, **marks.defaults, **marks.annotations})
    compare("node-a3.txt", text)


@pytest.mark.parametrize(
    ("product", "chip_name", "servertype"),
    [
        ("atlas-800-training", "910A", "Ascend910-20"),
        ("atlas-a2-8", "910B3", "Ascend910B-20"),
        ("atlas-a3-16", "9391", "Ascend910A3-20"),
        ("atlas-310p", "310P3", "Ascend310P-20"),
    ],
)
def test_what_a_server_is_called(product: str, chip_name: str, servertype: str) -> None:
    reading = Reading(
        product=by_key(product), chip_name=chip_name, ai_core_count=20, chips=(0,)
    )

    assert content.node_marks(of_a3(reading)).defaults == {"servertype": servertype}


def test_what_cannot_be_a_label_is_left_out() -> None:
    marks = content.node_marks(of_a3(replace(A3, driver_version="25.2 (beta)")))

    assert "huawei.com/driver.version" not in marks.labels


WRONG = (
    "label accelerator-type: expected module-a3-16, as the chips are served as "
    "atlas-a3-16, found 'module-910b-8'. Correct or remove it: the agent sets it where "
    "it is missing"
)


@pytest.mark.parametrize(
    ("key", "label", "manager", "problem"),
    [
        ("atlas-a3-16", "module-910b-8", "kubectl-label", WRONG),
        # what the label says is right, or may be
        ("atlas-a3-16", "module-a3-16", "kubectl-label", ""),
        ("atlas-a3-16-superpod", "module-a3-16", "kubectl-label", ""),
        ("atlas-800-training", "card", "kubectl-label", ""),
        ("a300t", "card-of-tomorrow", "kubectl-label", ""),
        ("atlas-300i-a2", "card-910b-infer", "kubectl-label", ""),
        # nobody has set it, or the agent itself, which corrects it
        ("atlas-a3-16", "", "kubectl-label", ""),
        ("atlas-a3-16", "module-910b-8", "me", ""),
        # the label says nothing of such chips
        ("atlas-310p", "module", "kubectl-label", ""),
    ],
)
def test_d1_a_label_that_another_set_and_the_chips_contradict_is_a_problem(
    key: str, label: str, manager: str, problem: str
) -> None:
    shown, report = node({TYPE: label}, {}, manager), drawn(f"product: {key}")

    assert content.label_problem(shown, report, manager="me") == problem


CARD = "infer-card-type"
DUO = "card-300i-duo"


@pytest.mark.parametrize(
    ("key", "label", "manager", "is_told", "written"),
    [
        # the label of other cards: another's stays and is told, the agent's own goes
        ("atlas-310p", DUO, "kubectl-label", True, {}),
        ("atlas-310p", DUO, "me", False, {CARD: None}),
        ("atlas-310p", "of-tomorrow", "kubectl-label", True, {}),
        ("atlas-300i-chip", DUO, "kubectl-label", True, {}),
        ("atlas-310p", "", "kubectl-label", False, {}),
        # where the cards are Duo cards, the agent sets it over whatever stands there
        ("atlas-300i-duo-chip", DUO, "kubectl-label", False, {}),
        ("atlas-300i-duo-chip", "of-tomorrow", "kubectl-label", False, {}),
        ("atlas-300i-duo-distributed", DUO, "kubectl-label", False, {}),
    ],
)
def test_d1_a_label_of_cards_that_the_chips_contradict_is_a_problem_too(
    key: str, label: str, manager: str, is_told: bool, written: dict[str, str | None]
) -> None:
    shown, report = node({CARD: label}, {}, manager), drawn(f"product: {key}")
    marks = content.node_marks(report)

    problem = content.label_problem(shown, report, manager="me")

    assert problem == is_told * (
        f"label {CARD}: expected none, as the chips are served as {key}, found "
        f"{label!r}. Correct or remove it: the agent sets it where it is missing"
    )
    assert content.own_labels_patch(shown, marks, manager="me") == written
    corrected = {CARD: DUO} if CARD in marks.labels and label != DUO else {}
    labels, _ = content.node_patch(shown, marks)
    assert {k: v for k, v in labels.items() if k == CARD} == corrected


def test_d1_two_labels_that_the_chips_contradict_are_told_together() -> None:
    shown = node({TYPE: "module-910b-8", CARD: DUO}, {}, "kubectl-label")

    problem = content.label_problem(shown, drawn("product: atlas-a3-16"), manager="me")

    assert problem.split("; ") == [
        WRONG,
        WRONG.replace(TYPE, CARD)
        .replace("expected module-a3-16", "expected none")
        .replace("module-910b-8", DUO),
    ]


def test_d1_the_row_that_a_person_has_chosen_leaves_nothing_open_for_the_label() -> (
    None
):
    shown = node({TYPE: "card"}, {}, "kubectl-label")
    reading = file.parse("product: atlas-800-training")

    chosen = report_of(reading, is_row_chosen=True)

    assert "found 'card'" in content.label_problem(shown, chosen, manager="me")


def test_d1_a_label_of_either_line_of_a_node_is_right() -> None:
    lines = content.merge_lines(
        [drawn("product: atlas-310p"), drawn("product: atlas-a2-8")]
    )
    found = [
        bool(content.label_problem(node({TYPE: text}, {}, "x"), lines, manager="me"))
        for text in ("module-910b-8", "half")
    ]

    assert found == [False, True]
