"""An overlay on the cache, as if pods were gone, and the cache that stays as it is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.cache.overlay import overlay_cache
from extender.cache.requests import RequestedResources, RequestsWithout, Resources
from tests.machines import atlas
from tests.support.caches import cluster, free
from tests.support.watched import RESOURCE, tenant

NODES, UIDS = ("", "n1", "n2", "n3"), ("a", "b", "c", "d", "e")
amounts = st.integers(0, 3)
asks = st.builds(Resources, amounts, amounts)


@pytest.mark.property
@given(
    st.dictionaries(st.sampled_from(UIDS), st.tuples(st.sampled_from(NODES), asks)),
    st.frozensets(st.sampled_from(UIDS)),
)
def test_requests_without_pods_are_those_of_the_others(
    pods: dict[str, tuple[str, Resources]], gone: frozenset[str]
) -> None:
    requests, others = RequestedResources(), RequestedResources()
    for uid, (node, ask) in pods.items():
        requests.put(uid, node, ask)
        if uid not in gone:
            others.put(uid, node, ask)
    version = requests.version

    view = RequestsWithout(requests, gone)

    assert [view.ask(uid) for uid in UIDS] == [others.ask(uid) for uid in UIDS]
    assert [view.of(node) for node in NODES] == [others.of(node) for node in NODES]
    assert requests.version == version
    assert {uid: requests.at(uid) for uid in requests.uids()} == pods


def test_the_cache_keeps_its_chips_and_requests() -> None:
    cache = cluster(tenant("x", "n1", (0, 1)), nodes=("n1", "n2"))
    requested = cache.requests.of("n1")

    view = overlay_cache(cache, [atlas("n1")], gone_uids=["uid-x"])

    assert view.index.nodes(RESOURCE)["n1"].free == 0xFF
    assert view.requests.of("n1") == Resources(0, 0, 0)
    assert free(cache, "n1") == (2, 3, 4, 5, 6, 7)
    assert cache.requests.of("n1") == requested != Resources(0, 0, 0)
