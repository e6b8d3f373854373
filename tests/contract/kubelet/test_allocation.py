"""Which calls an admission makes, in which order, and with which ids."""

import pytest

from tests.contract.kubelet.plugin import Allocate, Plugin, Preference
from tests.contract.kubelet.site import Site
from tests.support.until import until

pytestmark = pytest.mark.contract

ALL = frozenset(f"dev-{i}" for i in range(8))


def ids(*numbers: int) -> frozenset[str]:
    return frozenset(f"dev-{i}" for i in numbers)


async def test_all_free_ids_are_offered_and_the_preferred_ones_allocated(
    site: Site, plugin: Plugin
) -> None:
    await site.running_pod(2)

    assert plugin.calls == [
        Preference(available=ALL, must_include=frozenset(), size=2),
        Allocate(ids=ids(0, 1)),
    ]


async def test_without_the_option_the_plugin_is_not_asked_for_a_preference(
    site: Site, plugin: Plugin
) -> None:
    await plugin.stop()
    await site.until_counts(capacity=8, allocatable=0)
    other = site.socket.with_suffix(".2.sock")
    plugin.prefers = None
    await plugin.serve(other)
    await plugin.register(other)
    await site.until_counts(capacity=8, allocatable=8)

    await site.running_pod(8)

    assert plugin.calls == [Allocate(ids=ALL)]


async def test_what_the_preference_lacks_is_filled_up_from_the_free_ids(
    site: Site, plugin: Plugin
) -> None:
    plugin.prefers = lambda _: ["dev-5", "dev-99"]

    await site.running_pod(3)

    (allocated,) = plugin.allocations
    assert (len(allocated), ids(5) < allocated < ALL) == (3, True)


async def test_of_too_many_preferred_ids_only_those_are_taken(
    site: Site, plugin: Plugin
) -> None:
    plugin.prefers = lambda _: ["dev-2", "dev-4", "dev-6"]

    await site.running_pod(2)

    (allocated,) = plugin.allocations
    assert (len(allocated), allocated < ids(2, 4, 6)) == (2, True)


async def test_held_and_unhealthy_ids_are_not_offered(
    site: Site, plugin: Plugin
) -> None:
    await plugin.report(dev_7="Unhealthy")
    await site.until_counts(capacity=8, allocatable=7)
    await site.running_pod(2)

    await site.running_pod(1)

    assert plugin.calls[2:] == [
        Preference(available=ids(2, 3, 4, 5, 6), must_include=frozenset(), size=1),
        Allocate(ids=ids(2)),
    ]


async def test_all_containers_have_devices_before_the_first_of_them_runs(
    site: Site, plugin: Plugin
) -> None:
    plugin.open.clear()

    pod = await site.pod(1, 2)
    await plugin.entered.wait()

    status = (await site.api.get(_path(pod)))["status"]
    assert status.get("containerStatuses") is None
    plugin.open.set()
    await site.until_phase(pod, "Running")
    assert plugin.allocations == [ids(0), ids(1, 2)]


async def test_app_containers_use_the_ids_of_init_containers_without_a_question(
    site: Site, plugin: Plugin
) -> None:
    await site.running_pod(2, init=(2,))

    assert plugin.calls == [
        Preference(available=ALL, must_include=frozenset(), size=2),
        Allocate(ids=ids(0, 1)),
        Allocate(ids=ids(0, 1)),
    ]


async def test_ids_of_init_containers_are_named_as_must_include_if_more_are_needed(
    site: Site, plugin: Plugin
) -> None:
    await site.running_pod(1)
    plugin.calls.clear()

    await site.running_pod(4, init=(2,))

    assert plugin.calls == [
        Preference(available=ALL - ids(0), must_include=frozenset(), size=2),
        Allocate(ids=ids(1, 2)),
        Preference(available=ALL - ids(0), must_include=ids(1, 2), size=4),
        Allocate(ids=ids(1, 2, 3, 4)),
    ]


async def test_a_second_init_container_uses_the_ids_of_the_first(
    site: Site, plugin: Plugin
) -> None:
    await site.running_pod(1, init=(2, 1))

    first, second, app = plugin.allocations
    assert (first, len(second), second < first) == (ids(0, 1), 1, True)
    assert (len(app), app < first) == (1, True)


async def test_a_sidecar_keeps_its_ids_to_itself(site: Site, plugin: Plugin) -> None:
    await site.running_pod(1, sidecars=(2,))

    assert plugin.calls == [
        Preference(available=ALL, must_include=frozenset(), size=2),
        Allocate(ids=ids(0, 1)),
        Preference(available=ALL - ids(0, 1), must_include=frozenset(), size=1),
        Allocate(ids=ids(2)),
    ]


async def test_a_failed_allocate_ends_the_pod_with_the_plugins_text(
    site: Site, plugin: Plugin
) -> None:
    plugin.refusal = "chip 3 is held by somebody else"

    status = await site.until_phase(await site.pod(2), "Failed")

    assert status["reason"] == "UnexpectedAdmissionError"
    assert status["message"] == (
        "Pod was rejected: Allocate failed due to rpc error: code = "
        "FailedPrecondition desc = chip 3 is held by somebody else, "
        "which is unexpected"
    )


async def test_ids_of_a_failed_allocate_are_free_again(
    site: Site, plugin: Plugin
) -> None:
    plugin.refusal = "no"
    await site.until_phase(await site.pod(8), "Failed")
    plugin.refusal = ""

    await site.running_pod(8)

    assert plugin.allocations == [ALL, ALL]


async def test_more_than_there_are_is_refused_with_both_numbers(site: Site) -> None:
    await site.plugin(count=4)

    status = await site.until_phase(await site.pod(5), "Failed")

    assert status["message"] == (
        "Pod was rejected: Allocate failed due to requested number of devices "
        f"unavailable for {site.resource}. Requested: 5, Available: 4, "
        "which is unexpected"
    )


async def test_a_pod_for_a_resource_that_no_plugin_serves_runs_without_devices(
    site: Site,
) -> None:
    pod = await site.pod(2)

    await site.until_phase(pod, "Running")

    assert await site.shown_by_get(pod) == {"c0": []}


async def test_while_one_allocate_hangs_no_other_pod_is_admitted(
    site: Site, plugin: Plugin
) -> None:
    plugin.open.clear()
    first = await site.pod(1)
    await plugin.entered.wait()

    second = await site.pod(1)
    third = await site.pod(0)

    # The hanging one has to be let go before anything else can happen at all.
    status = (await site.api.get(_path(third)))["status"]
    assert (len(plugin.allocations), status["phase"]) == (1, "Pending")
    plugin.open.set()
    for pod in (first, second, third):
        await site.until_phase(pod, "Running")
    assert len(plugin.allocations) == 2


async def test_ids_of_a_deleted_pod_go_to_the_next(site: Site, plugin: Plugin) -> None:
    first = await site.running_pod(8)
    await site.delete(first)

    await site.running_pod(8)

    assert plugin.allocations == [ALL, ALL]


async def test_pod_resources_shows_the_admitted_pod_before_it_runs(site: Site) -> None:
    await site.plugin()
    pod = await site.pod(2)

    async def shown() -> bool:
        return await site.shown_by_get(pod) == {"c0": [["dev-0"], ["dev-1"]]}

    await site.until_phase(pod, "Running")
    await until(shown)


def _path(pod: dict[str, dict[str, str]]) -> str:
    return f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}"
