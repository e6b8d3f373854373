import io
import json
import os
import sys

import pytest

from scheduler_core.__main__ import main
from scheduler_core.products.table import ATLAS_800_TRAINING as PRODUCT
from scheduler_core.snapshot.values import Snapshot, SnapshotPod
from tests.scheduler_core.files import Files
from tests.scheduler_core.snapshot.documents import node
from tests.support.programs import run_python

CLUSTER = Snapshot(
    nodes=(
        node("node-1", unhealthy=(3,)),
        node("node-2", held=(0,)),
    ),
    pods=(
        SnapshotPod(name="default/a", node="node-1", chips=(0, 1)),
        SnapshotPod(name="default/b", node="node-2", chips=(5,)),
    ),
)


def test_a_placement_is_said_in_a_line(files: Files) -> None:
    assert files.say("place", CLUSTER, chips=4) == (
        0,
        (
            "node-1: chips 4, 5, 6, 7; the last 4 free of one HCCS ring (1 more "
            "free on the node), on a node with 7 of 8 chips healthy\n"
        ),
    )


def test_a_placement_is_said_in_json(files: Files) -> None:
    code, text = files.say("place", CLUSTER, "--json", chips=4)

    assert (code, json.loads(text)) == (
        0,
        {
            "node": "node-1",
            "chips": [4, 5, 6, 7],
            "reason": "the last 4 free of one HCCS ring (1 more free on the node), "
            "on a node with 7 of 8 chips healthy",
        },
    )


def test_a_rejection_is_said_with_counts_and_another_exit_code(files: Files) -> None:
    code, text = files.say("place", CLUSTER, chips=8)
    json_code, document = files.say("place", CLUSTER, "--json", chips=8)

    assert (code, json_code) == (1, 1)
    assert text.splitlines() == [
        "0/2 nodes can serve: 1 chip unhealthy, 1 without 8 free chips",
        "it would fit if chips 0, 5 of node-2 were free",
    ]
    assert json.loads(document) == {
        "reasons": [
            {"nodes": 1, "text": "chip unhealthy"},
            {"nodes": 1, "text": "without 8 free chips"},
        ],
        "advice": {
            "text": "it would fit if chips 0, 5 of node-2 were free",
            "parts": [
                {"do": "free", "node": "node-2", "chip": 0},
                {"do": "free", "node": "node-2", "chip": 5},
            ],
        },
    }


def test_a_file_that_is_not_there_is_named(files: Files) -> None:
    assert files.run("place", "/nowhere/cluster.json", files.job) == (
        2,
        "",
        "/nowhere/cluster.json: No such file or directory\n",
    )


def test_a_file_that_is_not_text_is_named(files: Files) -> None:
    words = files.write(CLUSTER, chips=4)
    files.job.write_bytes(b"\xff{}")

    code, _, errors = files.run("place", *words)

    assert code == 2
    assert errors.startswith(f"{files.job}: expected UTF-8 text")


def test_all_that_is_wrong_with_a_file_is_said_with_its_name(files: Files) -> None:
    words = files.write(CLUSTER, chips=4)
    files.job.write_text('{"version": 1, "chip": 2}', encoding="utf-8")

    code, _, errors = files.run("place", *words)

    assert (code, errors.splitlines()) == (
        2,
        [
            f"{files.job}: chip: no such key, did you mean 'chips'?",
            (
                f"{files.job}: resource: expected one of huawei.com/Ascend310, "
                "huawei.com/Ascend310P, huawei.com/Ascend910, huawei.com/npu, "
                "found nothing"
            ),
            f"{files.job}: chips: expected a whole number of at least 1, found nothing",
        ],
    )


def test_a_snapshot_that_can_be_read_is_valid(files: Files) -> None:
    said = f"{files.cluster}: a snapshot of version 1: 2 nodes, 2 pods\n"
    assert files.say("validate", CLUSTER) == (0, said)


def test_all_that_is_wrong_with_a_snapshot_is_said(files: Files) -> None:
    files.cluster.write_text('{"version": 1, "node": [], "pod": []}')

    code, output, errors = files.run("validate", files.cluster)

    assert (code, output, errors.splitlines()) == (
        2,
        "",
        [
            f"{files.cluster}: node: no such key, did you mean 'nodes'?",
            f"{files.cluster}: pod: no such key, did you mean 'pods'?",
            f"{files.cluster}: nodes: expected a list, found nothing",
        ],
    )


def test_answers_do_not_depend_on_the_hash_seed(files: Files) -> None:
    """In new processes: the order of sets of texts differs from one to the next."""
    many = Snapshot(
        nodes=tuple(
            node(
                f"node-{index % 7}-{index}",
                unhealthy=(index % 8, 7 - index % 8) if index % 3 else (),
                held=tuple(range(index % 5)),
            )
            for index in range(40)
        )
    )
    outputs = set()
    for seed in "012":
        for count in (1, 2, 4, 8):
            words = files.write(many, chips=count)
            environment = {**os.environ, "PYTHONHASHSEED": seed}
            command = "-m", "scheduler_core", "place", *words
            ran = run_python(*command, env=environment, check=False)
            assert ran.stderr == ""
            outputs.add((count, ran.stdout))

    assert sorted(count for count, _ in outputs) == [1, 2, 4, 8]


def test_cases_are_answered_line_by_line(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = {
        "resource": PRODUCT.resource,
        "count": 1,
        "pods": 2,
        "node": {"chips": 8, "free": [3]},
    }
    lines = f"{json.dumps(case)}\n\n{json.dumps(case)}\n"
    monkeypatch.setattr(sys, "stdin", io.StringIO(lines))

    code, text, _ = files.run("place", "--batch", "--profile", "per-pod")

    answers = [json.loads(line) for line in text.splitlines()]
    assert code == 0
    assert [(each["job_valid"], each["chips"]) for each in answers] == [(True, [3])] * 2


def test_a_line_that_cannot_be_read_makes_the_exit_code_2(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("nothing\n"))

    code, text, _ = files.run("place", "--batch")

    assert code == 2
    assert "error" in json.loads(text)


def test_without_files_and_cases_there_is_nothing_to_place(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["place"])

    assert caught.value.code == 2
    assert "expected SNAPSHOT and JOB, or --batch" in capsys.readouterr().err
