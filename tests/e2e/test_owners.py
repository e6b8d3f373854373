"""Pods that the kubelet rejects are made again by their owners, and then they run."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e import product, truth
from tests.e2e.cluster import Cluster
from tests.e2e.commands import until
from tests.e2e.components import Component
from tests.e2e.faults import ours, witness
from tests.e2e.faults.audit import wait_nothing_wrong
from tests.e2e.faults.chronicle import Chronicle
from tests.e2e.namespaces import Namespace

pytestmark = pytest.mark.faults

_LABEL = "ascend-affinity/agent"
#: Pods of each owner.
_EACH = 2
_REJECTION = "UnexpectedAdmissionError: Pod was rejected: Allocate failed due to "


@pytest.fixture
def owners(namespace: Namespace) -> Iterator[None]:
    """A Job and a ReplicaSet; afterwards the node has its agent again, and they go."""
    _create_job(namespace)
    _create_replica_set(namespace)
    yield
    product.install(namespace.cluster)
    namespace.cluster.kubectl("delete", "job,replicaset", "--all", "-n", namespace.name)


@pytest.fixture
def frozen(cluster: Cluster) -> Component:
    """The kubelet, which sees nothing yet of what is bound to its node."""
    cluster.programs.kubelet.freeze()
    return cluster.programs.kubelet


@pytest.mark.core("owner")
def test_owners_replace_what_the_kubelet_has_rejected(
    cluster: Cluster,
    namespace: Namespace,
    chronicle: Chronicle,
    frozen: Component,
    owners: None,
) -> None:
    until(
        lambda: sum(bool(s.bound_claim) for s in chronicle.stories()) == 2 * _EACH,
        "all pods bound",
        within_s=120,
    )
    # Their node loses its agent before the kubelet has seen any of them.
    cluster.kubectl("label", "node", cluster.node, f"{_LABEL}-")
    until(lambda: _is_ending(cluster), "the agent's pod deleted", within_s=120)
    ours.agent(cluster).kill()
    frozen.thaw()
    until(
        lambda: {*_rejected(chronicle)} == {"Job", "ReplicaSet"},
        "pods of both owners rejected",
        within_s=120,
    )

    product.install(cluster)
    until(lambda: _is_complete(namespace), "the job done", within_s=400)
    until(lambda: _is_whole(namespace), "all replicas ready", within_s=400)

    served = truth.until_agreed(cluster)
    here = [each for each in served if each.name.startswith(f"{namespace}/")]
    assert len(here) == _EACH
    wait_nothing_wrong(chronicle, 2 * _EACH)
    rejected = _rejected(chronicle)
    assert len(chronicle.stories()) == 2 * _EACH + rejected.total(), rejected


def _create_job(namespace: Namespace) -> None:
    spec = {
        "completions": _EACH,
        "parallelism": _EACH,
        # A rejection counts as a failure of the pod.
        "backoffLimit": 20,
        "template": _template("1", restartPolicy="Never"),
    }
    body = {"metadata": {"name": "job"}, "spec": spec}
    namespace.cluster.batch.create_namespaced_job(namespace.name, body)


def _create_replica_set(namespace: Namespace) -> None:
    labels = {"part": "replica"}
    template = _template("infinity", labels=labels, restartPolicy="Always")
    spec = {
        "replicas": _EACH,
        "selector": {"matchLabels": labels},
        "template": template,
    }
    namespace.cluster.apps.create_namespaced_replica_set(
        namespace.name, {"metadata": {"name": "set"}, "spec": spec}
    )


def _template(
    life: str, labels: dict[str, str] | None = None, **spec: Any
) -> dict[str, Any]:
    container = witness.container("c0", 1, life=life, is_patient=True)
    pod = witness.pod("", container, labels=labels or {}, **spec)
    return {"metadata": {"labels": pod["metadata"]["labels"]}, "spec": pod["spec"]}


def _is_ending(cluster: Cluster) -> bool:
    """Whether the kubelet, as soon as it goes on, will not start the agent again."""
    pods = cluster.core.list_namespaced_pod(
        product.NAMESPACE, label_selector="app.kubernetes.io/name=ascend-agent"
    ).items
    return all(pod.metadata.deletion_timestamp is not None for pod in pods)


def _rejected(chronicle: Chronicle) -> Counter[str]:
    """How many pods of each kind of owner the kubelet has rejected."""
    return Counter(
        str(story.pod["metadata"]["ownerReferences"][0]["kind"])
        for story in chronicle.stories()
        if story.rejection.startswith(_REJECTION)
    )


def _is_complete(namespace: Namespace) -> bool:
    found = namespace.cluster.batch.read_namespaced_job("job", namespace.name)
    return bool(found.status.succeeded == _EACH)


def _is_whole(namespace: Namespace) -> bool:
    found = namespace.cluster.apps.read_namespaced_replica_set("set", namespace.name)
    return bool(found.status.ready_replicas == _EACH)
