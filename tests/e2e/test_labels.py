"""The label `accelerator-type` of the node: the agent sets it where it is missing."""

from collections.abc import Iterator

import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.commands import until

_LABEL = "accelerator-type"
_WITHIN_S = 60.0
_OF_AGENT = ("module", {"ascend-agent"})


def _label(cluster: Cluster, text: str) -> None:
    """Set the label as a person does, or with `-` take it away."""
    change = f"{_LABEL}{text}"
    cluster.kubectl("label", "node", cluster.node, change, "--overwrite")


def _value(cluster: Cluster) -> tuple[str | None, set[str]]:
    """Return the value of the label, and who has set it."""
    meta = cluster.core.read_node(cluster.node).metadata
    managers = {
        each.manager
        for each in meta.managed_fields
        if f"f:{_LABEL}"
        in (each.fields_v1 or {}).get("f:metadata", {}).get("f:labels", {})
    }
    return meta.labels.get(_LABEL), managers


def _wait_for_agent(cluster: Cluster) -> None:
    until(lambda: _value(cluster) == _OF_AGENT, "label set", within_s=_WITHIN_S)


@pytest.fixture
def unlabelled(cluster: Cluster) -> Iterator[None]:
    """A node from which somebody has taken the label; afterwards it is the agent's."""
    _label(cluster, "-")
    yield
    _label(cluster, "-")
    _wait_for_agent(cluster)


@pytest.mark.usefixtures("unlabelled")
def test_a_node_without_the_label_gets_it_from_the_agent(cluster: Cluster) -> None:
    _wait_for_agent(cluster)


@pytest.mark.usefixtures("unlabelled")
def test_a_label_that_a_person_sets_stays_and_what_contradicts_it_is_told(
    cluster: Cluster,
) -> None:
    def ends() -> int:
        return sum(
            each.count or 1 for each in cluster.events("default", "NpuLabelRight")
        )

    _wait_for_agent(cluster)
    before = ends()

    _label(cluster, "=half")
    until(
        lambda: any(
            "found 'half'" in each.message
            for each in cluster.events("default", "NpuLabelWrong")
        ),
        "the wrong label told",
        within_s=_WITHIN_S,
    )
    value, managers = _value(cluster)
    assert (value, "ascend-agent" in managers) == ("half", False)

    _label(cluster, "=module")
    until(lambda: ends() > before, "the right label told", within_s=_WITHIN_S)
    assert _value(cluster)[0] == "module"
