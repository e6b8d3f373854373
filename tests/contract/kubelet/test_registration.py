"""What a kubelet does when plugins come, change and go."""

import grpc.aio
import pytest

from tests.contract.kubelet.plugin import Plugin
from tests.contract.kubelet.site import Site
from tests.support.until import until

pytestmark = pytest.mark.contract


async def test_the_kubelet_asks_for_options_first_and_then_for_devices(
    site: Site, plugin: Plugin
) -> None:
    assert plugin.order == ["GetDevicePluginOptions", "ListAndWatch"]


async def test_devices_become_capacity_and_allocatable_of_the_node(site: Site) -> None:
    await site.plugin()

    assert await site.counts() == (8, 8)


async def test_an_unhealthy_device_stays_in_capacity_and_leaves_allocatable(
    site: Site, plugin: Plugin
) -> None:
    await plugin.report(dev_3="Unhealthy")

    await site.until_counts(capacity=8, allocatable=7)
    assert await site.allocatable() == [[f"dev-{i}"] for i in range(8) if i != 3]
    await plugin.report(dev_3="Healthy")
    await site.until_counts(capacity=8, allocatable=8)


async def test_another_version_of_the_contract_is_refused(site: Site) -> None:
    plugin = Plugin(site.resource)
    await plugin.serve(site.socket)

    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await plugin.register(site.socket, version="v1alpha1")

    assert refused.value.code() is grpc.StatusCode.UNKNOWN
    assert 'requested API version "v1alpha1" is not supported' in str(
        refused.value.details()
    )
    await plugin.stop()


async def test_a_resource_without_a_domain_is_refused(site: Site) -> None:
    plugin = Plugin("chips")
    await plugin.serve(site.socket)

    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await plugin.register(site.socket)

    assert refused.value.details() == 'the ResourceName "chips" is invalid'
    await plugin.stop()


async def test_a_plugin_that_goes_leaves_its_capacity_and_nothing_allocatable(
    site: Site, plugin: Plugin
) -> None:
    await plugin.stop()

    await site.until_counts(capacity=8, allocatable=0)


async def test_a_plugin_may_register_again_on_another_socket(site: Site) -> None:
    first = await site.plugin()
    await first.stop()
    await site.until_counts(capacity=8, allocatable=0)

    await site.plugin(site.socket.with_suffix(".2.sock"), count=4)

    assert await site.counts() == (4, 4)


async def test_a_plugin_that_takes_over_socket_and_resource_is_called_from_then_on(
    site: Site,
) -> None:
    first = await site.plugin()
    site.socket.unlink()

    second = await site.plugin(site.socket, count=4)

    await site.until_counts(capacity=4, allocatable=4)
    assert (first.streams, second.streams) == (1, 1)


async def test_an_old_stream_that_ends_takes_the_new_registration_down(
    site: Site,
) -> None:
    first = await site.plugin()
    second = await site.plugin(site.socket.with_suffix(".2.sock"), count=4)
    assert (first.streams, second.streams) == (1, 1)

    await first.end_streams()

    await site.until_counts(capacity=4, allocatable=0)

    async def hung_up() -> bool:
        return second.streams == 0

    await until(hung_up)
