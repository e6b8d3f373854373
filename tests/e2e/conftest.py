"""The cluster that is up; `python -m tests.e2e run` brings one up and comes here."""

import secrets
from collections.abc import Iterator

import pytest

from tests.e2e import product, releases, truth
from tests.e2e.cluster import Cluster
from tests.e2e.commands import until
from tests.e2e.faults import witness
from tests.e2e.faults.chronicle import Chronicle


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    """The real cluster of this run."""
    return Cluster.attach()


@pytest.fixture(scope="session")
def mine(cluster: Cluster) -> str:
    """The tag of the image that is installed."""
    return product.build(cluster.places)


@pytest.fixture
def theirs(cluster: Cluster) -> Iterator[str]:
    """The tag of another release's image; afterwards everything is ours again."""
    tag = releases.build_other(cluster.places)
    cluster.load_image(product.archive(cluster.places, tag))
    yield tag
    product.install(cluster)


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A namespace of the test's own; pods and chips are back when the test ends."""
    name = f"test-{secrets.token_hex(3)}"
    cluster.core.create_namespace({"metadata": {"name": name}})
    until(
        lambda: cluster.exists("serviceaccount", "default", name),
        f"the service account of {name}",
        within_s=20,
    )
    yield name
    cluster.heal()
    cluster.core.delete_collection_namespaced_pod(name)
    until(
        lambda: not cluster.core.list_namespaced_pod(name).items,
        f"pods of {name} gone",
        within_s=60,
    )
    cluster.core.delete_namespace(name)
    truth.until_agreed(cluster, within_s=30)


@pytest.fixture
def chronicle(cluster: Cluster, namespace: str) -> Iterator[Chronicle]:
    """What becomes of the namespace's pods, and a new record of their containers."""
    witness.begin()
    with Chronicle(cluster, namespace) as chronicle:
        yield chronicle


@pytest.fixture(autouse=True)
def _healed(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that failed in the middle of a fault does not spoil the next."""
    yield
    if "cluster" in request.fixturenames:
        request.getfixturevalue("cluster").heal()
