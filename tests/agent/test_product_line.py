"""A node with chips of two product lines: one agent, one report, a plugin for each."""

import asyncio
import json
from typing import Any

import pytest

from scheduler_core.wire import annotations, inventory
from tests.agent.site import NODE, Site
from tests.support.objects import PODS, container, pod
from tests.support.until import equal

MACHINE = """
product: atlas-800-training
beside: [{product: atlas-310p, chips: [8, 9]}]
"""
FAULT = 'faults: [{chip: 9, code: "80E18402", level: SeparateNPU}]\n'
TRAINING, INFERENCE = "huawei.com/Ascend910", "huawei.com/Ascend310P"


pytestmark = pytest.mark.site("--recover-s", "0.1", machine=MACHINE, count=None)


@pytest.fixture
async def site(site: Site) -> Site:
    await until_offered(site, 8, 2)
    return site


async def until_offered(site: Site, training: int, inference: int) -> None:
    """Wait until the kubelet offers so many chips of the two lines."""
    await site.until_offered(Ascend910=training, Ascend310P=inference)


async def report(site: Site) -> dict[str, Any]:
    """What the ConfigMap says, parsed."""
    data = (await site.report())["data"]
    listed = json.loads(data["DeviceInfoCfg"])["DeviceInfo"]["DeviceList"]
    return {**data, **listed, **json.loads(data["AscendAffinity"])}


async def until_reported(site: Site, wanted: dict[str, Any]) -> None:
    """Wait until the ConfigMap says this under these keys."""

    async def look() -> dict[str, Any]:
        said = await report(site)
        return {key: said[key] for key in wanted}

    await site.until(look, equal(wanted))


async def run(site: Site, name: str, **chips: str) -> None:
    """Create a pod that asks for these chips, and bind it to them.

    Args:
        site: The node.
        name: Of the pod.
        chips: {line: names of chips, as the scheduler writes them}.
    """
    claims = {f"huawei.com/{line}": names for line, names in chips.items()}
    limits = {line: str(len(names.split(","))) for line, names in claims.items()}
    made = pod(name, containers=[container(limits=limits)])
    await site.bind_to(made, claims)


async def until_confirmed(site: Site, *names: str) -> dict[str, str]:
    """Wait until pods are known to be served; {pod: the chips that were mounted}."""

    async def look() -> list[dict[str, str]]:
        pods = [await site.api.get(f"{PODS}/{name}") for name in names]
        return [pod["metadata"]["annotations"] for pod in pods]

    served = (annotations.PREDICATE_TIME, str(annotations.SERVED))
    said = await site.until(look, lambda found: all(served in d.items() for d in found))
    return dict(zip(names, (d[annotations.ASCEND_REAL] for d in said), strict=True))


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
    free = ",".join(f"Ascend910-{chip}" for chip in (0, 1, 2, 3, 6, 7))
    await until_reported(site, {"held": held, TRAINING: free, INFERENCE: ""})


async def test_a_fault_and_a_name_take_out_chips_of_their_own_line(site: Site) -> None:
    (site.root / "npu.yaml").write_text(MACHINE + FAULT)
    await until_offered(site, 8, 1)
    bad = {f"{INFERENCE}-Unhealthy": "Ascend310P-9", f"{TRAINING}-Unhealthy": ""}
    await until_reported(site, {**bad, INFERENCE: "Ascend310P-8"})
    (site.root / "npu.yaml").write_text(MACHINE)
    await until_offered(site, 8, 2)
    await site.separate("Ascend310P-8, Ascend910-3")
    await until_offered(site, 7, 1)

    await site.stop_agent()
    await until_offered(site, 0, 0)
    site.start_agent()
    await until_offered(site, 7, 1)
    said = await report(site)
    assert said["ManuallySeparateNPU"] == "Ascend310P-8, Ascend910-3"
    await site.separate("Ascend310P-8")
    await until_offered(site, 8, 1)


async def test_the_node_names_all_chips_and_a_pod_may_ask_for_one_line(
    site: Site,
) -> None:
    async def look() -> Any:
        meta = (await site.api.get(f"/api/v1/nodes/{NODE}"))["metadata"]
        text = meta["annotations"].get(inventory.BASE_DEVICE_INFOS, "{}")
        return [meta["labels"].get("accelerator"), list(json.loads(text))]

    every = ["Ascend310P-8", "Ascend310P-9", *(f"Ascend910-{n}" for n in range(8))]
    await site.until(look, equal(["huawei-Ascend910", every]))

    await run(site, "both", Ascend910="Ascend910-0", Ascend310P="Ascend310P-8")
    refused = await site.until_phase("both", "Failed")
    assert (
        "a pod gets NPUs of one kind: ask for huawei.com/Ascend910 or "
        "huawei.com/Ascend310P"
    ) in refused["status"]["message"]
    assert site.mounted() == {}


async def test_what_is_known_of_a_line_that_is_away_for_a_while_is_kept(
    site: Site,
) -> None:
    await site.separate("Ascend310P-8,Ascend910-3")
    await run(site, "infer", Ascend310P="Ascend310P-9")
    await until_confirmed(site, "infer")
    await until_offered(site, 7, 1)

    for machine, inference in (("product: atlas-800-training\n", 0), (MACHINE, 1)):
        await site.stop_agent()
        await until_offered(site, 0, 0)
        (site.root / "npu.yaml").write_text(machine)
        site.start_agent()
        await until_offered(site, 7, inference)

    separated = {"ManuallySeparateNPU": "Ascend310P-8,Ascend910-3"}
    await until_reported(site, {**separated, "held": ["Ascend310P-9"], INFERENCE: ""})


async def come_and_go(site: Site, name: str) -> str:
    """A pod of both chips of the second line comes and goes; the phase that it had."""
    both = "Ascend310P-8,Ascend310P-9"
    await run(site, name, Ascend310P=both)
    found = await site.until(
        lambda: site.api.get(f"{PODS}/{name}"),
        lambda pod: pod["status"]["phase"] != "Pending",
    )
    if found["status"]["phase"] == "Running":
        await until_confirmed(site, name)
        await site.api.delete(f"{PODS}/{name}")
    return str(found["status"]["phase"])


async def test_d21_pods_of_the_second_line_follow_one_another(site: Site) -> None:
    phases = [await come_and_go(site, name) for name in ("one", "two", "three")]

    assert phases == ["Running"] * 3
    await until_reported(site, {"held": [], INFERENCE: "Ascend310P-8,Ascend310P-9"})
