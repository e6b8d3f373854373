"""Parts that were cut beforehand, given out by claims, as whole chips are."""

import json

import pytest

from agent.claims.values import Hold
from agent.devices.simulated import file
from agent.journal import writer
from agent.monitor import parts
from sandbox.apiclient import Object
from scheduler_core.products import lookup
from scheduler_core.products.columns import Product
from scheduler_core.products.table import ATLAS_800_TRAINING as TRAINING
from scheduler_core.wire import annotations, deviceinfo, inventory
from tests.agent.site import NODE, Site
from tests.support.objects import NODES, PODS, container, pod

QUARTER = "huawei.com/Ascend910-4c"
MACHINE = """
product: atlas-800-training
virtual:
  - {chip: 6, number: 196, kind: 4c}
  - {chip: 6, number: 197, kind: 4c}
  - {chip: 7, number: 212, kind: 4c}
  - {chip: 7, number: 213, kind: 4c}
  - {chip: 7, number: 214, kind: 4c}
  - {chip: 5, number: 180, kind: 16c}
"""
#: Cut while the agent runs.
LATER = MACHINE + "  - {chip: 5, number: 181, kind: 4c}\n"
FAULT = 'faults: [{chip: 7, code: "80E18402", level: SeparateNPU}]\n'


def row_of(resource: str, machine: str = LATER) -> Product:
    """The row of a kind, with the parts that the machine has."""
    rows = parts.kinds_of(file.parse(machine))
    return next(row for row in rows if row.resource == resource)


class PartSite(Site):
    """A node of which the quarters are looked at."""

    @staticmethod
    def pod(name: str, count: int) -> Object:
        return pod(name, count, resource=QUARTER)

    def mounted(self) -> dict[str, tuple[int, ...]]:
        """{pod: ids of the parts that its containers see}."""
        return {
            name: tuple(number - 100 for number in numbers)
            for name, numbers in super().mounted().items()
        }


pytestmark = pytest.mark.site(
    *("--recover-s", "0.1"),
    of=PartSite,
    product=row_of(QUARTER),
    machine=MACHINE,
    count=5,
)


async def claim(site: Site, name: str, part: str) -> None:
    """Bind a pod to a part, as the extender does, and see it run."""
    await site.bind_to(site.pod(name, 1), {QUARTER: part})
    await site.until_phase(name, "Running")


async def run(site: Site, name: str) -> None:
    """Run a pod that a scheduler without an extender has bound."""
    await site.api.create(PODS, pod(name, 1, resource=QUARTER, node=NODE))
    await site.until_phase(name, "Running")


async def test_each_pod_gets_the_part_of_its_claim(site: Site) -> None:
    claims = {"a": "Ascend910-4c-214-7", "b": "Ascend910-4c-196-6"}
    for name, part in claims.items():
        await claim(site, name, part)
    await site.settle()

    assert site.mounted() == {"a": (114,), "b": (96,)}
    for name, part in claims.items():
        said = (await site.api.get(f"{PODS}/{name}"))["metadata"]["annotations"]
        assert said[annotations.ASCEND_REAL] == said[annotations.KLT_DEV] == part
        assert annotations.CONFIGURATION not in said
    options = {each.env["ASCEND_RUNTIME_OPTIONS"] for each in site.kubelet.containers()}
    assert options == {"VIRTUAL"}


@pytest.mark.long
async def test_twenty_pods_come_and_go_and_each_part_has_one_owner(site: Site) -> None:
    for number in range(20):
        while not await site.bind(f"p{number}", 1):  # the last one's is not free yet
            await site.settle()
        await site.until_phase(f"p{number}", "Running")
        if number >= 3:
            await site.api.delete(f"{PODS}/p{number - 3}")
    await site.settle()

    assert sorted(site.mounted()) == ["p17", "p18", "p19"]


async def test_a_pod_without_a_claim_gets_a_part_of_the_fullest_chip(
    site: Site,
) -> None:
    await run(site, "p")
    await site.settle()

    assert site.mounted() == {"p": (96,)}
    assert (await site.affinity()).held == (96,)


async def test_a_claim_that_cannot_be_read_is_none(site: Site) -> None:
    """A scheduler without parts writes its predicate-time alone."""
    await site.bind_to(site.pod("p", 1), {})
    await site.until_phase("p", "Running")
    await site.settle()

    assert site.mounted() == {"p": (96,)}


async def test_a_container_gets_one_part_and_no_more(site: Site) -> None:
    await site.api.create(PODS, pod("greedy", 2, resource=QUARTER, node=NODE))
    refused = await site.until_phase("greedy", "Failed")

    assert f"a container gets 1 {QUARTER}, not 2" in refused["status"]["message"]


async def test_two_containers_get_a_part_each(site: Site) -> None:
    asks = [container(name, 1, resource=QUARTER) for name in ("one", "two")]
    await site.api.create(PODS, pod("p", containers=asks, node=NODE))
    await site.until_phase("p", "Running")
    await site.settle()

    assert site.mounted() == {"p": (96, 97)}


async def test_parts_are_as_healthy_as_their_chip(site: Site) -> None:
    (site.root / "npu.yaml").write_text(MACHINE + FAULT)
    await site.until_allocatable(2)
    (site.root / "npu.yaml").write_text(MACHINE)
    await site.until_allocatable(5)


async def test_parts_that_are_cut_later_are_offered(site: Site) -> None:
    (site.root / "npu.yaml").write_text(LATER)
    await site.until_allocatable(6)
    await claim(site, "p", "Ascend910-4c-181-5")
    await site.settle()

    assert site.mounted() == {"p": (81,)}


async def test_a_restart_keeps_who_has_which_part(site: Site) -> None:
    await claim(site, "p", "Ascend910-4c-213-7")
    await site.settle()
    await site.restart_agent(5)
    await run(site, "q")
    await site.settle()

    assert site.mounted() == {"p": (113,), "q": (96,)}


async def test_parts_of_an_agent_that_kept_no_holds_stay_taken(site: Site) -> None:
    await run(site, "p")
    await site.settle()
    await site.stop_agent()
    await site.until_allocatable(0)
    (site.root / "holds").unlink()
    none = dict.fromkeys((QUARTER, annotations.ASCEND_REAL, annotations.KLT_DEV))
    await site.api.patch(f"{PODS}/p", {"metadata": {"annotations": none}})
    site.start_agent()
    await site.until_allocatable(5)

    affinity = await site.until(site.affinity, lambda found: found.held)

    assert affinity.held == (96,)


async def test_the_node_names_its_parts_and_keeps_cut_chips_from_others(
    site: Site,
) -> None:
    await claim(site, "p", "Ascend910-4c-213-7")
    await site.settle()
    marks = (await site.api.get(f"{NODES}/{NODE}"))["metadata"]["annotations"]
    listed = marks[inventory.BASE_DEVICE_INFOS]
    text = (await site.report())["data"][deviceinfo.AFFINITY_KEY]
    half = lookup.find_virtual_row("huawei.com/Ascend910-16c")
    assert half is not None

    assert inventory.parse(listed, row_of(QUARTER)) == (96, 97, 112, 113, 114)
    assert inventory.parse(listed, half) == (80,)
    assert inventory.parse(listed, TRAINING) == tuple(range(8))
    assert deviceinfo.parse_affinity(text, TRAINING).held == (5, 6, 7)
    assert json.loads(text)["static"] == {"held": ["Ascend910-4c-213-7"]}


@pytest.mark.parametrize(
    ("shown", "kinds"),
    [
        ("{chip: 7, number: 212, kind: 4c}, {chip: 6, number: 196, kind: 8c}", 2),
        ("{chip: 7, number: 212, kind: 4c}, {chip: 7, number: 100, kind: 4c}", 0),
        ("{chip: 7, number: 212, kind: 4c.3cpu}", 0),  # a kind of no template
    ],
)
def test_only_kinds_with_ids_are_given_out_by_claims(shown: str, kinds: int) -> None:
    text = f"product: atlas-800-training\nvirtual: [{shown}]\n"

    assert len(parts.kinds_of(file.parse(text))) == kinds


@pytest.mark.parametrize(
    ("name", "is_of_chips", "is_of_quarters"),
    [
        ("Ascend910-7", True, False),
        ("Ascend910-4c-213-7", False, True),
        ("Ascend910-16c-180-5", False, False),
    ],
)
def test_the_journal_tells_holds_of_parts_from_holds_of_chips(
    name: str, *, is_of_chips: bool, is_of_quarters: bool
) -> None:
    entry = Hold(sequence=1, kubelet_ids=(name,), chips=(7,), slot="uid", need=0)

    assert writer.is_of_line(entry, TRAINING) is is_of_chips
    assert writer.is_of_line(entry, row_of(QUARTER)) is is_of_quarters
