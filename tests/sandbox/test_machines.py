"""Nodes of several kinds, from the driver's file to the pod's annotation."""

from pathlib import Path

import pytest

from sandbox.inspect import pods
from sandbox.world import Cards, Machine, World, running
from sandbox.world.directories import FAULT_CODE
from tests.support.objects import PODS
from tests.support.until import until


async def test_each_node_is_served_by_the_rules_of_its_own_product(
    tmp_path: Path,
) -> None:
    file = tmp_path / "broken.yaml"
    fault = f'{{chip: 3, code: "{FAULT_CODE}"}}'
    file.write_text(f"product: npu-flat-16\nfaults: [{fault}]\n")
    machines = (
        Machine(name="a3", product="atlas-a3-16"),
        Machine(name="310p", product="atlas-310p"),
        Machine(name="npu", product="npu-flat-16", driver_file=file),
    )

    async with running(machines) as world:
        await _create(world, "six", 6, "huawei.com/Ascend910")
        await _create(world, "ten", 10, "huawei.com/Ascend310P")
        await _create(world, "five", 5, "huawei.com/npu")
        await _create(world, "nine", 9, "huawei.com/Ascend910")
        held = {name: await _held(world, name) for name in ("six", "ten", "five")}
        refusal = await _refusal(world, "nine")
        configured = {name: await _configured(world, name) for name in ("six", "five")}

    assert held == {
        "six": ("a3", "Ascend910", [0, 1, 2, 3, 4, 5]),
        "ten": ("310p", "Ascend310P", list(range(10))),
        "five": ("npu", "npu", [0, 1, 2, 4, 5]),
    }
    assert configured == {"six": "ascend-910", "five": "ascend-npu"}
    assert "1 cannot give a pod 9 chips, only 1, 2, 4, 6, 8, 10, 12, 14" in refusal


async def test_d1_a_node_without_the_label_serves_its_first_pod_and_gang() -> None:
    async with running([Machine(name="a3", product="atlas-a3-16")]) as world:
        await _create(world, "first", 2, "huawei.com/Ascend910")
        await _bound(world, "first")
        gang = {"ascend-affinity/job": "g", "ascend-affinity/job-size": "2"}
        for name in ("g-0", "g-1"):
            made = pods.manifest(name, 6, resource="huawei.com/Ascend910")
            made["metadata"]["annotations"] = gang
            await pods.create(world, made)
        held = [await _held(world, name) for name in ("first", "g-0", "g-1")]

    assert [(where, kind) for where, kind, _ in held] == [("a3", "Ascend910")] * 3
    assert sorted(len(chips) for _, _, chips in held) == [2, 6, 6]
    assert len({chip for _, _, chips in held for chip in chips}) == 14


@pytest.mark.long
async def test_a_node_of_two_lines_serves_pods_of_both_and_loses_chips_of_one(
    tmp_path: Path,
) -> None:
    both = Machine(name="both", beside=(Cards("atlas-310p", 2),))
    async with running([both], below=tmp_path) as world:
        await _create(world, "train", 4, "huawei.com/Ascend910")
        await _create(world, "infer", 1, "huawei.com/Ascend310P")
        held = {name: await _held(world, name) for name in ("train", "infer")}
        await _create(world, "large", 2, "huawei.com/Ascend310P")
        refusal = await _refusal(world, "large")
        node = world.nodes["both"]
        node.set_faults([9])
        await _until_offered(world, {"Ascend910": 8, "Ascend310P": 1})
        await _create(world, "rest", 4, "huawei.com/Ascend910")
        held["rest"] = await _held(world, "rest")

    assert held == {
        "train": ("both", "Ascend910", [0, 1, 2, 3]),
        "infer": ("both", "Ascend310P", [8]),
        "rest": ("both", "Ascend910", [4, 5, 6, 7]),
    }
    assert "Insufficient huawei.com/Ascend310P" in refusal


@pytest.mark.long
async def test_twenty_pods_get_a_part_each_of_chips_that_were_cut(
    tmp_path: Path,
) -> None:
    """From the extender's choice to what each container sees."""
    quarter, file = "huawei.com/Ascend910-4c", tmp_path / "cut.yaml"
    parts = [
        f"{{chip: {chip}, number: {100 + 16 * chip + at}, kind: 4c}}"
        for chip in (6, 7)
        for at in range(5)
    ]
    file.write_text(f"product: atlas-800-training\nvirtual: [{', '.join(parts)}]\n")
    names = [f"p{number}" for number in range(20)]
    machines = [Machine(name=name, driver_file=file) for name in ("a", "b")]

    async with running(machines, below=tmp_path) as world:
        for name in names:
            await _create(world, name, 1, quarter)
        for name in names:
            await _held(world, name)
        written = {name: await world.api.get(f"{PODS}/{name}") for name in names}
        records = [
            record
            for kubelet in world.kubelets.values()
            for record in kubelet.containers()
        ]
        await _create(world, "late", 1, quarter)
        refusal = await _refusal(world, "late")

    claims = {
        name: (pod["spec"]["nodeName"], pod["metadata"]["annotations"][quarter])
        for name, pod in written.items()
    }
    seen = {record.pod: record.env["ASCEND_VISIBLE_DEVICES"] for record in records}
    assert sorted(claims.values()) == [
        (node, f"Ascend910-4c-{100 + 16 * chip + at}-{chip}")
        for node in "ab"
        for chip in (6, 7)
        for at in range(5)
    ]
    for name, (_, part) in claims.items():
        assert written[name]["metadata"]["annotations"]["huawei.com/AscendReal"] == part
        assert seen[name] == part.split("-")[2]
    assert f"Insufficient {quarter}" in refusal


async def _until_offered(world: World, chips: dict[str, int]) -> None:
    """Wait until the node offers so many chips of each line."""
    wanted = {(f"huawei.com/{name}", str(count)) for name, count in chips.items()}
    await until(
        lambda: world.api.get("/api/v1/nodes/both"),
        lambda node: wanted <= node["status"]["allocatable"].items(),
    )


async def _create(world: World, name: str, count: int, resource: str) -> None:
    await pods.create(world, pods.manifest(name, count, resource=resource))


async def _held(world: World, name: str) -> tuple[str, str, list[int]]:
    """Wait for what was mounted: the node, the kind of chips, and which."""
    pod = await until(
        lambda: world.api.get(f"{PODS}/{name}"),
        lambda pod: pod["metadata"].get("annotations", {}).get("huawei.com/AscendReal"),
    )
    text = pod["metadata"]["annotations"]["huawei.com/AscendReal"]
    parts = [chip.rpartition("-") for chip in text.split(",")]
    chips = sorted(int(number) for _, _, number in parts)
    return pod["spec"]["nodeName"], parts[0][0], chips


async def _bound(world: World, name: str) -> None:
    """Wait until a pod has a node, or is told why it has none."""
    pod = await until(
        lambda: world.api.get(f"{PODS}/{name}"),
        lambda pod: pod["spec"].get("nodeName") or pod["status"].get("conditions"),
    )
    assert pod["spec"].get("nodeName"), pod["status"]


async def _configured(world: World, name: str) -> str:
    """Under which name the agent has written the configuration."""
    pod = await world.api.get(f"{PODS}/{name}")
    keys = [key.rpartition("/")[2] for key in pod["metadata"]["annotations"]]
    [found] = [key for key in keys if key.endswith("-configuration")]
    return str(found).removesuffix("-configuration")


async def _refusal(world: World, name: str) -> str:
    async def message() -> str:
        status = (await world.api.get(f"{PODS}/{name}"))["status"]
        return "".join(each.get("message", "") for each in status.get("conditions", ()))

    return await until(message)
