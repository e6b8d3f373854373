"""The commands on files, as a person and as a program read them."""

import json

import pytest

from scheduler_core.__main__ import main
from scheduler_core.node.decision import Rejection
from scheduler_core.node.reasons import Reason
from scheduler_core.parts import templates
from scheduler_core.preemption.relaxations import Advice, ConfirmPod
from scheduler_core.products import table
from scheduler_core.snapshot import answers
from scheduler_core.snapshot.values import (
    Snapshot,
    SnapshotNode,
    SnapshotPod,
    SnapshotSwitches,
)
from tests.machines import EIGHT
from tests.scheduler_core.files import Files
from tests.scheduler_core.leaf_parts import leaf_of
from tests.scheduler_core.snapshot.documents import node

A3 = table.by_key("atlas-a3-8-superpod")
CARDS = table.by_key("atlas-310p")


SOME = Snapshot(
    nodes=(
        node("node-1"),
        node("node-2", unhealthy=(7,)),
        node("node-3", held=EIGHT),
    ),
    pods=(
        SnapshotPod(name="default/a", node="node-1", chips=(0,)),
        SnapshotPod(name="default/b", node="node-2", chips=(0, 1, 2, 3)),
    ),
)


def test_one_node_is_explained_step_by_step(files: Files) -> None:
    assert files.say("explain", SOME, "node-2", chips=4) == (
        1,
        """\
node-2 cannot serve
  ok node    Atlas 800 training server
  ok count   a pod may have 1, 2, 4 or 8
  ok health  7 of 8 chips, not 7
  NO free    4, 5, 6: without 4 free chips
  ok groups  by HCCS ring: none | 4, 5, 6
""",
    )


def test_a_node_of_two_lines_is_explained_by_the_one_that_is_asked_for(
    files: Files,
) -> None:
    cards = node("node-1", product=CARDS, chips=(8, 9))
    both = Snapshot(nodes=(node("node-1"), cards))

    second = files.say("explain", both, "node-1", resource=CARDS.resource, chips=2)
    neither = files.say(
        "explain", both, "node-1", resource="huawei.com/Ascend310", chips=1
    )

    assert second[0] == 0
    assert "8, 9" in second[1]
    assert neither == (
        1,
        """\
node-1 cannot serve
  NO node  server with 310P chips, Atlas 800 training server; the job wants \
server with 300I cards, by chip
""",
    )


def test_an_explanation_is_said_in_json(files: Files) -> None:
    code, text = files.say("explain", SOME, "node-1", "--json", chips=8, pods=1)

    document = json.loads(text)
    steps = {step["about"]: step for step in document.pop("steps")}
    assert (code, document) == (1, {"node": "node-1", "fits": False})
    assert steps["free"] == {
        "about": "free",
        "holds": False,
        "said": "1, 2, 3, 4, 5, 6, 7: without 8 free chips",
    }


def test_a_node_that_can_serve_makes_the_exit_code_0(files: Files) -> None:
    code, text = files.say("explain", SOME, "node-1", chips=4)

    assert (code, text.splitlines()[0]) == (0, "node-1 can serve")


def test_pods_of_a_job_are_said_line_by_line(files: Files) -> None:
    two = Snapshot(nodes=(node("a"), node("b")))

    code, text = files.say("place", two, chips=8, pods=2)

    assert code == 0
    assert text.splitlines() == [
        f"pod-{rank}: {name}: chips 0, 1, 2, 3, 4, 5, 6, 7; 2 whole HCCS rings, on a "
        "node with all 8 chips healthy"
        for rank, name in enumerate("ab")
    ]


def test_a_job_under_a_leaf_and_one_in_a_superpod_say_so_in_json(files: Files) -> None:
    switches = SnapshotSwitches(leaves=(leaf_of("x", "a"),))
    under = Snapshot(nodes=(node("a"),), switches=switches)
    joined = Snapshot(
        nodes=tuple(node(name, product=A3, superpod=3) for name in "ab"),
        superpod_reserve=0,
    )

    selector = {"accelerator-type": "module-a3-8-super-pod"}

    said = [
        files.say("place", *args, "--json", chips=8, **more)
        for args, more in (
            ((under,), {"labels": {"tor-affinity": "normal-schema"}}),
            ((joined,), {"pods": 2, "node_selector": selector}),
        )
    ]

    first, second = (json.loads(text)["pods"] for _, text in said)
    assert [{**place, "reason": ""} for place in (*first, *second)] == [
        {
            "pod": "pod-0",
            "rank": 0,
            "node": "a",
            "chips": list(EIGHT),
            "reason": "",
            "leaf": "x",
            "leaf_use": "idle",
            "leaf_healthy": True,
        },
        *(
            {
                "pod": f"pod-{rank}",
                "rank": rank,
                "node": name,
                "chips": list(EIGHT),
                "reason": "",
                "superpod": 3,
                "superpod_rank": 0,
            }
            for rank, name in enumerate("ab")
        ),
    ]


def test_a_job_that_is_wrong_says_why_in_text_and_json(files: Files) -> None:
    wrong = "up to 8 chips must be one pod, found 2 pods"

    said = files.say("place", SOME, chips=4, pods=2)
    code, text = files.say("place", SOME, "--json", chips=4, pods=2)

    assert said == (1, f"no place: {wrong}\n")
    assert (code, json.loads(text)) == (1, {"job_reason": wrong, "reasons": []})


def test_who_would_have_to_go_is_said_of_a_pod_that_matters_more(files: Files) -> None:
    code, text = files.say("place", SOME, chips=8, priority=1)
    _, document = files.say("place", SOME, "--json", chips=8, priority=1)

    assert (code, text.splitlines()[1:]) == (
        1,
        [
            "it would fit if chip 0 of node-1 was free",
            "by eviction: node-1: chips 0, 1, 2, 3, 4, 5, 6, 7 without default/a",
        ],
    )
    assert json.loads(document)["eviction"] == {
        "victims": ["default/a"],
        "violations": 0,
        "node": "node-1",
        "chips": list(EIGHT),
        "reason": "2 whole HCCS rings, on a node with all 8 chips healthy",
    }


@pytest.mark.parametrize(
    ("given", "asked", "part"),
    [
        (
            node("a", barred=Reason.AGENT_SILENT),
            {"chips": 8},
            {"do": "mend", "node": "a", "bar": "agent-silent"},
        ),
        (
            node("a", unhealthy=(1,)),
            {"chips": 8},
            {"do": "heal", "node": "a", "chip": 1},
        ),
        (
            node("a", network_unhealthy=(2,)),
            {"chips": 8, "pods": 2},
            {"do": "heal-network", "node": "a", "chip": 2},
        ),
        (
            node("a", product=A3),
            {"chips": 3},
            {"do": "add", "node": "new-1", "product": "a300t"},
        ),
    ],
)
def test_each_part_of_an_advice_can_be_read_by_a_program(
    files: Files,
    given: SnapshotNode,
    asked: dict[str, object],
    part: dict[str, object],
) -> None:
    cluster = Snapshot(nodes=(given,))

    _, text = files.say("place", cluster, "--json", **asked)

    assert part in json.loads(text)["advice"]["parts"]


def test_a_pod_to_be_waited_for_is_a_part_like_others() -> None:
    advice = Advice(parts=(ConfirmPod(node="a"),))

    found = answers.render_answer(Rejection(reasons=()), advice)

    assert found["advice"] == {
        "text": "it would fit if the pod that waits on a had its chips",
        "parts": [{"do": "settle", "node": "a"}],
    }


def test_the_products_are_listed_by_the_keys_that_files_use(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = main(["products"])

    head, *lines = capsys.readouterr().out.splitlines()
    assert code == 0
    assert head.split(maxsplit=3)[:3] == ["KEY", "RESOURCE", "CHIPS"]
    assert [line.split()[0] for line in lines] == [p.key for p in table.PRODUCTS]
    assert lines[0].split() == [
        *("atlas-800-training", "huawei.com/Ascend910", "8"),
        *("4", "(HCCS", "ring)", "1,", "2,", "4", "or", "8"),
    ]


def test_the_templates_of_a_chip_are_listed_under_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["templates", "910B3"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert [" ".join(line.split()) for line in lines] == [
        "CHIP TEMPLATE DEVICE CORES MEMORY AI CPUS VPC JPEGD JPEGE VENC VDEC",
        "910B3 whole - 20 64 7 9 24 4 0 2",
        "vir05_1c_16g 5c.1cpu.16g 5 16 1 2 6 1 0 0",
        "vir10_3c_32g 10c.3cpu.32g 10 32 3 4 12 2 0 1",
    ]


def test_all_chips_that_can_be_cut_are_described_in_json(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["templates", "--json"]) == 0

    chips = json.loads(capsys.readouterr().out)["chips"]
    assert [chip["key"] for chip in chips] == [chip.key for chip in templates.CHIPS]
    assert [t["name"] for t in chips[2]["templates"] if not t["may_be_asked"]] == [
        "vir03_1c_8g"
    ]


def test_an_unknown_chip_is_an_error_of_the_arguments(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["templates", "910A"])

    assert caught.value.code == 2
    assert "expected one of 310P, 310P-48, 910B1" in capsys.readouterr().err


def test_every_product_is_described_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["products", "--json"]) == 0

    rows = json.loads(capsys.readouterr().out)["products"]
    half = rows[1]
    assert [row["key"] for row in rows] == [p.key for p in table.PRODUCTS]
    assert half == {
        "key": "atlas-800-training-half",
        "name": "Atlas 800 training server with 4 chips",
        "servers": [
            "Atlas 800 training server (model 9000)",
            "Atlas 800 training server (model 9010)",
        ],
        "resource": "huawei.com/Ascend910",
        "chips": 4,
        "group": "HCCS ring",
        "group_chips": 4,
        "counts": [1, 2, 4],
        "networks": ["two-layer RoCE"],
        "job_rule": "each-pod",
        "accelerator_types": ["half"],
        "policies": ["chip4-node4"],
        "job_labels": {},
        "node_labels": {},
        "source": "MindCluster ascend-for-volcano, half910x4: the matrix of the whole "
        "server, one ring",
    }


def test_fragmentation_is_told_node_by_node(files: Files) -> None:
    assert files.say("fragmentation", SOME) == (
        0,
        """\
fragmentation 4 over 3 nodes, 10 chips free
stranded for pods of 1: 0 of 10 free chips
stranded for pods of 2: 2 of 10 free chips
stranded for pods of 4: 6 of 10 free chips
stranded for pods of 8: 10 of 10 free chips
    2 node-1: 3|4 free
    2 node-2: 0|3 free
""",
    )


def test_fragmentation_is_told_in_json_for_the_sizes_that_are_asked(
    files: Files,
) -> None:
    code, text = files.say("fragmentation", SOME, "--stranded", "4", "--json")

    assert (code, json.loads(text)) == (
        0,
        {
            "fragmentation": 4,
            "free": 10,
            "stranded": {"4": 6},
            "nodes": [
                {"node": "node-1", "free": 7, "fragmentation": 2},
                {"node": "node-2", "free": 3, "fragmentation": 2},
                {"node": "node-3", "free": 0, "fragmentation": 0},
            ],
        },
    )
