"""Which nodes of which leaves; nodes are called after leaf and position: b2."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.node.decision import LeafUse
from scheduler_core.topology.leaves import (
    Leaf,
    Network,
    Schema,
    Server,
    Tenant,
    Version,
    schema_of,
)
from tests.scheduler_core.leaf_parts import free, leaf, nodes, plan
from tests.support.rows import rows

LARGE, NORMAL = Schema.LARGE_MODEL, Schema.NORMAL
IDLE, SHARED, EXCLUSIVE = LeafUse.IDLE, LeafUse.SHARED, LeafUse.EXCLUSIVE


def network(*leaves: Leaf, **more: Any) -> Network:
    return Network(leaves=leaves, **more)


ABC = network(leaf("a"), leaf("b"), leaf("c"))
NO_ROOM = (
    "no 5 of the 6 nodes under leaf switches that can take a pod load the spine "
    "switches evenly"
)


@pytest.mark.seed("003-05", "003-06", "001-10")
@rows(
    ("slots", "pods", "expected"),
    {
        "the smallest that fits": (free(a="0123", b="012", c="01"), 2, ["c0 c1"]),
        "of equals the later": (free(a="012", b="012", c="0"), 2, ["b0 b1"]),
        "what is free of it": (free(a="0123", b="13"), 2, ["b1 b3"]),
        "under one leaf or not at all": (
            free(a="01", b="01", c="01"),
            3,
            ["no leaf switch has 3 nodes that can take a pod: at most 2 of one can"],
        ),
    },
)
def test_a_filler_job_lies_under_one_leaf(
    slots: dict[str, tuple[str, int]], pods: int, expected: list[str]
) -> None:
    assert nodes(plan(ABC, LARGE, pods, slots)) == expected


@pytest.mark.seed("003-07", "001-08")
@rows(
    ("slots", "pods", "expected"),
    {
        "a whole leaf": (free(a="012", b="0123", c="0123"), 4, ["b0 b1 b2 b3"]),
        "whole leaves from the beginning, the rest on the next": (
            free(a="0123", b="0123", c="0123"),
            6,
            ["a0 a1 a2 a3", "b0 b1"],
        ),
        "only leaves that are whole": (
            free(a="01", b="0123", c="0123"),
            8,
            ["b0 b1 b2 b3", "c0 c1 c2 c3"],
        ),
    },
)
def test_a_large_model_job_takes_whole_leaves(
    slots: dict[str, tuple[str, int]], pods: int, expected: list[str]
) -> None:
    assert nodes(plan(ABC, LARGE, pods, slots)) == expected


@pytest.mark.seed("003-07")
def test_a_large_model_job_that_fits_under_one_leaf_takes_the_smallest() -> None:
    wide = network(leaf("a", 8), leaf("b", 8), leaf("c", 8))
    slots = free(a="01234567", b="012345", c="01234")

    assert nodes(plan(wide, LARGE, 5, slots)) == ["c0 c1 c2 c3 c4"]


@pytest.mark.seed("003-08")
def test_then_nodes_at_the_same_positions_make_logical_leaves() -> None:
    slots = free(a="0123", b="012", c="013")

    found = plan(ABC, LARGE, 8, slots)

    assert nodes(found) == ["a0 a1 a2 a3", "b0 b1 b2 c3"]
    assert isinstance(found, tuple)
    assert found[1].nodes == (("b", "b0"), ("b", "b1"), ("b", "b2"), ("c", "c3"))


@pytest.mark.seed("003-08")
def test_traffic_that_would_be_uneven_is_refused() -> None:
    slots = free(a="01", b="01", c="01")

    assert nodes(plan(ABC, LARGE, 5, slots)) == [NO_ROOM]


@pytest.mark.seed("003-10")
def test_a_common_job_takes_any_nodes_then() -> None:
    slots = free(a="01", b="01", c="01")

    assert nodes(plan(ABC, NORMAL, 5, slots)) == ["a0 a1", "b0 b1", "c0"]
    assert nodes(plan(ABC, NORMAL, 7, slots)) == [
        "no 7 nodes under leaf switches can take a pod: there are 6 such nodes"
    ]
    assert nodes(plan(ABC, NORMAL, 6, free(a="0123", b="0123"))) == [
        "a0 a1 a2 a3",
        "b0 b1",
    ]


SPANNING = Tenant(schema=LARGE, nodes=frozenset({"b0", "x0"}))
INSIDE = Tenant(schema=LARGE, nodes=frozenset({"b0", "b1"}))
COMMON = Tenant(schema=NORMAL, nodes=frozenset({"b0", "x0"}))


@pytest.mark.seed("003-04", "001-10")
@rows(
    ("tenant", "schema", "pods", "expected"),
    {
        "one job uses the spine": (SPANNING, LARGE, 6, ["a0 a1 a2 a3", "c0 c1"]),
        "a job that lies under it": (INSIDE, LARGE, 6, ["a0 a1 a2 a3", "b0 b1"]),
        "who fits under it may, but need not": (SPANNING, LARGE, 2, ["c0 c1"]),
        "also beside a common job": (COMMON, LARGE, 6, ["a0 a1 a2 a3", "c0 c1"]),
        "common jobs go together": (COMMON, NORMAL, 6, ["a0 a1 a2 a3", "b0 b1"]),
    },
)
def test_of_the_jobs_on_a_leaf_one_uses_the_spine(
    tenant: Tenant, schema: Schema, pods: int, expected: list[str]
) -> None:
    busy = network(leaf("a"), leaf("b"), leaf("c"), tenants=(tenant,))
    slots = free(a="0123", b="0123", c="0123")

    assert nodes(plan(busy, schema, pods, slots)) == expected


def test_a_job_that_fits_whole_may_lie_under_a_leaf_that_another_spans() -> None:
    busy = network(leaf("a"), leaf("b"), tenants=(SPANNING,))

    assert nodes(plan(busy, LARGE, 2, free(a="0", b="123"))) == ["b1 b2"]


@pytest.mark.seed("001-12")
def test_without_a_spine_no_job_leaves_its_leaf() -> None:
    single = network(leaf("a"), leaf("b"), version=Version.SINGLE_LAYER)
    slots = free(a="0123", b="0123")

    assert nodes(plan(single, NORMAL, 4, slots)) == ["b0 b1 b2 b3"]
    assert nodes(plan(single, NORMAL, 5, slots)) == [
        "no leaf switch has 5 nodes that can take a pod: at most 4 of one can"
    ]


def test_a_job_that_is_larger_than_the_cluster_hears_how_large_that_is() -> None:
    """G8: the reason is not that traffic would be uneven."""
    slots = free(a="0123", b="0123")

    assert plan(ABC, LARGE, 9, slots) == (
        "no 9 nodes under leaf switches can take a pod: there are 8 such nodes"
    )
    assert plan(ABC, LARGE, 5, free(a="0")) == (
        "no 5 nodes under leaf switches can take a pod: there is 1 such node"
    )


def test_nodes_under_leaves_of_other_jobs_are_counted_apart() -> None:
    busy = network(leaf("a"), leaf("b"), leaf("c"), tenants=(SPANNING,))
    slots = free(a="0123", b="0123", c="012")

    assert plan(busy, LARGE, 9, slots) == (
        "no 9 nodes under leaf switches can take a pod: there are 7 such nodes, and "
        "4 under leaves of other jobs"
    )


def two(*leaves: Leaf, **more: Any) -> Network:
    return network(*leaves, version=Version.TWO, **more)


@pytest.mark.seed("003-06", "001-11")
def test_under_2_0_leaves_in_use_are_tried_before_idle_ones() -> None:
    uses = [
        leaf("i"),
        leaf("h", use=SHARED),
        leaf("u", use=SHARED, healthy=False),
        leaf("e", use=EXCLUSIVE),
    ]
    slots = free(i="0123", h="0123", u="0123", e="0123")

    order = []
    while uses:
        found = plan(two(*uses), LARGE, 2, slots)
        assert isinstance(found, tuple)
        (part,) = found
        order.append((part.nodes[0][0], part.use, part.healthy))
        uses = [leaf for leaf in uses if leaf.name != part.nodes[0][0]]

    assert order == [
        ("e", EXCLUSIVE, True),
        ("u", SHARED, False),
        ("h", SHARED, True),
        ("i", IDLE, True),
    ]


@pytest.mark.seed("003-09", "001-11")
@rows(
    ("shared", "slots", "pods", "expected"),
    {
        "idle leaves first": (
            2,
            free(a="0123", b="0123", s="012", t="01"),
            8,
            [("a", EXCLUSIVE, 4), ("b", EXCLUSIVE, 4)],
        ),
        "then the smallest shared one that takes the rest": (
            2,
            free(a="0123", s="012", t="01"),
            6,
            [("a", EXCLUSIVE, 4), ("t", SHARED, 2)],
        ),
        "at most two": (
            2,
            free(a="0123", s="012", t="01"),
            8,
            [("a", EXCLUSIVE, 4), ("t", SHARED, 2), ("s", SHARED, 2)],
        ),
        "at most one, so set": (1, free(a="0123", s="012", t="01"), 8, None),
        "never three": (2, free(a="0123", s="012", t="01", v="0"), 10, None),
        "or an idle leaf becomes shared": (
            2,
            free(a="0123", b="0123", t="0"),
            6,
            [("a", EXCLUSIVE, 4), ("b", SHARED, 2)],
        ),
        "a crowded leaf is not for a large model": (
            2,
            free(a="0123", u="0123"),
            6,
            None,
        ),
    },
)
def test_under_2_0_a_large_model_job_shares_a_limited_number_of_leaves(
    shared: int,
    slots: dict[str, tuple[str, int]],
    pods: int,
    expected: list[tuple[str, LeafUse, int]] | None,
) -> None:
    leaves = two(
        leaf("a"),
        leaf("b"),
        leaf("s", use=SHARED),
        leaf("t", use=SHARED),
        leaf("v", use=SHARED),
        leaf("u", use=SHARED, healthy=False),
        shared_leaves=shared,
    )

    found = plan(leaves, LARGE, pods, slots)

    if isinstance(found, str):
        assert expected is None
        assert found.startswith(f"fewer than {pods} nodes under idle leaf switches")
    else:
        assert [(p.nodes[0][0], p.use, len(p.nodes)) for p in found] == expected


def test_under_2_0_a_common_job_crowds_leaves_when_it_must() -> None:
    alone = Tenant(schema=LARGE, nodes=frozenset({"f0", "x0"}))
    leaves = two(
        leaf("a"),
        leaf("u", use=SHARED, healthy=False),
        leaf("s", use=SHARED),
        leaf("e", use=EXCLUSIVE),
        leaf("f", use=EXCLUSIVE),
        tenants=(alone,),
    )
    slots = free(a="0123", u="0", s="01", e="012", f="0123")

    found = plan(leaves, NORMAL, 9, slots)

    assert isinstance(found, tuple)
    assert [(p.nodes[0][0], p.use, p.healthy, len(p.nodes)) for p in found] == [
        ("a", EXCLUSIVE, True, 4),
        ("u", SHARED, False, 1),
        ("e", SHARED, False, 3),
        ("s", SHARED, False, 1),
    ]
    assert isinstance(plan(leaves, NORMAL, 11, slots), str)


@pytest.mark.seed("001-02")
def test_what_the_switches_leave_equal_the_chips_decide() -> None:
    slots = {"a0": ("", 3), "a1": ("", 1), "a2": ("", 2), "a3": ("", 1)}

    assert nodes(plan(ABC, LARGE, 2, slots)) == ["a1 a3"]


def test_the_label_says_what_a_job_asks_for() -> None:
    assert [schema_of(text) for text in ("large-model-schema", "normal-schema")] == [
        LARGE,
        NORMAL,
    ]
    assert [schema_of(text) for text in ("", "null")] == [None, None]
    known = "large-model-schema, normal-schema, null"
    said = f"label tor-affinity: expected one of {known}, found 'some-schema'"
    with pytest.raises(ValueError, match=f"^{said}$"):
        schema_of("some-schema")


def test_ranks_follow_the_slices_of_a_leaf() -> None:
    turned = Leaf(
        name="a",
        servers=tuple(Server(node=f"a{p}", slice_id=3 - p) for p in range(4)),
    )

    assert nodes(plan(network(turned), LARGE, 3, free(a="0123"))) == ["a2 a1 a0"]


USES = st.sampled_from([IDLE, SHARED, EXCLUSIVE])


@pytest.mark.property
@given(
    uses=st.lists(st.tuples(USES, st.booleans()), min_size=4, max_size=4),
    slots=st.lists(st.sets(st.sampled_from("0123")), min_size=4, max_size=4),
    schema=st.sampled_from([LARGE, NORMAL]),
    version=st.sampled_from(Version),
    pods=st.integers(1, 17),
    spans=st.sets(st.sampled_from("abcd")),
)
def test_a_refusal_names_fewer_nodes_than_the_job_has_pods(
    uses: list[tuple[LeafUse, bool]],
    slots: list[set[str]],
    schema: Schema,
    version: Version,
    pods: int,
    spans: set[str],
) -> None:
    """Or it says that there are enough nodes, which would load the spine unevenly."""
    tenant = Tenant(schema=LARGE, nodes=frozenset(f"{name}0" for name in spans))
    leaves = network(
        *(
            leaf(name, use=use, healthy=healthy)
            for name, (use, healthy) in zip("abcd", uses, strict=True)
        ),
        version=version,
        tenants=(tenant,),
    )
    able = {name: "".join(at) for name, at in zip("abcd", slots, strict=True)}

    found = plan(leaves, schema, pods, free(**able))

    if isinstance(found, str):
        numbers = list(map(int, re.findall(r"\d+", found.partition(", and ")[0])))
        assert numbers[0] == pods
        if "evenly" in found:
            assert (version, schema) == (Version.ONE, LARGE)
            assert pods <= numbers[1] <= sum(map(len, slots))
        elif "idle" in found:
            assert sum(numbers[2:]) < pods
        else:
            assert max(numbers[1:]) < pods
    else:
        assert sum(len(part.nodes) for part in found) == pods
