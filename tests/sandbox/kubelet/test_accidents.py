"""What goes wrong on real nodes, and can be made to go wrong here."""

import pytest

from sandbox.apiclient import Object, pod_path
from sandbox.apiserver import ApiServer
from sandbox.kubelet import Kubelet
from tests.contract.kubelet.plugin import Preference
from tests.contract.kubelet.site import Site
from tests.sandbox.kubelet.conftest import mounted, name
from tests.support.objects import container
from tests.support.until import equal, until


async def events(site: Site, pod: Object) -> list[tuple[str, str]]:
    return [
        (event["reason"], event["message"])
        for event in await site.api.items("/api/v1/namespaces/default/events")
        if event["involvedObject"]["uid"] == pod["metadata"]["uid"]
    ]


async def test_scripted_ids_take_the_place_of_the_preference(
    site: Site, kubelet: Kubelet
) -> None:
    plugin = await site.plugin()
    kubelet.switches.scripted_ids.append(["dev-7", "dev-0"])

    await site.running_pod(2)
    await site.running_pod(1)

    assert plugin.allocations == [frozenset({"dev-0", "dev-7"}), frozenset({"dev-1"})]


async def test_ignored_preferences_are_asked_for_and_not_honoured(
    site: Site, kubelet: Kubelet
) -> None:
    plugin = await site.plugin()
    kubelet.switches.ignore_preferences = True

    for _ in range(4):
        await site.running_pod(1)

    assert [isinstance(call, Preference) for call in plugin.calls] == [True, False] * 4
    lowest = [frozenset({f"dev-{i}"}) for i in range(4)]
    assert plugin.allocations != lowest


async def test_held_pods_are_admitted_in_the_order_that_is_asked_for(
    site: Site, kubelet: Kubelet
) -> None:
    plugin = await site.plugin()
    kubelet.switches.hold_admission = True
    one, two, three = [await site.pod(count) for count in (1, 2, 3)]

    await kubelet.admit([name(three), f"default/{name(one)}", name(two)])

    assert [len(ids) for ids in plugin.allocations] == [3, 1, 2]


async def test_a_held_pod_that_is_deleted_is_never_admitted(
    site: Site, kubelet: Kubelet
) -> None:
    plugin = await site.plugin()
    kubelet.switches.hold_admission = True
    pod = await site.pod(1)

    await site.delete(pod)

    assert plugin.calls == []


async def test_a_pod_can_be_rejected_after_its_allocate(
    site: Site, kubelet: Kubelet
) -> None:
    plugin = await site.plugin()
    kubelet.switches.hold_admission = True
    pod = await site.pod(8)
    kubelet.switches.reject_after_allocate.add(name(pod))
    await kubelet.admit([name(pod)])

    status = await site.until_phase(pod, "Failed")

    assert (status["reason"], len(plugin.allocations)) == ("AppArmor", 1)
    assert mounted(kubelet) == {}
    # Its ids are free at the next allocation, not before.
    assert len(kubelet.allocated()[site.resource]) == 8
    kubelet.switches.hold_admission = False
    await site.running_pod(8)


async def test_a_rejection_is_an_event_on_the_pod(site: Site) -> None:
    plugin = await site.plugin()
    plugin.refusal = "no claim"
    pod = await site.pod(1)
    await site.until_phase(pod, "Failed")

    message = (
        "Allocate failed due to rpc error: code = FailedPrecondition "
        "desc = no claim, which is unexpected"
    )

    wanted = equal([("UnexpectedAdmissionError", message)])
    await until(lambda: events(site, pod), wanted)


async def test_force_deleted_pods_run_on_while_their_ids_go_to_others(
    site: Site, kubelet: Kubelet
) -> None:
    kubelet.switches.stop_s = 20.0
    await site.plugin()
    first = await site.running_pod(8)
    await site.remove(first)

    second = await site.running_pod(8)

    everything = tuple(f"dev-{i}" for i in range(8))
    assert mounted(kubelet) == {
        f"{name(first)}/c0": everything,
        f"{name(second)}/c0": everything,
    }
    assert list(await site.shown_by_list()) == [name(second)]


async def test_what_runs_of_a_force_deleted_pod_ends(
    site: Site, kubelet: Kubelet
) -> None:
    await site.plugin()
    first, second = await site.running_pod(1), await site.running_pod(1)
    stays = {key: ids for key, ids in mounted(kubelet).items() if name(second) in key}

    await site.remove(first)

    await until(lambda: mounted(kubelet), equal(stays))


async def test_a_pod_that_goes_during_its_admission_leaves_nothing_running(
    site: Site, kubelet: Kubelet
) -> None:
    # as one that is deleted while it is being bound: without grace
    plugin = await site.plugin()
    plugin.open.clear()
    pod = await site.pod(1)
    await plugin.entered.wait()
    await site.remove(pod)
    plugin.open.set()

    next_one = await site.running_pod(1)

    await until(lambda: list(mounted(kubelet)), equal([f"{name(next_one)}/c0"]))


async def test_list_during_an_allocate_lets_the_kubelet_give_one_id_to_two_pods(
    site: Site, kubelet: Kubelet
) -> None:
    # server_v1.go:74 -> manager.go:577, while manager.go:890 waits for the plugin.
    plugin = await site.plugin(count=2)
    ending = await site.running_pod(1, restartPolicy="Never")
    plugin.open.clear()
    first = await site.pod(1)
    await plugin.entered.wait()
    kubelet.finish(name(ending), "c0")
    await site.until_phase(ending, "Succeeded")

    await site.shown_by_list()
    plugin.open.set()
    await site.until_phase(first, "Running")
    plugin.prefers = lambda _: ["dev-1"]
    second = await site.running_pod(1)

    assert mounted(kubelet) == {
        f"{name(first)}/c0": ("dev-1",),
        f"{name(second)}/c0": ("dev-1",),
    }


async def test_a_pods_own_variable_wins_over_the_plugins(
    site: Site, kubelet: Kubelet
) -> None:
    await site.plugin()
    field = {"fieldPath": "metadata.annotations['huawei.com/Ascend910']"}
    env = [
        {"name": "DEVICES", "valueFrom": {"fieldRef": field}},
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "LITERAL", "value": "7"},
    ]
    asking = container("c", 1, resource=site.resource, env=env)
    kubelet.switches.hold_admission = True
    pod = await site.pod(0, containers=[asking])
    annotated = {"metadata": {"annotations": {"huawei.com/Ascend910": "Ascend910-5"}}}
    await site.api.patch(pod_path(pod), annotated)
    await until(lambda: _knows(kubelet, name(pod)))

    await kubelet.admit([name(pod)])
    await site.until_phase(pod, "Running")

    (record,) = kubelet.containers()
    assert dict(record.env) == {
        "DEVICES": "Ascend910-5",
        "NODE": "node-1",
        "LITERAL": "7",
    }
    assert record.ids == ("dev-0",)


def _knows(kubelet: Kubelet, pod: str) -> bool:
    held = kubelet._running().sync._held.values()
    return any(
        held_pod.name == pod and held_pod.source["metadata"].get("annotations")
        for held_pod in held
    )


async def test_a_device_that_leaves_the_list_during_allocate_kills_the_kubelet(
    site: Site, kubelet: Kubelet
) -> None:
    plugin = await site.plugin()
    plugin.open.clear()
    await site.pod(1)
    await plugin.entered.wait()
    del plugin.devices["dev-0"]
    await plugin.report()
    await site.until_counts(capacity=7, allocatable=7)

    plugin.open.set()

    await until(lambda: kubelet.panics, equal(1))


async def test_init_containers_run_to_their_end_one_after_the_other(
    site: Site, kubelet: Kubelet
) -> None:
    await site.plugin()
    kubelet.switches.init_container_s = float("inf")
    pod = await site.pod(1, init=(1, 1))

    for init in ("i0", "i1"):
        await until(lambda: list(mounted(kubelet)), equal([f"{name(pod)}/{init}"]))
        kubelet.finish(name(pod), init)
    await until(lambda: list(mounted(kubelet)), equal([f"{name(pod)}/c0"]))
    status = await site.until_phase(pod, "Running")
    assert [
        (one["name"], "terminated" in one["state"])
        for one in status["initContainerStatuses"]
    ] == [("i0", True), ("i1", True)]


async def test_a_container_that_ends_is_restarted_with_the_same_ids(
    site: Site, kubelet: Kubelet
) -> None:
    plugin = await site.plugin()
    pod = await site.running_pod(2)

    kubelet.finish(name(pod), "c0", exit_code=1)

    await until(
        lambda: site.until_phase(pod, "Running"),
        lambda status: status["containerStatuses"][0]["restartCount"] == 1,
    )
    assert mounted(kubelet) == {f"{name(pod)}/c0": ("dev-0", "dev-1")}
    assert len(plugin.allocations) == 1


@pytest.mark.parametrize(
    ("policy", "exit_code", "phase"),
    [("Never", 0, "Succeeded"), ("Never", 1, "Failed"), ("OnFailure", 0, "Succeeded")],
)
async def test_a_pod_ends_as_its_policy_says(
    site: Site, kubelet: Kubelet, policy: str, exit_code: int, phase: str
) -> None:
    await site.plugin()
    pod = await site.running_pod(1, restartPolicy=policy)

    kubelet.finish(name(pod), "c0", exit_code)

    await site.until_phase(pod, phase)
    assert mounted(kubelet) == {}


async def test_statuses_wait_for_an_api_server_that_is_away(
    site: Site, kubelet: Kubelet, server: ApiServer
) -> None:
    await site.plugin()
    kubelet.switches.hold_admission = True
    pod = await site.pod(1)
    await until(lambda: kubelet._running().sync._held)
    await server.pause()

    await kubelet.admit([name(pod)])
    assert list(kubelet.allocated()[site.resource]) == ["dev-0"]
    await server.resume()

    await site.until_phase(pod, "Running")
