"""A chip that is separated by name, from the ConfigMap to the kubelet and back."""

from tests.agent.site import Site
from tests.agent.two_lines import on_both_nodes


@on_both_nodes
async def test_a_separated_chip_is_kept_from_the_kubelet_until_its_name_goes(
    site: Site,
) -> None:
    await site.separate("Ascend910-3")
    await site.until_allocatable(7)

    await site.restart_agent(7)
    report = await site.report()
    assert report["data"]["ManuallySeparateNPU"] == "Ascend910-3"

    await site.separate("")
    await site.until_allocatable(8)
