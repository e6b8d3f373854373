"""Nodes of several kinds, from the driver's file to the pod's annotation."""

from pathlib import Path

from sandbox.demo import observer, pods
from sandbox.world import Machine, World, running
from sandbox.world.premises import FAULT_CODE


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


async def _create(world: World, name: str, count: int, resource: str) -> None:
    await pods.create(world, pods.manifest(name, count, resource=resource))


async def _held(world: World, name: str) -> tuple[str, str, list[int]]:
    """Wait for what was mounted: the node, the kind of chips, and which."""

    async def found() -> tuple[str, str, list[int]] | None:
        pod = await world.api.get(f"/api/v1/namespaces/default/pods/{name}")
        text = pod["metadata"].get("annotations", {}).get("huawei.com/AscendReal")
        if not text:
            return None
        parts = [chip.rpartition("-") for chip in text.split(",")]
        chips = sorted(int(number) for _, _, number in parts)
        return pod["spec"]["nodeName"], parts[0][0], chips

    return await observer.until(found, what=f"the chips of {name}")


async def _configured(world: World, name: str) -> str:
    """Under which name the agent has written the configuration."""
    pod = await world.api.get(f"/api/v1/namespaces/default/pods/{name}")
    keys = [key.rpartition("/")[2] for key in pod["metadata"]["annotations"]]
    [found] = [key for key in keys if key.endswith("-configuration")]
    return str(found).removesuffix("-configuration")


async def _refusal(world: World, name: str) -> str:
    async def found() -> str:
        pod = await world.api.get(f"/api/v1/namespaces/default/pods/{name}")
        conditions = pod["status"].get("conditions", [])
        return "".join(each.get("message", "") for each in conditions)

    return await observer.until(found, what=f"why {name} waits")
