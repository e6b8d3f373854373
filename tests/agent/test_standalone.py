"""Standalone mode: no scheduler of ours; plugin, kubelet and API server are real."""

import pytest

from kubelet_api.deviceplugin.v1beta1 import api_pb2
from sandbox.apiclient import Object
from scheduler_core.node import chips as chip_sets
from scheduler_core.products.table import ATLAS_800_TRAINING as PRODUCT
from tests.agent.node import ids
from tests.agent.plugin.conftest import plugin_at
from tests.agent.site import NODE, RESOURCE, Site, running_site
from tests.agent.two_lines import on_both_nodes_long
from tests.support import objects
from tests.support.objects import PODS, container
from tests.support.until import equal

READS_ANNOTATION = {
    "name": "ASCEND_VISIBLE_DEVICES",
    "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{RESOURCE}']"}},
}


pytestmark = pytest.mark.site("--mode", "standalone")


def pod(name: str, *counts: int, **init: int) -> Object:
    """A pod on this node whose containers ask for these counts of chips.

    Args:
        name: Its name.
        counts: Of its app containers; `init` and `sidecar` come before them.
        init: By kind.
    """
    always: dict[str, Object] = {"sidecar": {"restartPolicy": "Always"}}
    return objects.pod(
        name,
        node=NODE,
        initContainers=[
            container(kind, count, **always.get(kind, {}))
            for kind, count in init.items()
        ],
        containers=[container(f"c{i}", count) for i, count in enumerate(counts)],
    )


async def klt_dev(site: Site, name: str) -> str:
    """The ids that a pod's annotation names."""
    found = await site.api.get(f"{PODS}/{name}")
    return str(found["metadata"]["annotations"]["huawei.com/kltDev"])


async def run(site: Site, *pods: Object) -> None:
    for each in pods:
        await site.api.create(PODS, each)
    for each in pods:
        await site.until_phase(each["metadata"]["name"], "Running")


def mounted(site: Site, name: str) -> dict[str, int]:
    """{container: mask of the chips that it sees}, of one running pod."""
    return {
        record.container: chip_sets.mask_of(
            map(int, record.env["ASCEND_VISIBLE_DEVICES"].split(","))
        )
        for record in site.kubelet.containers()
        if record.pod == name and record.running
    }


def union(masks: dict[str, int]) -> int:
    return chip_sets.mask_of(c for m in masks.values() for c in chip_sets.ids_of(m))


@on_both_nodes_long
async def test_pods_of_any_scheduler_get_what_the_core_would_choose(site: Site) -> None:
    await run(site, pod("one", 1))
    await run(site, pod("four", 4))
    await run(site, pod("two", 2))
    await site.settle()

    assert site.mounted() == {"one": (0,), "two": (1, 2), "four": (4, 5, 6, 7)}
    assert await klt_dev(site, "four") == ",".join(ids(4, 5, 6, 7))


@on_both_nodes_long
async def test_a_kubelet_that_ignores_the_preference_changes_nothing_but_ids(
    site: Site,
) -> None:
    site.kubelet.switches.scripted_ids.append(list(ids(0, 3, 4, 7)))

    await run(site, pod("four", 4))
    await site.settle()

    assert site.mounted() == {"four": (0, 1, 2, 3)}
    assert await klt_dev(site, "four") == ",".join(ids(0, 3, 4, 7))


@on_both_nodes_long
async def test_ids_that_are_as_good_as_any_are_followed(site: Site) -> None:
    site.kubelet.switches.scripted_ids.append(["Ascend910-5", "Ascend910-6"])

    await run(site, pod("two", 2))
    await site.settle()

    assert site.mounted() == {"two": (5, 6)}


@on_both_nodes_long
async def test_the_containers_of_a_pod_are_legal_together(site: Site) -> None:
    await run(site, pod("first", 1), pod("team", 1, 1, sidecar=2))

    parts = mounted(site, "team")
    assert {name: mask.bit_count() for name, mask in parts.items()} == {
        "sidecar": 2,
        "c0": 1,
        "c1": 1,
    }
    assert chip_sets.is_legal(PRODUCT, union(parts))


@on_both_nodes_long
async def test_an_init_container_hands_its_chips_on(site: Site) -> None:
    await run(site, pod("staged", 1, 1, init=2))

    assert union(mounted(site, "staged")).bit_count() == 2
    assert chip_sets.is_legal(PRODUCT, union(mounted(site, "staged")))
    await site.until(
        lambda: site.api.get(f"{PODS}/staged"),
        lambda found: (
            found["metadata"].get("annotations", {}).get("huawei.com/AscendReal")
            == "Ascend910-0,Ascend910-1"
        ),
    )


@on_both_nodes_long
async def test_many_at_once_share_the_node_without_overlap(site: Site) -> None:
    await run(site, *(pod(f"p{i}", 1) for i in range(8)))

    await site.settle()

    assert sorted(site.mounted().values()) == [(chip,) for chip in range(8)]


@on_both_nodes_long
async def test_another_agent_goes_on_where_the_last_one_was(site: Site) -> None:
    await run(site, pod("old", 2))
    await site.settle()

    await site.restart_agent()
    await run(site, pod("new", 2))
    await site.settle()

    assert site.mounted() == {"old": (0, 1), "new": (2, 3)}


@on_both_nodes_long
async def test_chips_come_back_when_a_pod_has_ended(site: Site) -> None:
    await run(site, pod("all", 8))
    await site.settle()

    await site.api.delete(f"{PODS}/all")
    await site.until(lambda: site.api.items(PODS), equal([]))
    await run(site, pod("next", 8))
    await site.settle()

    assert site.mounted() == {"next": tuple(range(8))}


@on_both_nodes_long
async def test_an_unusual_count_is_served_close_together(site: Site) -> None:
    await run(site, pod("two", 2), pod("three", 3))

    await site.settle()

    assert site.mounted() == {"two": (0, 1), "three": (4, 5, 6)}


@on_both_nodes_long
async def test_a_pod_whose_chips_are_apart_runs_and_is_told_so(site: Site) -> None:
    site.kubelet.switches.scripted_ids.extend([["Ascend910-0"], ["Ascend910-4"]])
    await run(site, pod("a", 1))
    await run(site, pod("b", 1))

    await run(site, pod("four", 4))
    await site.settle()

    assert site.mounted() == {"a": (0,), "b": (4,), "four": (1, 2, 3, 5)}
    (told,) = await site.until(lambda: site.events("NpuChipsApart"))
    name, text = told["involvedObject"]["name"], told["message"]
    assert name == "four"
    assert text == (
        "the pod's chips are not together: when it came, no group of chips on this "
        "node had enough free ones, and in standalone mode nobody looks at other nodes"
    )


async def test_the_kubelet_is_told_numa_nodes_by_setting() -> None:
    numa = "product: atlas-800-training\nnuma: [0, 0, 0, 0, 1, 1, 1, 1]\n"
    mode = ("--mode", "standalone", "--numa-topology")
    async with running_site(*mode, machine=numa) as site:
        socket = site.kubelet.device_plugin_dir / "Ascend910.sock"
        async with plugin_at(socket) as plugin:
            told = await anext(aiter(plugin.ListAndWatch(api_pb2.Empty())))

    assert [[node.ID for node in device.topology.nodes] for device in told.devices] == [
        [0]
    ] * 4 + [[1]] * 4


@on_both_nodes_long
@pytest.mark.parametrize(
    ("variable", "says"),
    [
        (
            READS_ANNOTATION,
            "leave the variable out, the device plugin sets it",
        ),
        (
            {"name": "ASCEND_VISIBLE_DEVICES", "value": "0"},
            "default/named: container c0 sets ASCEND_VISIBLE_DEVICES: leave it out",
        ),
    ],
)
async def test_a_pod_that_says_itself_what_to_mount_is_refused_with_what_to_do(
    site: Site, variable: Object, says: str
) -> None:
    named = pod("named", 1)
    named["spec"]["containers"][0]["env"] = [variable]

    await site.api.create(PODS, named)
    found = await site.until_phase("named", "Failed")

    assert found["status"]["reason"] == "UnexpectedAdmissionError"
    assert says in found["status"]["message"]
    await run(site, pod("next", 1))
    await site.settle()
