"""What a kubelet that was restarted makes of the pods that it finds."""

from sandbox.apiclient import Object
from sandbox.kubelet import Kubelet
from tests.contract.kubelet.plugin import Plugin
from tests.contract.kubelet.site import Site
from tests.sandbox.kubelet.conftest import mounted, name
from tests.support.until import equal, until


async def test_a_restart_removes_every_socket_and_keeps_other_files(
    site: Site, kubelet: Kubelet
) -> None:
    await site.plugin()
    (kubelet.device_plugin_dir / "note").write_text("kept")

    await kubelet.restart()

    left = sorted(path.name for path in kubelet.device_plugin_dir.iterdir())
    assert left == ["kubelet.sock", "kubelet_internal_checkpoint", "note"]


async def test_running_pods_survive_and_their_ids_stay_taken(
    site: Site, kubelet: Kubelet
) -> None:
    await site.plugin()
    pod = await site.running_pod(3)

    await kubelet.restart()
    await site.until_counts(capacity=0, allocatable=0)

    again = await _registered_again(site)
    await site.running_pod(1)
    await site.until_phase(pod, "Running")
    assert again.allocations == [frozenset({"dev-3"})]
    assert mounted(kubelet)[f"{name(pod)}/c0"] == ("dev-0", "dev-1", "dev-2")
    assert (await site.shown_by_get(pod))["c0"] == [["dev-0"], ["dev-1"], ["dev-2"]]


async def test_a_finished_init_container_gets_its_pod_rejected_by_a_restart(
    site: Site, kubelet: Kubelet
) -> None:
    # manager.go:610-632: the plugin has not registered when pods are admitted again.
    await site.plugin()
    pod = await site.running_pod(1, init=(1,))

    await kubelet.restart()

    status = await site.until_phase(pod, "Failed")
    assert status["message"] == (
        "Pod was rejected: Allocate failed due to no healthy devices present; "
        f"cannot allocate unhealthy devices {site.resource}, which is unexpected"
    )


async def test_after_a_lost_checkpoint_nobody_holds_anything(
    site: Site, kubelet: Kubelet
) -> None:
    await site.plugin()
    pod = await site.running_pod(3)

    again = await _restarted_without_checkpoint(site, kubelet, pod)
    assert await site.shown_by_get(pod) == {"c0": []}
    await site.running_pod(1)
    assert again.allocations == [frozenset({"dev-0"})]


async def test_a_container_that_restarts_after_a_lost_checkpoint_is_allocated_anew(
    site: Site, kubelet: Kubelet
) -> None:
    # manager.go:981: by the pod's worker, outside admission.
    await site.plugin()
    pod = await site.running_pod(2)
    again = await _restarted_without_checkpoint(site, kubelet, pod)
    again.open.clear()
    kubelet.finish(name(pod), "c0", exit_code=1)
    await again.entered.wait()

    # At the same time as an admission: the worker does not hold the sync loop.
    await site.running_pod(0)
    again.open.set()

    await until(lambda: site.shown_by_get(pod), equal({"c0": [["dev-0"], ["dev-1"]]}))
    assert len(again.allocations) == 1


async def test_pods_that_come_while_the_kubelet_is_away_are_admitted_afterwards(
    site: Site, kubelet: Kubelet
) -> None:
    await kubelet.stop()
    pod = await site.pod(0)

    await kubelet.start()

    await site.until_phase(pod, "Running")


async def test_a_pod_force_deleted_while_the_kubelet_is_away_runs_until_it_is_back(
    site: Site, kubelet: Kubelet
) -> None:
    kubelet.switches.stop_s = 20.0
    await site.plugin()
    pod = await site.running_pod(1)
    await kubelet.stop()
    await site.remove(pod)

    await kubelet.start()

    assert mounted(kubelet) == {f"{name(pod)}/c0": ("dev-0",)}
    assert await site.shown_by_list() == {}

    await kubelet.stop()
    kubelet.switches.stop_s = 0.0
    await kubelet.start()

    await until(lambda: mounted(kubelet), equal({}))


async def test_the_address_of_the_pod_list_survives_a_restart(kubelet: Kubelet) -> None:
    before = kubelet.url

    await kubelet.restart()

    assert kubelet.url == before


async def _registered_again(site: Site) -> Plugin:
    return await site.plugin(site.socket.with_suffix(".2.sock"))


async def _restarted_without_checkpoint(
    site: Site, kubelet: Kubelet, pod: Object
) -> Plugin:
    """Lose the checkpoint in a restart; return the plugin once the pod is back."""
    await kubelet.restart(lose_checkpoint=True)
    again = await _registered_again(site)
    await until(site.shown_by_list, lambda shown: name(pod) in shown)
    return again
