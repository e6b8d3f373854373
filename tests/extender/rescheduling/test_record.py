"""The record of a move as text: what is written is read again, all else is refused."""

import json
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.gang.fault_policy import Switch
from extender.rescheduling.moves import KeptPlace, MoveRecord, Past
from extender.rescheduling.record import KEY, parse, render
from scheduler_core.documents.reader import DocumentError

GOLDEN = Path(__file__).with_name("golden") / "record.json"
NPU = "huawei.com/Ascend910"
GOES = KeptPlace(
    uid="0b5c5e1e-0000-4000-8000-000000000001",
    name="train-1",
    namespace="default",
    slot=("worker", (1, 0)),
    line="Job.batch/train-workers",
    resource=NPU,
    node="n9",
    chips=255,
    home="n1",
    annotations={"distributed-job": "true", "hccl/rankIndex": "1"},
)
RECORD = MoveRecord(
    job="JobSet/default/train",
    switch=Switch.FORCE,
    is_whole=True,
    places=(
        GOES,
        replace(
            GOES,
            uid="0b5c5e1e-0000-4000-8000-000000000000",
            name="train-0",
            slot=("master", (0, 0)),
            node="n2",
            home="n2",
            annotations={"distributed-job": "true", "hccl/rankIndex": "0"},
            is_evicted=False,
        ),
    ),
    asked_s={GOES.uid: 1790000001.0},
    history=(Past(at_s=1790000000.0, faults=(("n1", NPU, 1),)),),
)

texts = st.text(max_size=8)
names = st.text(min_size=1, max_size=8)
counts = st.integers(0, 2**31)
seconds = st.floats(0, 1e11)
annotations = st.dictionaries(texts, texts, max_size=3)
pasts = st.builds(
    Past,
    at_s=seconds,
    faults=st.lists(st.tuples(texts, texts, st.integers(1, 255)), max_size=2).map(
        tuple
    ),
)


@st.composite
def places(draw: st.DrawFn) -> KeptPlace:
    node = draw(texts)
    return KeptPlace(
        uid=draw(names),
        name=draw(names),
        namespace=draw(texts),
        slot=(draw(texts), (draw(counts), draw(counts))),
        line=draw(texts),
        resource=draw(texts),
        node=node,
        chips=draw(st.integers(1, 2**16)) if node else 0,
        home=draw(texts),
        annotations=draw(annotations),
        is_evicted=draw(st.booleans()),
    )


@st.composite
def records(draw: st.DrawFn) -> MoveRecord:
    kept = draw(st.lists(places(), max_size=4, unique_by=lambda place: place.uid))
    asked = [place.uid for place in kept if draw(st.booleans())]
    return MoveRecord(
        job=draw(names),
        owner=draw(texts),
        switch=draw(st.sampled_from([Switch.GRACE, Switch.FORCE])),
        is_whole=draw(st.booleans()),
        places=tuple(kept),
        asked_s={uid: draw(st.floats(1, 1e11)) for uid in asked},
        history=tuple(draw(st.lists(pasts, max_size=3))),
        controllers=tuple(draw(st.lists(names, max_size=2))),
    )


@given(records())
def test_what_is_written_is_read_again(record: MoveRecord) -> None:
    assert parse(render(record)) == record


def test_the_text_is_what_earlier_releases_wrote(
    pytestconfig: pytest.Config,
) -> None:
    text = render(RECORD)[KEY]
    if pytestconfig.getoption("--update-golden"):
        GOLDEN.write_text(text + "\n")

    assert text + "\n" == GOLDEN.read_text()
    assert parse({KEY: GOLDEN.read_text()}) == RECORD


def test_a_record_of_an_earlier_release_knows_no_lines() -> None:
    found = document()
    rows = found["places"]
    assert isinstance(rows, list)
    found["places"] = [row[:13] for row in rows]

    places = tuple(replace(place, line="") for place in RECORD.places)
    assert parse({KEY: json.dumps(found)}) == replace(RECORD, places=places)


def test_five_thousand_pods_fit_into_a_config_map() -> None:
    long = "training-of-a-large-model-with-many-experts"
    whole = replace(
        RECORD,
        places=tuple(
            replace(
                GOES,
                uid=f"0b5c5e1e-0000-4000-8000-{number:012}",
                name=f"{long}-workers-0-{number}-x7k2p",
                slot=("workers", (0, number)),
                node=f"worker-{number:05}.pod-17.example.com",
                home=f"worker-{number:05}.pod-17.example.com",
                annotations={"distributed-job": "true", "hccl/rankIndex": str(number)},
            )
            for number in range(5000)
        ),
        asked_s={},
    )

    written = render(whole)

    assert len(written[KEY].encode()) < 1 << 20
    assert parse(written) == whole


def test_five_thousand_pods_with_the_longest_names_fit() -> None:
    whole = replace(
        RECORD,
        places=tuple(
            replace(
                GOES,
                uid=str(uuid.uuid5(uuid.NAMESPACE_DNS, str(number))),
                name=f"{'job-' * 14}{number:05}",
                slot=("workers", (0, number)),
                node=f"{'node.' * 11}{number:08}",
                home=f"{'home.' * 11}{number:08}",
                annotations={"distributed-job": "true", "hccl/rankIndex": str(number)},
            )
            for number in range(5000)
        ),
        asked_s={},
    )

    written = render(whole)

    assert len(written[KEY]) < 1 << 20
    assert parse(written) == whole


@pytest.mark.parametrize("written", ["", "AAAA", "eJwDAAAAAAE=", "eJwr"])
def test_a_text_that_is_no_compressed_record_is_refused(written: str) -> None:
    with pytest.raises(DocumentError):
        parse({KEY: written})


def document() -> dict[str, object]:
    found: dict[str, object] = json.loads(render(RECORD)[KEY])
    return found


def with_cell(number: int, value: object) -> dict[str, object]:
    """The document with another value in its first place."""
    found = document()
    rows = found["places"]
    assert isinstance(rows, list)
    rows[0][number] = value
    return found


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ({}, "move: expected a text, found nothing"),
        ({KEY: "{"}, "move: expected JSON"),
        ({KEY: "[]"}, "move: expected an object, found []"),
        (document() | {"version": 2}, "move.version: expected 1, found 2"),
        (document() | {"job": ""}, "move.job: expected a name, found ''"),
        (document() | {"jobs": 1}, "move.jobs: no such key, did you mean 'job'?"),
        (document() | {"switch": "off"}, "move.switch: expected one of grace, force"),
        (
            document() | {"history": [[float("nan"), []]]},
            "move.history[0][0]: expected seconds since the epoch",
        ),
        (
            document() | {"history": [[10**400, []]]},
            "move.history[0][0]: expected seconds since the epoch",
        ),
        (
            with_cell(2, 99),
            "move.places[0][2]: expected the position of text, found 99",
        ),
        (with_cell(10, -1), "move.places[0][10]: expected the position of annotations"),
        (with_cell(8, 0), "move.places[0][8]: expected chips if there is a node"),
        (with_cell(11, 2), "move.places[0][11]: expected a whole number from 0 to 1"),
        (
            with_cell(0, "0b5c5e1e-0000-4000-8000-000000000000"),
            "move.places[1]: expected each pod once",
        ),
        (
            document() | {"annotations": [[0]]},
            "move.annotations[0]: expected a value for each key, found 1",
        ),
        (
            document() | {"places": [["u"]]},
            "move.places[0]: expected a list of 14 values, found 1",
        ),
    ],
)
def test_what_is_wrong_is_said(data: dict[str, object], problem: str) -> None:
    if "version" in data:
        data = {KEY: json.dumps(data)}

    with pytest.raises(DocumentError) as found:
        parse(data)

    assert found.value.problems[0].startswith(problem)


@given(st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=5))
def test_anything_else_is_an_error_of_the_document(value: object) -> None:
    for data in (value, {KEY: value}, {KEY: json.dumps(value)}):
        with pytest.raises(DocumentError):
            parse(data)


@given(
    st.sampled_from(sorted(document())),
    st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=5),
)
def test_a_field_of_another_kind_is_read_or_refused(key: str, value: object) -> None:
    data = {KEY: json.dumps(document() | {key: value})}
    try:
        assert parse(data).places == parse(data).places
    except DocumentError as error:
        assert error.problems  # noqa: PT017  # either is right
