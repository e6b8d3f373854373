"""Others who do the agent's work on its node: seen, said, not fought, and replaced."""

import asyncio
import hashlib
import json
import threading
from collections.abc import Coroutine
from typing import Any, Self

import pytest

from tests.contract.kubelet.plugin import Plugin
from tests.e2e import product, running, truth
from tests.e2e.cluster import Cluster
from tests.e2e.commands import until
from tests.e2e.configurations import RESOURCE
from tests.e2e.faults import ours
from tests.e2e.namespaces import Namespace
from tests.e2e.places import DEVICE_PLUGIN_DIR
from tests.e2e.pods import pod
from tests.e2e.running import STAYING, containers

_SEEN_WITHIN_S = 120.0
_CHIPS = 8
_ANSWERS_WITHIN_S = 60.0


_OTHER_DEVICES = (
    "another device plugin serves huawei.com/Ascend910 too: the kubelet has other "
    "devices than we have listed"
)
_OUR_SOCKET = (
    "another device plugin has put its socket in the place of ours, "
    "/var/lib/kubelet/device-plugins/Ascend910.sock"
)


class Rival:
    """Another device plugin for our resource, on the real kubelet.

    Serves from a thread of its own. Protects that thread's loop.
    """

    def __init__(self, socket: str, *, prefix: str) -> None:
        """Nothing is served until it is entered.

        Args:
            socket: The name of its socket, in the kubelet's directory.
            prefix: Of its device ids.
        """
        self.plugin = Plugin(RESOURCE)
        self.plugin.devices = {f"{prefix}{chip}": "Healthy" for chip in range(_CHIPS)}
        self._socket = DEVICE_PLUGIN_DIR / socket
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="rival")

    def __enter__(self) -> Self:
        """Serve and register, as such plugins do: over whatever lies there."""
        self._thread.start()
        self._socket.unlink(missing_ok=True)
        self._do(self.plugin.serve(self._socket))
        self._do(self.plugin.register(self._socket))
        return self

    def __exit__(self, *_: object) -> None:
        """Be gone, as by kill -9."""
        self._do(self.plugin.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._socket.unlink(missing_ok=True)

    def _do(self, what: Coroutine[Any, Any, object]) -> None:
        asyncio.run_coroutine_threadsafe(what, self._loop).result(_ANSWERS_WITHIN_S)


@pytest.mark.parametrize(
    ("socket", "prefix", "said"),
    [
        ("Other910.sock", "npu-", _OTHER_DEVICES),
        ("Ascend910.sock", "Ascend910-", _OUR_SOCKET),
    ],
)
def test_another_device_plugin_is_left_alone_until_it_goes(
    cluster: Cluster, namespace: Namespace, socket: str, prefix: str, said: str
) -> None:
    before = running.have_staying(namespace)
    agent = ours.agent(cluster)
    registrations = _registrations(agent)
    gone = "nobody else serves this node's kubelet any more"
    told_before = _told_count(cluster, "NpuRivalGone", gone)

    with Rival(socket, prefix=prefix) as rival:
        agent.wait_not_ready()
        _wait_told(cluster, said)
        until(
            lambda: rival.plugin.streams == 1,
            lambda: f"the kubelet with the rival: {rival.plugin.streams}",
            within_s=_SEEN_WITHIN_S,
        )
        assert _registrations(agent) == registrations
        assert containers(namespace, STAYING) == before

    agent.wait_ready()
    _assert_all_is_well(namespace, before)
    until(
        lambda: _told_count(cluster, "NpuRivalGone", gone) > told_before,
        f"one more event: {gone}",
        within_s=_SEEN_WITHIN_S,
    )


def test_another_writer_of_the_configmap_is_left_alone_until_it_goes(
    cluster: Cluster, namespace: Namespace
) -> None:
    before = running.have_staying(namespace)
    name = f"mindx-dl-deviceinfo-{cluster.node}"
    agent = ours.agent(cluster)

    theirs = _written_by_another_make(cluster.report())
    cluster.core.replace_namespaced_config_map(name, product.NAMESPACE, theirs)
    agent.wait_not_ready()

    said = (
        f"a program that gives no name writes the ConfigMap kube-system/{name} "
        "besides this agent, which leaves it alone until the other one has been "
        "silent for 900 s or the ConfigMap is deleted"
    )
    _wait_told(cluster, said)
    assert cluster.report().data == theirs["data"]
    assert containers(namespace, STAYING) == before

    cluster.core.delete_namespaced_config_map(name, product.NAMESPACE)
    agent.wait_ready()
    _assert_all_is_well(namespace, before)


def _assert_all_is_well(
    namespace: Namespace, before: dict[str, running.Container]
) -> None:
    """Who ran runs, who comes runs too, and everybody says the same."""
    cluster = namespace.cluster
    until(
        lambda: (
            cluster.core.read_node(cluster.node).status.allocatable.get(RESOURCE) == "8"
        ),
        "the node offering its chips",
        within_s=_SEEN_WITHIN_S,
    )
    namespace.run(pod("afterwards", 1))
    assert len(truth.until_agreed(cluster)) == 4
    assert containers(namespace, STAYING) == before


def _registrations(agent: ours.Program) -> float:
    return agent.metrics()["ascend_agent_registrations_total"]


def _wait_told(cluster: Cluster, said: str) -> None:
    until(
        lambda: _told_count(cluster, "NpuRival", said),
        f"an event: {said}",
        within_s=_SEEN_WITHIN_S,
    )


def _told_count(cluster: Cluster, reason: str, message: str) -> int:
    """How often events have said so, by now: equal ones are counted in one."""
    events = cluster.events("default", reason)
    return sum(each.count or 1 for each in events if each.message == message)


def _written_by_another_make(found: Any) -> dict[str, Any]:
    """What another device plugin would put in the place of our ConfigMap."""
    listed = {RESOURCE: "Ascend910-1,Ascend910-2"}
    info = {"DeviceList": listed, "UpdateTime": 4_000_000_000}
    text = json.dumps(info, separators=(",", ":"))
    code = hashlib.sha256(text.encode()).hexdigest()
    report = {
        "DeviceInfo": info,
        "SuperPodID": -2,
        "ServerIndex": -2,
        "CheckCode": code,
    }
    return {
        "metadata": {"name": found.metadata.name, "labels": found.metadata.labels},
        "data": {"DeviceInfoCfg": json.dumps(report, separators=(",", ":"))},
    }
