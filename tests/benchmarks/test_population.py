"""The objects of a made-up cluster are such as the extender reads, and fit together."""

import msgspec
import pytest

from benchmarks.population import Population, member_name, node_name, uid_of
from extender.cache import decode
from extender.cache.cache import Cache
from extender.cache.events import PodUpdated
from extender.gang import membership
from kube import objects
from scheduler_core.node.chip_mask import ids_of
from scheduler_core.products.table import ATLAS_800_TRAINING
from tests.support.caches import (
    apply,
    empty,
    has_unconfirmed,
    node_states,
    only_gang,
)

NOW_S = 1_764_000_000
RESOURCE = ATLAS_800_TRAINING.resource
SOME = Population(nodes=11, with_chip=6, without=2, gang=3, reported_s=NOW_S)


def pod(number: int, of: Population = SOME) -> objects.Pod:
    return msgspec.json.decode(of.pod(number), type=objects.Pod)


def cache_of(population: Population) -> Cache:
    cache = empty()
    for number in range(population.nodes):
        node = msgspec.json.decode(population.node(number), type=objects.Node)
        report = population.report(number)
        told = decode.report_change(msgspec.json.decode(report, type=objects.ConfigMap))
        assert told is not None
        apply(cache, decode.node_change(node))
        apply(cache, told)
    for number in range(population.pods):
        cache.step(decode.pod_change(pod(number, population)), NOW_S)
    return cache


def test_nodes_reports_and_pods_agree_on_what_is_free() -> None:
    cache = cache_of(SOME)

    assert len(cache.nodes) == SOME.nodes
    assert not has_unconfirmed(cache)  # all claims have been served
    free = {state.name: ids_of(state.free) for state in cache.index}
    assert free == {
        node_name(number): tuple(sorted({*range(8)} - {*SOME.chips_held(number)}))
        for number in range(SOME.nodes)
    }
    assert {len(chips) for chips in free.values()} == {2}


def test_a_report_of_broken_chips_leaves_nothing_free() -> None:
    cache = cache_of(SOME)
    report = SOME.report(4, broken=True, version=77)
    found = msgspec.json.decode(report, type=objects.ConfigMap)
    told = decode.report_change(found)
    assert told is not None

    apply(cache, told)

    assert found.metadata.resource_version == "77"
    assert node_states(cache)[node_name(4)].free == 0
    assert node_states(cache)[node_name(5)].free != 0


def test_the_pods_that_wait_are_one_job_in_their_order() -> None:
    cache = cache_of(SOME)
    gang = only_gang(cache)

    assert gang.size is not None
    assert gang.size.count == SOME.gang
    assert sorted(gang.members, key=gang.rank_key) == [
        uid_of(member_name(member)) for member in range(SOME.gang)
    ]


def test_a_bound_pod_of_the_job_has_what_came_with_its_bind() -> None:
    text = SOME.waiting(2, version=9, node="n", added=b'{"a":"b"}')
    bound = msgspec.json.decode(text, type=objects.Pod)
    before = pod(SOME.pods - 1)

    assert bound.spec.node_name == "n"
    assert bound.metadata.resource_version == "9"
    assert bound.metadata.uid == before.metadata.uid
    assert before.metadata.annotations is not None
    assert bound.metadata.annotations == {"a": "b", **before.metadata.annotations}
    assert bound.metadata.annotations[membership.JOB_SIZE] == "3"


def test_no_two_pods_are_the_same() -> None:
    uids = {pod(number).metadata.uid for number in range(SOME.pods)}

    assert len(uids) == SOME.pods == 11 * 8 + 3


@pytest.mark.parametrize(
    ("kind", "count"), [("nodes", 11), ("configmaps", 11), ("pods", 91)]
)
def test_pages_have_every_object_once(kind: str, count: int) -> None:
    pages = [[*SOME.page(kind, first, 10)] for first in range(0, count, 10)]

    assert [len(page) for page in pages] == [10] * (count // 10) + [count % 10]
    assert len({each for page in pages for each in page}) == SOME.count(kind) == count


def test_a_cluster_of_nothing_but_a_job_has_its_pods() -> None:
    bare = Population(nodes=2, gang=2, reported_s=NOW_S)
    found = [decode.pod_change(pod(number, bare)) for number in range(bare.pods)]

    assert [
        (each.pod.node, each.pod.total)
        for each in found
        if isinstance(each, PodUpdated)
    ] == [("", 8), ("", 8)]
