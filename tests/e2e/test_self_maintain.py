"""Both scheduling processes: who works out which chips are free makes no difference."""

from collections.abc import Iterator

import pytest

from extender.apiserver import live_settings
from tests.e2e import truth
from tests.e2e.cluster import Cluster
from tests.e2e.commands import until
from tests.e2e.namespaces import Namespace
from tests.e2e.pods import pod

_NAMESPACE = "kube-system"
_ALL = tuple(range(8))
_WITHIN_S = 120


@pytest.fixture
def maintained(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """The extender has heard who maintains the list of free chips: itself or not."""
    # another edit besides, so that there is always something to be taken
    data = {"self-maintain-available-card": request.param, "reserve-nodes": "1"}
    made = cluster.core.create_namespaced_config_map(
        _NAMESPACE, {"metadata": {"name": live_settings.NAME}, "data": data}
    )
    text = f"in force: self-maintain-available-card {request.param}, "

    def is_taken() -> bool:
        about = f"involvedObject.uid={made.metadata.uid}"
        events = cluster.core.list_namespaced_event(_NAMESPACE, field_selector=about)
        return any(event.message.startswith(text) for event in events.items)

    try:
        until(is_taken, "the settings in force", within_s=_WITHIN_S)
        yield request.param
    finally:
        cluster.core.delete_namespaced_config_map(live_settings.NAME, _NAMESPACE)


@pytest.mark.core("chain")
@pytest.mark.seed("000-01")
@pytest.mark.seed("000-06")
@pytest.mark.parametrize("maintained", ["true", "false"], indirect=True)
@pytest.mark.usefixtures("maintained")
def test_chips_go_from_the_report_to_the_container_and_back(
    cluster: Cluster, namespace: Namespace
) -> None:
    truth.wait_node(cluster, available=_ALL, within_s=_WITHIN_S)

    namespace.run(pod("first", 2))

    [first] = truth.until_agreed(cluster)
    assert (first.chips, first.claimed, first.real) == ((0, 1), (0, 1), (0, 1))
    assert first.predicate_time == truth.SERVED
    truth.wait_node(cluster, available=_ALL[2:], within_s=_WITHIN_S)

    namespace.create(pod("whole", 8))
    until(
        lambda: namespace.has_event("FailedScheduling", "whole"),
        "refused while not all chips are free",
        within_s=_WITHIN_S,
    )
    namespace.delete("first")

    namespace.wait_running("whole")
    [whole] = truth.until_agreed(cluster)
    assert whole.chips == _ALL
    truth.wait_node(cluster, available=(), within_s=_WITHIN_S)
