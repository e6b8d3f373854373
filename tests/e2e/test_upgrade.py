"""Agent and extender are brought to another release and back, while pods have chips."""

import re

from tests.e2e import product, releases, running, truth
from tests.e2e.cluster import Cluster
from tests.e2e.commands import until
from tests.e2e.faults import ours
from tests.e2e.namespaces import Namespace
from tests.e2e.pods import pod
from tests.e2e.running import STAYING, containers

AGENT, EXTENDER = product.WORKLOADS


def test_nobody_notices_that_two_releases_work_together(
    cluster: Cluster, namespace: Namespace, mine: str, theirs: str
) -> None:
    before = running.have_staying(namespace)

    # Each meets the other release's, in both directions, and its predecessor's journal.
    steps = [(AGENT, theirs), (EXTENDER, theirs), (AGENT, mine), (EXTENDER, mine)]
    for number, (workload, tag) in enumerate(steps):
        product.bring(cluster, workload, tag)
        name = f"new-{number}"
        namespace.run(pod(name, 1))

        truth.until_agreed(cluster)
        assert containers(namespace, STAYING) == before, (workload, tag)
        if workload == AGENT:
            version = releases.OTHER if tag == theirs else releases.OURS
            names = ours.agent(cluster).metrics()
            [built] = [each for each in names if "agent_build_info" in each]
            assert f'version="{version}"' in built
        namespace.delete(name)

    # Neither could read the other's journal, and both found out who has what.
    until(
        lambda: _told(cluster) == {("0", "2"), ("2", "0")},
        lambda: f"events of both agents: {_told(cluster)}",
        within_s=120,
    )


def _told(cluster: Cluster) -> set[tuple[str, str]]:
    """What agents expected of a journal, and what they found, as events tell it."""
    texts = [each.message for each in cluster.events("default", "NpuJournalUnusable")]
    versions = r"expected version (\d), found version (\d)"
    return {found for text in texts for found in re.findall(versions, text)}
