import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.products import ATLAS_800_TRAINING as PRODUCT
from scheduler_core.products import PRODUCTS
from scheduler_core.reasons import Reason
from scheduler_core.wire import snapshot
from scheduler_core.wire.reader import SnapshotError
from scheduler_core.wire.snapshot import Job, Snapshot, SnapshotNode, SnapshotPod
from tests.machines import EIGHT, atlas

KEYS = ", ".join(row.key for row in PRODUCTS)

chips = st.frozensets(st.integers(0, 7)).map(lambda some: tuple(sorted(some)))


@st.composite
def nodes(draw: st.DrawFn) -> SnapshotNode:
    inventory = draw(chips)

    def some() -> tuple[int, ...]:
        return tuple(chip for chip in draw(chips) if chip in inventory)

    return SnapshotNode(
        name=draw(st.text(min_size=1, max_size=5)),
        product=PRODUCT,
        chips=inventory,
        unhealthy=some(),
        held=some(),
        releasing=some(),
        barred=draw(st.sampled_from([None, Reason.AGENT_SILENT, Reason.IDS_LOST])),
    )


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    some = draw(st.lists(nodes(), max_size=4, unique_by=lambda node: node.name))
    names = [node.name for node in some]
    pod = st.builds(
        SnapshotPod,
        name=st.text(min_size=1, max_size=5),
        node=st.sampled_from(names or ["none"]),
        chips=chips,
        phase=st.sampled_from(["Pending", "Running", "Succeeded"]),
    )
    pods = draw(st.lists(pod, max_size=4)) if some else []
    return Snapshot(nodes=tuple(some), pods=tuple(pods))


@pytest.mark.property
@given(snapshots())
def test_a_snapshot_survives_the_round_trip(some: Snapshot) -> None:
    assert snapshot.parse(snapshot.render(some)) == some


@pytest.mark.property
@given(snapshots())
def test_free_held_and_unhealthy_chips_are_all_chips(some: Snapshot) -> None:
    cluster = snapshot.cluster_of(some)

    for node in some.nodes:
        state = cluster.get(node.name)
        assert state is not None
        taken = {*node.held, *node.releasing}
        for pod in some.pods:
            if pod.node == node.name and pod.phase != "Succeeded":
                taken |= {*pod.chips}
        free = {chip for chip in range(8) if state.free >> chip & 1}
        assert free == {*node.chips} - {*node.unhealthy} - taken
        assert state.barred == node.barred


def test_what_may_be_left_out_is_the_usual() -> None:
    text = json.dumps(
        {
            "version": 1,
            "nodes": [{"name": "node-1", "product": "atlas-800-training"}],
            "pods": [{"name": "default/a", "node": "node-1", "chips": [4, 3]}],
        }
    )

    read = snapshot.parse(text)

    assert read == Snapshot(
        nodes=(SnapshotNode(name="node-1", product=PRODUCT, chips=EIGHT),),
        pods=(SnapshotPod(name="default/a", node="node-1", chips=(3, 4)),),
    )
    assert list(snapshot.cluster_of(read)) == [atlas("node-1", {0, 1, 2, 5, 6, 7})]


def problems(document: object) -> tuple[str, ...]:
    with pytest.raises(SnapshotError) as caught:
        snapshot.parse(json.dumps(document))
    assert str(caught.value) == "\n".join(caught.value.problems)
    return caught.value.problems


def test_everything_that_is_wrong_is_said_at_once_with_its_path() -> None:
    document = {
        "version": 1,
        "nods": [],
        "zzz": 1,
        "nodes": [
            {"name": "a", "product": "atlas", "unhealty": [3], "chips": [0, 0, 9, "x"]},
            {"name": "a", "product": "atlas-800-training", "barred": "conflict"},
            {"name": "", "product": 7, "held": 3, "barred": 5},
            {"product": "atlas-800-training", "chips": [0], "releasing": [1]},
            {"product": "atlas-800-training", "chips": [], "unhealthy": [True, 2]},
        ],
        "pods": [
            {"name": 3, "node": "c", "chips": [0]},
            7,
            {"name": "default/a", "node": "a", "chips": [8], "phase": "Gone"},
            {"name": "default/b"},
        ],
    }

    barred = "no-allocatable, agent-silent, bad-node-report, ids-lost"
    assert problems(document) == (
        "nods: no such key, expected 'nodes'",
        "zzz: no such key, expected one of version, nodes, pods",
        "nodes[0].unhealty: no such key, expected 'unhealthy'",
        f"nodes[0].product: expected one of {KEYS}, found 'atlas'",
        "nodes[0].chips[1]: expected each chip once, found 0",
        "nodes[0].chips[2]: expected one of the chips 0, 1, 2, 3, 4, 5, 6, 7, found 9",
        "nodes[0].chips[3]: expected a whole number, found 'x'",
        f"nodes[1].barred: expected one of {barred}, found 'conflict'",
        "nodes[2].product: expected a text, found 7",
        "nodes[2].name: expected a name, found ''",
        "nodes[2].held: expected a list, found 3",
        "nodes[2].barred: expected a text, found 5",
        "nodes[3].name: expected, not found",
        "nodes[3].releasing[0]: expected one of the chips 0, found 1",
        "nodes[4].name: expected, not found",
        "nodes[4].unhealthy[0]: expected a whole number, found True",
        "nodes[4].unhealthy[1]: expected one of the chips (none), found 2",
        "nodes[1].name: expected each node once, found 'a'",
        "pods[0].node: expected the name of a node of this snapshot, found 'c'",
        "pods[0].name: expected a name, found 3",
        "pods[1]: expected an object, found 7",
        (
            "pods[2].phase: expected one of Pending, Running, Succeeded, Failed, "
            "Unknown, found 'Gone'"
        ),
        "pods[2].chips[0]: expected one of the chips 0, 1, 2, 3, 4, 5, 6, 7, found 8",
        "pods[3].node: expected, not found",
        "pods[3].chips: expected, not found",
    )


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ([], "document: expected an object, found []"),
        ({}, "version: expected a whole number, found None"),
        ({"version": "1"}, "version: expected a whole number, found '1'"),
        ({"version": 2, "whatever": []}, "version: expected 1, found 2"),
        ({"version": 1}, "nodes: expected, not found"),
        ({"version": 1, "nodes": {}}, "nodes: expected a list, found {}"),
    ],
)
def test_a_document_of_another_kind_is_refused_as_a_whole(
    document: object, expected: str
) -> None:
    assert problems(document) == (expected,)


def test_what_is_not_json_is_refused() -> None:
    with pytest.raises(SnapshotError, match=r"^document: expected JSON \("):
        snapshot.parse("version: 1")


def test_a_job_asks_for_chips_of_a_resource() -> None:
    text = '{"version": 1, "resource": "huawei.com/Ascend910", "chips": 4}'

    assert snapshot.parse_job(text) == Job(resource="huawei.com/Ascend910", chips=4)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            '{"version": 1, "resource": "huawei.com/Ascend911", "chips": 0}',
            (
                "chips: expected 1 or more, found 0",
                (
                    "resource: expected one of huawei.com/Ascend310, "
                    "huawei.com/Ascend310P, huawei.com/Ascend910, huawei.com/npu, "
                    "found 'huawei.com/Ascend911'"
                ),
            ),
        ),
        (
            '{"version": 1, "chips": 1.5}',
            (
                "resource: expected, not found",
                "chips: expected a whole number, found 1.5",
            ),
        ),
    ],
)
def test_a_job_that_cannot_be_is_refused(text: str, expected: tuple[str, ...]) -> None:
    with pytest.raises(SnapshotError) as caught:
        snapshot.parse_job(text)

    assert caught.value.problems == expected
