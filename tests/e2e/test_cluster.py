"""The cluster itself: what every other test here takes for granted."""

import time
from typing import Any

import pytest

from tests.e2e import truth
from tests.e2e.cluster import Cluster
from tests.e2e.commands import until
from tests.e2e.faults import ours
from tests.e2e.namespaces import Namespace
from tests.e2e.pods import pod


def test_a_pod_runs_and_reaches_the_api_server(namespace: Namespace) -> None:
    namespace.run(pod("plain", automountServiceAccountToken=True))

    url = namespace.cluster.api_url
    said = namespace.execute(
        "plain",
        "python3",
        "-c",
        "import ssl, urllib.request as r; authority = ssl.create_default_context("
        "cafile='/var/run/secrets/kubernetes.io/serviceaccount/ca.crt');"
        f"print(r.urlopen('{url}/livez', context=authority).read())",
    )

    assert said == "b'ok'\n"


@pytest.mark.parametrize(
    "name", ["etcd", "apiserver", "controller-manager", "scheduler", "kubelet"]
)
def test_a_program_that_is_killed_comes_back(
    cluster: Cluster, namespace: Namespace, name: str
) -> None:
    program = next(each for each in cluster.programs.all if each.name == name)
    before = program.pid

    program.kill()

    assert not program.is_running
    back = time.monotonic()
    program.start()
    assert program.pid not in {None, before}
    # The others notice in their own time; the node was called ready all along. An
    # agent that does not hear of pods yet has them rejected.
    if name == "apiserver":
        ours.agent(cluster).wait_connected(back)
    namespace.run(pod("afterwards", 1))
    truth.until_agreed(cluster)


def test_containers_survive_their_containerd(
    cluster: Cluster, namespace: Namespace
) -> None:
    status = namespace.run(pod("survivor")).status
    container = status.container_statuses[0].container_id
    before = cluster.container_pid(container)

    cluster.programs.containerd.kill()
    cluster.programs.containerd.start()

    assert cluster.container_pid(container) == before


def test_a_frozen_kubelet_goes_on_when_it_is_thawed(
    cluster: Cluster, namespace: Namespace
) -> None:
    def now() -> Any:
        return namespace.pod("patient")

    cluster.programs.kubelet.freeze()
    namespace.create(pod("patient"))
    until(lambda: now().spec.node_name == cluster.node, "pod bound", within_s=120)
    assert now().status.phase == "Pending"

    cluster.programs.kubelet.thaw()

    namespace.wait_running("patient")
