"""Uninstalled and installed again while pods have chips: none of them notices."""

from collections.abc import Iterator

import pytest

from tests.e2e import leftovers, product, running, truth
from tests.e2e.cluster import Cluster
from tests.e2e.commands import until
from tests.e2e.namespaces import Namespace
from tests.e2e.pods import pod
from tests.e2e.running import STAYING, containers


@pytest.fixture
def installed(cluster: Cluster) -> Iterator[None]:
    """A test that fails while we are away does not leave the next without us."""
    yield
    product.install(cluster)


def test_pods_keep_their_chips_while_we_are_away(
    cluster: Cluster, namespace: Namespace, installed: None
) -> None:
    before = running.have_staying(namespace)
    notes = _annotations(namespace)
    namespace.run(pod("ends", 1))

    product.uninstall(cluster)
    marks = leftovers.marks(cluster)
    leftovers.take_marks_off(cluster)

    assert "baseDeviceInfos" in marks
    assert leftovers.found(cluster) == []
    namespace.delete("ends")
    namespace.wait_empty(field_selector="metadata.name=ends")
    assert containers(namespace, STAYING) == before
    assert _annotations(namespace) == notes

    namespace.create(pod("waits", 2))
    product.install(cluster)
    namespace.wait_running("waits")

    assert len(truth.until_agreed(cluster)) == 4
    assert containers(namespace, STAYING) == before
    assert _annotations(namespace) == notes


def test_pods_keep_their_chips_when_we_come_back_at_once(
    cluster: Cluster, namespace: Namespace, installed: None
) -> None:
    before = running.have_staying(namespace)

    product.uninstall(cluster)
    product.install(cluster)

    assert len(truth.until_agreed(cluster)) == 3
    assert containers(namespace, STAYING) == before
    [daemon_set] = cluster.apps.list_namespaced_daemon_set(product.NAMESPACE).items
    until(
        lambda: (
            [each.uid for each in cluster.report().metadata.owner_references or []]
            == [daemon_set.metadata.uid]
        ),
        "the ConfigMap the new DaemonSet's alone",
        within_s=120,
    )


def _annotations(namespace: Namespace) -> dict[str, dict[str, str]]:
    pods = namespace.pods(label_selector=STAYING)
    return {pod.metadata.name: pod.metadata.annotations for pod in pods}
