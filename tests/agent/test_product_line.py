"""A node with chips of two product lines: one agent, one report, a plugin for each."""

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from scheduler_core.wire import annotations, deviceinfo, inventory
from tests.agent.site import NODE, PODS, Site, until

MACHINE = """
product: atlas-800-training
beside: [{product: atlas-310p, chips: [8, 9]}]
"""
FAULT = 'faults: [{chip: 9, code: "80E18402", level: SeparateNPU}]\n'
TRAINING, INFERENCE = "huawei.com/Ascend910", "huawei.com/Ascend310P"
REPORT = f"/api/v1/namespaces/kube-system/configmaps/{deviceinfo.configmap_name(NODE)}"


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    # Not tmp_path: the sockets' paths must stay below 108 bytes.
    with tempfile.TemporaryDirectory(prefix="li-") as root:
        site = Site(Path(root), "--recover-s", "0.1")
        await site.start()
        (site.root / "npu.yaml").write_text(MACHINE)
        site.start_agent()
        try:
            await until_offered(site, 8, 2)
            yield site
        finally:
            await site.stop()


async def until_offered(site: Site, training: int, inference: int) -> None:
    """Wait until the kubelet offers so many chips of the two lines."""

    async def look() -> list[str]:
        node = await site.api.get(f"/api/v1/nodes/{NODE}")
        offered = node["status"].get("allocatable", {})
        return [offered.get(each, "none") for each in (TRAINING, INFERENCE)]

    await until(look, [str(training), str(inference)])


async def report(site: Site) -> dict[str, Any]:
    """What the ConfigMap says, parsed."""
    data = (await site.api.get(REPORT))["data"]
    listed = json.loads(data["DeviceInfoCfg"])["DeviceInfo"]["DeviceList"]
    return {**data, **listed, "affinity": json.loads(data["AscendAffinity"])}


async def run(site: Site, name: str, **chips: str) -> None:
    """Create a pod that asks for these chips, and bind it to them.

    Args:
        site: The node.
        name: Of the pod.
        chips: {line: names of chips, as the scheduler writes them}.
    """
    claims = {f"huawei.com/{line}": names for line, names in chips.items()}
    limits = {line: str(len(names.split(","))) for line, names in claims.items()}
    container = {"name": "main", "image": "x", "resources": {"limits": limits}}
    meta = {"name": name, "namespace": "default"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta}
    await site.api.create(PODS, {**pod, "spec": {"containers": [container]}})
    uid = (await site.api.get(f"{PODS}/{name}"))["metadata"]["uid"]
    site.predicate_time += 1
    said = {**claims, annotations.PREDICATE_TIME: str(site.predicate_time)}
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "uid": uid, "annotations": said},
        "target": {"apiVersion": "v1", "kind": "Node", "name": NODE},
    }
    await site.api.create(f"{PODS}/{name}/binding", binding)


async def until_phase(site: Site, name: str, phase: str) -> dict[str, Any]:
    async def look() -> str:
        return str((await site.api.get(f"{PODS}/{name}"))["status"].get("phase"))

    await until(look, phase)
    found: dict[str, Any] = await site.api.get(f"{PODS}/{name}")
    return found


async def until_confirmed(site: Site, *names: str) -> dict[str, str]:
    """Wait until pods are known to be served; {pod: the chips that were mounted}."""

    async def look() -> list[str | None]:
        pods = [await site.api.get(f"{PODS}/{name}") for name in names]
        said = [pod["metadata"]["annotations"] for pod in pods]
        return [each.get(annotations.PREDICATE_TIME) for each in said]

    await until(look, [str(annotations.SERVED)] * len(names))
    pods = [await site.api.get(f"{PODS}/{name}") for name in names]
    real = annotations.ASCEND_REAL
    return {p["metadata"]["name"]: p["metadata"]["annotations"][real] for p in pods}


async def test_pods_of_both_lines_get_their_chips_and_keep_them_through_a_restart(
    site: Site,
) -> None:
    await asyncio.gather(
        run(site, "train", Ascend910="Ascend910-4,Ascend910-5"),
        run(site, "infer", Ascend310P="Ascend310P-9"),
    )
    served = await until_confirmed(site, "train", "infer")

    await site.stop_agent()
    await until_offered(site, 0, 0)
    holds = (site.root / "holds").read_text()
    site.start_agent()
    await until_offered(site, 8, 2)
    await run(site, "more", Ascend310P="Ascend310P-8")
    served |= await until_confirmed(site, "more")

    mounted = {"train": (4, 5), "infer": (9,), "more": (8,)}
    assert site.mounted() == mounted
    assert served == {
        "train": "Ascend910-4,Ascend910-5",
        "infer": "Ascend310P-9",
        "more": "Ascend310P-8",
    }
    assert ['"chips":[4,5]' in holds, '"chips":[9]' in holds] == [True, True]
    held = ["Ascend910-4", "Ascend910-5", "Ascend310P-8", "Ascend310P-9"]

    async def look() -> Any:
        said = await report(site)
        return [said["affinity"]["held"], said[TRAINING], said[INFERENCE]]

    free = ",".join(f"Ascend910-{chip}" for chip in (0, 1, 2, 3, 6, 7))
    await until(look, [held, free, ""])


async def test_a_fault_and_a_name_take_out_chips_of_their_own_line(site: Site) -> None:
    (site.root / "npu.yaml").write_text(MACHINE + FAULT)
    await until_offered(site, 8, 1)

    async def look() -> Any:
        said = await report(site)
        keys = (f"{INFERENCE}-Unhealthy", f"{TRAINING}-Unhealthy", INFERENCE)
        return [said[key] for key in keys]

    await until(look, ["Ascend310P-9", "", "Ascend310P-8"])
    (site.root / "npu.yaml").write_text(MACHINE)
    await until_offered(site, 8, 2)
    names = {"data": {"ManuallySeparateNPU": "Ascend310P-8, Ascend910-3"}}
    await site.api.patch(REPORT, names)
    await until_offered(site, 7, 1)

    await site.stop_agent()
    await until_offered(site, 0, 0)
    site.start_agent()
    await until_offered(site, 7, 1)
    said = await report(site)
    assert said["ManuallySeparateNPU"] == "Ascend310P-8, Ascend910-3"
    await site.api.patch(REPORT, {"data": {"ManuallySeparateNPU": "Ascend310P-8"}})
    await until_offered(site, 8, 1)


async def test_the_node_names_all_chips_and_a_pod_may_ask_for_one_line(
    site: Site,
) -> None:
    async def look() -> Any:
        meta = (await site.api.get(f"/api/v1/nodes/{NODE}"))["metadata"]
        text = meta["annotations"].get(inventory.BASE_DEVICE_INFOS, "{}")
        return [meta["labels"].get("accelerator"), list(json.loads(text))]

    every = ["Ascend310P-8", "Ascend310P-9", *(f"Ascend910-{n}" for n in range(8))]
    await until(look, ["huawei-Ascend910", every])

    await run(site, "both", Ascend910="Ascend910-0", Ascend310P="Ascend310P-8")
    pod = await until_phase(site, "both", "Failed")
    assert (
        "a pod gets NPUs of one kind: ask for huawei.com/Ascend910 or "
        "huawei.com/Ascend310P"
    ) in pod["status"]["message"]
    assert site.mounted() == {}


async def test_what_is_known_of_a_line_that_is_away_for_a_while_is_kept(
    site: Site,
) -> None:
    names = {"data": {"ManuallySeparateNPU": "Ascend310P-8,Ascend910-3"}}
    await site.api.patch(REPORT, names)
    await run(site, "infer", Ascend310P="Ascend310P-9")
    await until_confirmed(site, "infer")
    await until_offered(site, 7, 1)

    for machine, inference in (("product: atlas-800-training\n", 0), (MACHINE, 1)):
        await site.stop_agent()
        await until_offered(site, 0, 0)
        (site.root / "npu.yaml").write_text(machine)
        site.start_agent()
        await until_offered(site, 7, inference)

    async def look() -> Any:
        said = await report(site)
        return [said["affinity"]["held"], said["ManuallySeparateNPU"], said[INFERENCE]]

    await until(look, [["Ascend310P-9"], "Ascend310P-8,Ascend910-3", ""])
