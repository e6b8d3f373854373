import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from scheduler_core.__main__ import main
from scheduler_core.products.table import ATLAS_800_TRAINING as PRODUCT
from scheduler_core.snapshot import document as snapshot_document
from scheduler_core.snapshot.document import Snapshot, SnapshotNode, SnapshotPod
from tests.machines import EIGHT

CLUSTER = Snapshot(
    nodes=(
        SnapshotNode(name="node-1", product=PRODUCT, chips=EIGHT, unhealthy=(3,)),
        SnapshotNode(name="node-2", product=PRODUCT, chips=EIGHT, held=(0,)),
    ),
    pods=(
        SnapshotPod(name="default/a", node="node-1", chips=(0, 1)),
        SnapshotPod(name="default/b", node="node-2", chips=(5,)),
    ),
)


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    cluster, job = tmp_path / "cluster.json", tmp_path / "job.json"
    cluster.write_text(snapshot_document.render(CLUSTER), encoding="utf-8")
    job.write_text(job_text(4), encoding="utf-8")
    return str(cluster), str(job)


def job_text(count: int) -> str:
    return json.dumps({"version": 1, "resource": PRODUCT.resource, "chips": count})


def test_a_placement_is_said_in_a_line(
    files: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["place", *files])

    assert (code, capsys.readouterr().out) == (
        0,
        (
            "node-1: chips 4, 5, 6, 7; the last 4 free of one HCCS ring (1 more "
            "free on the node), on a node with 7 of 8 chips healthy\n"
        ),
    )


def test_a_placement_is_said_in_json(
    files: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["place", "--json", *files])

    assert (code, json.loads(capsys.readouterr().out)) == (
        0,
        {
            "node": "node-1",
            "chips": [4, 5, 6, 7],
            "reason": "the last 4 free of one HCCS ring (1 more free on the node), "
            "on a node with 7 of 8 chips healthy",
        },
    )


def test_a_rejection_is_said_with_counts_and_another_exit_code(
    files: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path(files[1]).write_text(job_text(8), encoding="utf-8")

    codes = main(["place", *files]), main(["place", "--json", *files])

    *lines, document = capsys.readouterr().out.splitlines()
    assert codes == (1, 1)
    assert lines == [
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


def test_a_file_that_is_not_there_is_named(
    files: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["place", "/nowhere/cluster.json", files[1]])

    captured = capsys.readouterr()
    assert (code, captured.out, captured.err) == (
        2,
        "",
        "/nowhere/cluster.json: No such file or directory\n",
    )


def test_a_file_that_is_not_text_is_named(
    files: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path(files[1]).write_bytes(b"\xff{}")

    code = main(["place", *files])

    assert code == 2
    assert capsys.readouterr().err.startswith(f"{files[1]}: expected UTF-8 text")


def test_all_that_is_wrong_with_a_file_is_said_with_its_name(
    files: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path(files[1]).write_text('{"version": 1, "chip": 2}', encoding="utf-8")

    code = main(["place", *files])

    assert (code, capsys.readouterr().err.splitlines()) == (
        2,
        [
            f"{files[1]}: chip: no such key, did you mean 'chips'?",
            (
                f"{files[1]}: resource: expected one of huawei.com/Ascend310, "
                "huawei.com/Ascend310P, huawei.com/Ascend910, huawei.com/npu, "
                "found nothing"
            ),
            f"{files[1]}: chips: expected a whole number of at least 1, found nothing",
        ],
    )


def test_a_snapshot_that_can_be_read_is_valid(
    files: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["validate", files[0]])

    said = f"{files[0]}: a snapshot of version 1: 2 nodes, 2 pods\n"
    assert (code, capsys.readouterr().out) == (0, said)


def test_all_that_is_wrong_with_a_snapshot_is_said(
    files: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path(files[0]).write_text('{"version": 1, "node": [], "pod": []}', encoding="utf-8")

    code = main(["validate", files[0]])

    captured = capsys.readouterr()
    assert (code, captured.out, captured.err.splitlines()) == (
        2,
        "",
        [
            f"{files[0]}: node: no such key, did you mean 'nodes'?",
            f"{files[0]}: pod: no such key, did you mean 'pods'?",
            f"{files[0]}: nodes: expected a list, found nothing",
        ],
    )


def test_answers_do_not_depend_on_the_hash_seed(files: tuple[str, str]) -> None:
    """In new processes: the order of sets of texts differs from one to the next."""
    many = Snapshot(
        nodes=tuple(
            SnapshotNode(
                name=f"node-{index % 7}-{index}",
                product=PRODUCT,
                chips=EIGHT,
                unhealthy=(index % 8, 7 - index % 8) if index % 3 else (),
                held=tuple(range(index % 5)),
            )
            for index in range(40)
        )
    )
    Path(files[0]).write_text(snapshot_document.render(many), encoding="utf-8")

    outputs = set()
    for seed in "012":
        for count in (1, 2, 4, 8):
            Path(files[1]).write_text(job_text(count), encoding="utf-8")
            ran = subprocess.run(  # noqa: S603  # our own program
                [sys.executable, "-m", "scheduler_core", "place", *files],
                env={**os.environ, "PYTHONHASHSEED": seed},
                capture_output=True,
                check=False,
                text=True,
            )
            assert ran.stderr == ""
            outputs.add((count, ran.stdout))

    assert sorted(count for count, _ in outputs) == [1, 2, 4, 8]


def test_cases_are_answered_line_by_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    case = {
        "resource": PRODUCT.resource,
        "count": 1,
        "pods": 2,
        "node": {"chips": 8, "free": [3]},
    }
    lines = f"{json.dumps(case)}\n\n{json.dumps(case)}\n"
    monkeypatch.setattr(sys, "stdin", io.StringIO(lines))

    code = main(["place", "--batch", "--profile", "per-pod"])

    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert code == 0
    assert [(each["job_valid"], each["chips"]) for each in answers] == [(True, [3])] * 2


def test_a_line_that_cannot_be_read_makes_the_exit_code_2(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("nothing\n"))

    assert main(["place", "--batch"]) == 2
    assert "error" in json.loads(capsys.readouterr().out)


def test_without_files_and_cases_there_is_nothing_to_place(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["place"])

    assert caught.value.code == 2
    assert "expected SNAPSHOT and JOB, or --batch" in capsys.readouterr().err
