import json
from dataclasses import replace

import pytest
from hypothesis import given

from scheduler_core.documents.reader import DocumentError
from scheduler_core.node.chip_mask import ids_of
from scheduler_core.node.decision import LeafUse
from scheduler_core.placement.gang_on_superpods import SuperPods
from scheduler_core.products.table import ATLAS_800_TRAINING as PRODUCT
from scheduler_core.products.table import PRODUCTS, by_key
from scheduler_core.snapshot import document as snapshot_document
from scheduler_core.snapshot.values import (
    Snapshot,
    SnapshotJob,
    SnapshotPod,
    SnapshotSwitches,
    cluster_of,
    network_of,
    pods_of,
    superpods_of,
)
from scheduler_core.topology.leaves import Network, Schema, Tenant, Version
from tests.machines import EIGHT, atlas, mask
from tests.scheduler_core.leaf_parts import leaf_of
from tests.scheduler_core.snapshot.documents import node, problems_of, snapshots

KEYS = ", ".join(row.key for row in PRODUCTS)


@pytest.mark.property
@given(snapshots())
def test_a_snapshot_survives_the_round_trip(some: Snapshot) -> None:
    text = snapshot_document.render(some)

    assert snapshot_document.parse(text) == some
    assert snapshot_document.render(snapshot_document.parse(text)) == text


@pytest.mark.property
@given(snapshots())
def test_free_held_and_unhealthy_chips_are_all_chips(some: Snapshot) -> None:
    cluster = cluster_of(some)

    for one in some.nodes:
        resource = one.product.resource
        state = cluster.nodes(resource)[one.name]
        taken = {*one.held, *one.releasing}
        for pod in pods_of(some, resource):
            if pod.node == one.name and pod.phase != "Succeeded":
                taken |= {*pod.chips}
        offered = {*one.chips} if one.listed is None else {*one.listed}
        assert set(ids_of(state.free)) == offered - {*one.unhealthy} - taken
        assert set(ids_of(state.taken)) == taken
        assert state.barred == one.barred
        assert ids_of(state.network_unhealthy) == one.network_unhealthy


def test_what_may_be_left_out_is_the_usual() -> None:
    text = json.dumps(
        {
            "version": 1,
            "nodes": [{"name": "node-1", "product": "atlas-800-training"}],
            "pods": [{"name": "default/a", "node": "node-1", "chips": [4, 3]}],
        }
    )

    read = snapshot_document.parse(text)

    assert read == Snapshot(
        nodes=(node("node-1"),),
        pods=(SnapshotPod(name="default/a", node="node-1", chips=(3, 4)),),
    )
    state = replace(atlas("node-1", {0, 1, 2, 5, 6, 7}), taken=mask((3, 4)))
    assert list(cluster_of(read)) == [state]


def test_the_leaf_switches_know_who_runs_under_them() -> None:
    leaf = leaf_of("0", "a", use=LeafUse.SHARED)
    some = Snapshot(
        nodes=(node("a"), node("b")),
        pods=(
            SnapshotPod(name="train-0", node="a", chips=EIGHT, job="train"),
            SnapshotPod(name="train-1", node="b", chips=EIGHT, job="train"),
            SnapshotPod(name="old-0", node="b", chips=(), job="old", phase="Failed"),
            SnapshotPod(name="other-0", node="b", chips=(), job="other"),
        ),
        jobs=(
            SnapshotJob(name="train", schema=Schema.LARGE_MODEL),
            SnapshotJob(name="old", schema=Schema.NORMAL),
            SnapshotJob(name="other"),
        ),
        switches=SnapshotSwitches(leaves=(leaf,), version=Version.TWO, shared_leaves=1),
    )

    assert network_of(some) == Network(
        leaves=(leaf,),
        version=Version.TWO,
        shared_leaves=1,
        tenants=(Tenant(schema=Schema.LARGE_MODEL, nodes=frozenset({"a", "b"})),),
    )
    assert network_of(Snapshot()) is None


def test_nodes_are_joined_to_superpods() -> None:
    some = Snapshot(
        nodes=(node("a", superpod=0), node("b")),
        superpod_reserve=0,
    )

    assert superpods_of(some) == SuperPods(of_node={"a": 0}, reserve=0)
    assert superpods_of(Snapshot()) is None


def problems(document: object) -> tuple[str, ...]:
    return problems_of(snapshot_document.parse, document)


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
            {"name": "b", "product": "flat-2", "superpod": -1, "labels": {"x": 1}},
        ],
        "pods": [
            {"name": 3, "node": "c", "chips": [0, "y"]},
            7,
            {"name": "default/a", "node": "a", "chips": [8], "phase": "Gone"},
            {"name": "default/b"},
            {"name": "p", "node": "b", "chips": [], "job": "j", "budgets": ["x"]},
            {"name": "p", "node": "b", "chips": [], "budgets": ["w", "w", 1]},
            {"name": "q", "node": "b", "chips": [-1], "terminating": 1, "rank": "0"},
        ],
        "jobs": [{"name": "k", "min_available": 0, "schema": "large"}],
        "budgets": [{"name": "w", "allowed": -1}, {"name": "w"}],
        "switches": {
            "version": "3",
            "shared_leaves": 3,
            "leaves": [
                {"name": "0", "servers": [{"node": "b"}, {"node": "d"}, {"nod": 1}]},
                {"name": "0", "use": "busy", "healthy": 1, "servers": [{"node": "b"}]},
            ],
        },
        "superpods": {"size": 0, "reserve": None, "sizes": 1},
        "profile": "strict",
    }

    barred = "no-allocatable, agent-silent, bad-node-report, ids-lost"
    all_of_eight = "a chip from 0 to 7"
    a_node = "the name of a node of this snapshot"
    assert problems(document) == (
        "nods: no such key, did you mean 'nodes'?",
        (
            "zzz: no such key, expected one of version, nodes, pods, jobs, budgets, "
            "switches, superpods, profile"
        ),
        "nodes[0].unhealty: no such key, did you mean 'unhealthy'?",
        f"nodes[0].product: expected one of {KEYS}, found 'atlas'",
        "nodes[0].chips[1]: expected each chip once, found 0",
        f"nodes[0].chips[2]: expected {all_of_eight}, found 9",
        f"nodes[0].chips[3]: expected {all_of_eight}, found 'x'",
        f"nodes[1].barred: expected one of {barred}, found 'conflict'",
        (
            "nodes[1]: expected each name and resource once, found "
            "('a', 'huawei.com/Ascend910')"
        ),
        f"nodes[2].product: expected one of {KEYS}, found 7",
        "nodes[2].held: expected a list, found 3",
        f"nodes[2].barred: expected one of {barred}, found 5",
        "nodes[2].name: expected a name, found ''",
        "nodes[3].releasing[0]: expected one of the chips 0, found 1",
        "nodes[3].name: expected a name, found nothing",
        "nodes[4].unhealthy[0]: expected one of the chips (none), found True",
        "nodes[4].unhealthy[1]: expected one of the chips (none), found 2",
        "nodes[4].name: expected a name, found nothing",
        "nodes[5].superpod: expected a whole number of at least 0, found -1",
        "nodes[5].labels.x: expected a text, found 1",
        "jobs[0].min_available: expected a whole number of at least 1, found 0",
        (
            "jobs[0].schema: expected one of large-model-schema, normal-schema, "
            "found 'large'"
        ),
        "budgets[0].allowed: expected a whole number of at least 0, found -1",
        "budgets[1].allowed: expected a whole number of at least 0, found nothing",
        "budgets[1]: expected each name once, found 'w'",
        f"pods[0].node: expected {a_node}, found 'c'",
        "pods[0].chips[1]: expected a chip number of at least 0, found 'y'",
        "pods[0].name: expected a name, found 3",
        "pods[1]: expected an object, found 7",
        f"pods[2].chips[0]: expected {all_of_eight}, found 8",
        (
            "pods[2].phase: expected one of Pending, Running, Succeeded, Failed, "
            "Unknown, found 'Gone'"
        ),
        f"pods[3].node: expected {a_node}, found nothing",
        "pods[3].chips: expected a list, found nothing",
        "pods[4].job: expected the name of a job of this snapshot, found 'j'",
        "pods[4].budgets[0]: expected the name of a budget of this snapshot, found 'x'",
        "pods[5].budgets[1]: expected each budget once, found 'w'",
        ("pods[5].budgets[2]: expected the name of a budget of this snapshot, found 1"),
        "pods[5]: expected each name once, found 'p'",
        "pods[6].chips[0]: expected a chip from 0 to 1, found -1",
        "pods[6].terminating: expected true or false, found 1",
        "pods[6].rank: expected a whole number of at least 0, found '0'",
        f"switches.leaves[0].servers[1].node: expected {a_node}, found 'd'",
        "switches.leaves[0].servers[2].nod: no such key, did you mean 'node'?",
        "switches.leaves[1].servers[0].node: expected each node once, found 'b'",
        (
            "switches.leaves[1].use: expected one of idle, shared, exclusive, "
            "found 'busy'"
        ),
        "switches.leaves[1].healthy: expected true or false, found 1",
        "switches.leaves[1]: expected each name once, found '0'",
        "switches.version: expected one of 1.0, 2.0, single_layer, found '3'",
        "switches.shared_leaves: expected a whole number from 1 to 2, found 3",
        "superpods.sizes: no such key, did you mean 'size'?",
        "superpods.size: expected a whole number of at least 1, found 0",
        "superpods.reserve: expected a whole number of at least 0, found nothing",
        "profile: expected one of seed, per-pod, found 'strict'",
    )


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ([], "document: expected an object, found []"),
        ({}, "version: expected 1, found nothing"),
        ({"version": "1"}, "version: expected 1, found '1'"),
        ({"version": 2, "whatever": []}, "version: expected 1, found 2"),
        ({"version": 1}, "nodes: expected a list, found nothing"),
        ({"version": 1, "nodes": {}}, "nodes: expected a list, found {}"),
    ],
)
def test_a_document_of_another_kind_is_refused_as_a_whole(
    document: object, expected: str
) -> None:
    assert problems(document) == (expected,)


def test_what_is_not_json_is_refused() -> None:
    with pytest.raises(DocumentError, match=r"^document: expected JSON \("):
        snapshot_document.parse("version: 1")


def test_a_key_that_stands_twice_is_refused() -> None:
    with pytest.raises(DocumentError) as caught:
        snapshot_document.parse('{"version": 1, "nodes": [{"name": "a", "name": "b"}]}')

    assert caught.value.problems == (
        "document: expected each key of an object once, found 'name'",
    )


def test_a_node_of_two_resources_stands_there_for_each() -> None:
    cards = by_key("atlas-310p")
    some = Snapshot(
        nodes=(
            node("a"),
            node("a", product=cards, chips=(8, 9), held=(9,)),
        ),
        pods=(
            SnapshotPod(name="p", node="a", chips=(0, 1), resource=PRODUCT.resource),
            SnapshotPod(name="q", node="a", chips=(8,), resource=cards.resource),
        ),
    )

    read = snapshot_document.parse(snapshot_document.render(some))

    assert read == some
    free = [ids_of(state.free) for state in cluster_of(read)]
    assert free == [(), (2, 3, 4, 5, 6, 7)]
    assert [pod.name for pod in pods_of(read, cards.resource)] == ["q"]


@pytest.mark.parametrize(
    ("said", "found"),
    [({}, "nothing"), ({"resource": "huawei.com/npu"}, "'huawei.com/npu'")],
)
def test_a_pod_on_such_a_node_says_of_which_its_chips_are(
    said: dict[str, str], found: str
) -> None:
    lines = ("atlas-800-training", "atlas-310p")
    document = {
        "version": 1,
        "nodes": [{"name": "a", "product": product} for product in lines],
        "pods": [{"name": "p", "node": "a", "chips": [0], **said}],
    }

    assert problems(document) == (
        (
            "pods[0].resource: expected a resource of its node: huawei.com/Ascend910, "
            f"huawei.com/Ascend310P, found {found}"
        ),
    )
