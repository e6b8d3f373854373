from dataclasses import replace

import pytest

from scheduler_core.index.cluster import Cluster
from scheduler_core.placement.pod import place
from scheduler_core.products import lookup, table
from scheduler_core.products.lookup import Traits
from tests.machines import node_state
from tests.scheduler_core.jobs import place_of

RESOURCE = "huawei.com/Ascend910"
A310, A310P = "huawei.com/Ascend310", "huawei.com/Ascend310P"
NPU = "huawei.com/npu"


def policy(value: str) -> Traits:
    return Traits(annotations={"huawei.com/schedule_policy": value})


def selector(value: str) -> Traits:
    return Traits(node_selector={"accelerator-type": value})


def strategy(value: str, **more: str) -> Traits:
    return Traits(labels={"npu-310-strategy": value, **more})


@pytest.mark.parametrize(
    ("resource", "job", "key"),
    [
        (RESOURCE, Traits(), "atlas-800-training"),
        (RESOURCE, selector("module"), "atlas-800-training"),
        (RESOURCE, selector("half"), "atlas-800-training-half"),
        (RESOURCE, selector("card"), "a300t"),
        (RESOURCE, selector("card-910b-2"), "flat-2"),
        (RESOURCE, selector("card-910b-infer"), "atlas-300i-a2"),
        (RESOURCE, selector("some-other-card"), "a300t"),
        (RESOURCE, selector("module-910b-8"), "atlas-a2-8"),
        (RESOURCE, selector("850-Atlas-8p-8"), "atlas-850-8"),
        (RESOURCE, selector("module-910b-16"), "atlas-a2-box16"),
        (RESOURCE, selector("module-a3-16"), "atlas-a3-16"),
        (RESOURCE, selector("module-a3-16-super-pod"), "atlas-a3-16-superpod"),
        (RESOURCE, selector("module-a3-8-super-pod"), "atlas-a3-8-superpod"),
        (RESOURCE, selector("what-is-this"), None),
        (RESOURCE, policy("module-a3-16"), "atlas-a3-16"),
        (RESOURCE, policy("chip2-node16"), "atlas-a3-16"),
        (RESOURCE, policy("chip2-node8"), "atlas-a3-8"),
        (RESOURCE, policy("chip1-node2"), "flat-2"),
        (RESOURCE, policy("chip4-node4"), "atlas-800-training-half"),
        (RESOURCE, policy("chip8-node8"), "atlas-a2-8"),
        (RESOURCE, policy("chip8-node16"), "atlas-a2-box16"),
        (RESOURCE, policy("chip2-node16-sp"), "atlas-a3-16-superpod"),
        (RESOURCE, policy("chip2-node8-sp"), "atlas-a3-8-superpod"),
        (RESOURCE, policy("chip4-node8"), "mesh-8"),
        (RESOURCE, policy("chip4-node16"), "mesh-16"),
        (RESOURCE, policy("chip1-node8"), "flat-8"),
        (RESOURCE, policy("chip1-node16"), "flat-16"),
        (RESOURCE, policy("chip8-node8-sp"), "atlas-850-8-superpod"),
        (RESOURCE, policy("chip8-node8-ra64-sp"), None),
        (RESOURCE, policy("multilevel"), None),
        (RESOURCE, policy("not-known"), "atlas-800-training"),
        (NPU, Traits(), None),
        (NPU, policy("not-known"), None),
        (NPU, policy("chip1-softShareDev"), None),
        (NPU, policy("chip4-node8"), "npu-mesh-8"),
        (NPU, selector("module"), None),
        (A310, Traits(), "atlas-300i-chip"),
        (A310, strategy("chip"), "atlas-300i-chip"),
        (A310, strategy("card"), "atlas-300i-card"),
        (A310, strategy("x"), None),
        (A310P, Traits(), "atlas-310p"),
        (A310P, Traits(labels={"duo": "false"}), "atlas-310p"),
        (A310P, strategy("card", duo="true"), "atlas-300i-duo-card"),
        ("huawei.com/Ascend311", Traits(), None),
        ("huawei.com/Ascend910-4c", Traits(), "ascend910-4c"),
        ("huawei.com/Ascend910-4c.3cpu", Traits(), "ascend910-4c.3cpu"),
        ("huawei.com/Ascend310P-2c", Traits(), "ascend310p-2c"),
    ],
)
def test_a_job_means_a_row(resource: str, job: Traits, key: str | None) -> None:
    row = lookup.find_row(resource, {}, job)

    assert (row and row.key) == key


@pytest.mark.parametrize(
    ("labels", "key"),
    [
        ({"duo": "true"}, "atlas-300i-duo-chip"),
        ({"duo": "true", "npu-310-strategy": "chip"}, "atlas-300i-duo-chip"),
        ({"duo": "true", "distributed": "true"}, "atlas-300i-duo-distributed"),
    ],
)
def test_duo_chips_are_only_on_nodes_that_say_so(
    labels: dict[str, str], key: str
) -> None:
    resource, job = A310P, Traits(labels=labels)

    on_duo = lookup.find_row(resource, {"infer-card-type": "card-300i-duo"}, job)

    assert on_duo is table.by_key(key)
    assert lookup.find_row(resource, {}, job) is None
    assert lookup.resolve_job(resource, job) is on_duo


BLOCK = {"sp-block": "32"}


@pytest.mark.parametrize(
    ("job", "key"),
    [
        (Traits(), "atlas-800-training"),
        (Traits(annotations=BLOCK), "atlas-a3-16-superpod"),
        (
            replace(selector("module-a3-8-super-pod"), annotations=BLOCK),
            "atlas-a3-8-superpod",
        ),
        (
            Traits(annotations={**BLOCK, "huawei.com/schedule_policy": "chip8-node8"}),
            "atlas-a2-8",
        ),
    ],
)
def test_a_block_means_superpods_unless_a_policy_says_otherwise(
    job: Traits, key: str
) -> None:
    assert lookup.find_row(RESOURCE, {}, job) is table.by_key(key)


def test_what_the_job_leaves_open_the_node_says() -> None:
    labels = {"accelerator-type": "module-910b-16"}

    assert lookup.find_row(RESOURCE, labels) is table.by_key("atlas-a2-box16")
    assert lookup.find_row(RESOURCE, labels, policy("chip4-node16")) is table.by_key(
        "mesh-16"
    )
    assert lookup.find_row(RESOURCE, labels, selector("half")) is table.by_key(
        "atlas-800-training-half"
    )


@pytest.mark.parametrize(
    ("job", "wanted"),
    [
        (Traits(), RESOURCE),
        (policy("not-known"), RESOURCE),
        (policy("chip8-node8"), table.by_key("atlas-a2-8")),
        (policy("multilevel"), None),
        (selector("half"), table.by_key("atlas-800-training-half")),
        (selector("what-is-this"), None),
        (
            Traits(annotations={"sp-block": "2"}),
            table.by_key("atlas-a3-16-superpod"),
        ),
    ],
)
def test_what_is_looked_for_is_a_row_or_any_node_of_the_resource(
    job: Traits, wanted: table.Product | str | None
) -> None:
    assert lookup.resolve_job(RESOURCE, job) == wanted


@pytest.mark.parametrize(
    ("resource", "labels", "key"),
    [
        (RESOURCE, {}, "atlas-800-training"),
        (RESOURCE, {"accelerator-type": "module"}, "atlas-800-training"),
        (RESOURCE, {"accelerator-type": "half"}, "atlas-800-training-half"),
        (RESOURCE, {"accelerator-type": "what-is-this"}, None),
        (A310, {}, "atlas-300i-chip"),
        (A310P, {}, "atlas-310p"),
        (A310P, {"infer-card-type": "card-300i-duo"}, "atlas-300i-duo-chip"),
        (NPU, {"accelerator-type": "module-910b-16"}, "npu-atlas-a2-box16"),
        (NPU, {"accelerator-type": "half"}, "npu-atlas-800-training-half"),
        (NPU, {"accelerator-type": "what-is-this"}, "npu-flat-16"),
        (NPU, {}, "npu-flat-16"),
        ("nvidia.com/gpu", {}, None),
    ],
)
def test_the_labels_of_a_node_tell_its_hardware(
    resource: str, labels: dict[str, str], key: str | None
) -> None:
    row = lookup.find_node_row(resource, labels)

    assert (row and row.key) == key


@pytest.mark.seed("002-01")
def test_of_a_virtual_device_a_pod_has_one() -> None:
    row = lookup.find_row("huawei.com/Ascend910-4c", {})

    assert row is not None
    assert row.counts == (1,)
    assert lookup.find_virtual_row("huawei.com/Ascend910") is None


@pytest.mark.parametrize("key", ["npu-mesh-8", "npu-atlas-a2-8", "npu-flat-16"])
def test_a_node_of_npu_serves_the_row_that_a_jobs_policy_means(key: str) -> None:
    row, own = table.by_key(key), lookup.find_node_row(NPU, {})
    assert own is not None
    node = node_state("a", own, 0b1111_0001, inventory=0xFF)

    answer = place(row, 4, Cluster([node]))

    assert place_of(answer).node == "a"
    assert lookup.resolve_job(NPU, policy(row.policies[0])) is row
    assert lookup.resolve_job(NPU, Traits()) is None
