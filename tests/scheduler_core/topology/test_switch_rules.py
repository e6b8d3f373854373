"""Switch affinity against its rules: 1.0 said a second time, edges, any question."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.node.decision import LeafUse
from scheduler_core.topology.leaves import (
    Crossings,
    Leaf,
    Network,
    Part,
    Schema,
    Server,
    Tenant,
    Version,
)
from tests.scheduler_core.leaf_parts import Slots, free, leaf, nodes, plan
from tests.scheduler_core.topology import switch_rules
from tests.support.rows import rows

LARGE, NORMAL = Schema.LARGE_MODEL, Schema.NORMAL
IDLE, SHARED, EXCLUSIVE = LeafUse.IDLE, LeafUse.SHARED, LeafUse.EXCLUSIVE


T = TypeVar("T")
#: (least, most) -> a number between them, or one of them
Pick = Callable[[int, int], int]


def mixed(seed: int, below: int) -> int:
    """Numbers without a visible pattern, the same in every run."""
    return (seed * 0x9E3779B97F4A7C15 & (1 << 64) - 1) * below >> 64


def picker(numbers: Iterator[int]) -> Pick:
    return lambda least, most: least + next(numbers) % (most - least + 1)


def question(pick: Pick) -> tuple[Network, Schema, int, Slots]:
    """A small network, some of its nodes free, some jobs running, a job to place."""

    def one(items: Iterable[T]) -> T:
        some = tuple(items)
        return some[pick(0, len(some) - 1)]

    width, names = pick(1, 6), "abcdefgh"[: pick(1, 8)]
    every = [f"{name}{position}" for name in names for position in range(width)]
    share = pick(1, 8)
    slots = {node: ("", pick(0, 2)) for node in every if pick(1, 8) <= share}
    tenants = tuple(
        Tenant(
            schema=one(Schema),
            nodes=frozenset(one([*every, "x0"]) for _ in range(pick(1, 3))),
        )
        for _ in range(pick(0, 2))
    )
    leaves = tuple(
        Leaf(
            name=name,
            servers=tuple(
                Server(node=f"{name}{p}", slice_id=pick(0, width - 1))
                for p in range(width - (pick(1, 5) == 1))
            ),
            use=one(LeafUse),
            healthy=one((True, False)),
        )
        for name in names
    )
    network = Network(
        leaves=leaves,
        version=one(Version),
        shared_leaves=pick(1, 2),
        tenants=tenants,
    )
    return network, one(Schema), pick(1, 12), slots


@pytest.mark.seed("003-07", "003-08")
def test_thousands_of_networks_agree_with_the_rule() -> None:
    seen = set()
    for seed in range(4_000):
        numbers = (mixed(seed * 1009 + at, 1 << 20) for at in range(10_000))
        network, schema, pods, slots = question(picker(numbers))
        network = replace(network, version=Version.ONE)

        found = plan(network, schema, pods, slots)

        expected = switch_rules.version_one(network, schema, pods, slots)
        if isinstance(found, str):
            assert expected is None, seed
            seen.add("refused")
            continue
        assert [[node for _, node in part.nodes] for part in found] == expected, seed
        assert {(part.use, part.healthy) for part in found} == {(IDLE, True)}
        leaves = {len({leaf for leaf, _ in part.nodes}) for part in found}
        seen.add(f"{'logical' if max(leaves) > 1 else 'whole'} {min(len(found), 2)}")
    assert seen == {"refused", "whole 1", "whole 2", "logical 1", "logical 2"}


@pytest.mark.property
@given(st.data())
def test_whatever_is_asked_the_answer_keeps_the_rules(data: st.DataObject) -> None:
    asked, schema, pods, slots = question(
        lambda least, most: data.draw(st.integers(least, most))
    )
    found = plan(asked, schema, pods, slots)
    if isinstance(found, str):
        assert str(pods) in found
        return
    ports = [port for part in found for port in part.nodes]
    leaves = {name for name, _ in ports}
    own = {each.name: {s.node for s in each.servers} for each in asked.leaves}

    assert len({node for _, node in ports}) == len(ports) == pods
    assert all(node in slots and node in own[name] for name, node in ports)
    is_large = schema is Schema.LARGE_MODEL
    if asked.version is Version.SINGLE_LAYER or (is_large and pods < 4):
        assert len(leaves) == 1
    elif is_large and len(leaves) > 1 and asked.version is Version.ONE:
        positions = Counter(int(node[1:]) for _, node in ports)
        loads = [positions[p] for p in range(asked.width)]
        assert max(loads) - min(loads) <= 1
        for tenant in asked.tenants:
            crossed = [
                name
                for name, there in own.items()
                if there & tenant.nodes and tenant.nodes - there
            ]
            small = {n for n in crossed if len(own[n] & slots.keys()) < pods}
            assert leaves.isdisjoint(small)
    elif is_large and len(leaves) > 1:
        shared = [part for part in found if part.use is LeafUse.SHARED]
        assert len(shared) <= max(asked.shared_leaves, 1)
        assert all(part.healthy for part in found)


def test_what_runs_under_leaves_is_known_by_leaf() -> None:
    """Leaves a to e, by bits from the right; x0 hangs on none of them."""
    tenants = (
        Tenant(schema=LARGE, nodes=frozenset({"a0", "x0"})),
        Tenant(schema=NORMAL, nodes=frozenset({"b0", "c0"})),
        Tenant(schema=LARGE, nodes=frozenset({"d1", "d2"})),
        Tenant(schema=LARGE, nodes=frozenset({"b1", "e1"})),
        Tenant(schema=NORMAL, nodes=frozenset({"d0"})),
        Tenant(schema=LARGE, nodes=frozenset({"b2"})),
    )
    network = Network(leaves=tuple(map(leaf, "abcde")), tenants=tenants)

    assert network.crossings == Crossings(
        spine=0b10111, large_model_spine=0b10011, large_model=0b11011
    )
    assert Network(leaves=network.leaves).crossings == Crossings()


@pytest.mark.parametrize("schema", Schema)
@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize("pods", [2, 5])
def test_without_leaves_there_is_no_place(
    schema: Schema, version: Version, pods: int
) -> None:
    bare = Leaf(name="a", servers=())

    for leaves in ((), (bare,)):
        network = Network(leaves=leaves, version=version)
        assert isinstance(plan(network, schema, pods, free(a="0")), str)
        assert network.width == 0


def test_common_jobs_stay_beside_a_large_one_that_keeps_to_its_leaf() -> None:
    inside = Tenant(schema=LARGE, nodes=frozenset({"b0", "b1"}))
    network = Network(leaves=(leaf("a"), leaf("b")), tenants=(inside,))

    found = plan(network, NORMAL, 6, free(a="0123", b="0123"))

    assert found == (
        Part(nodes=(("a", "a0"), ("a", "a1"), ("a", "a2"), ("a", "a3"))),
        Part(nodes=(("b", "b0"), ("b", "b1"))),
    )


def test_under_a_single_layer_a_leaf_gives_no_more_than_is_asked() -> None:
    network = Network(leaves=(leaf("a"),), version=Version.SINGLE_LAYER)

    found = plan(network, LARGE, 3, free(a="0123"))

    assert found == (Part(nodes=(("a", "a0"), ("a", "a1"), ("a", "a2"))),)


@rows(
    ("slots", "pods", "expected"),
    {
        "crowded before healthy": (free(u="0123", h="012"), 2, ["u0 u1"]),
        "a whole leaf": (free(a="0123", e="0123"), 4, ["a0 a1 a2 a3"]),
        "one slot": (free(a="0123", h="0"), 5, ["a0 a1 a2 a3", "h0"]),
        "no more of it": (free(a="0123", h="012"), 5, ["a0 a1 a2 a3", "h0"]),
        "all of two": (
            free(a="0123", h="012", s="01"),
            9,
            ["a0 a1 a2 a3", "s0 s1", "h0 h1 h2"],
        ),
    },
)
def test_under_2_0_shared_leaves_give_what_is_missing(
    slots: Slots, pods: int, expected: list[str]
) -> None:
    network = Network(
        leaves=(
            leaf("a"),
            leaf("u", use=SHARED, healthy=False),
            leaf("h", use=SHARED),
            leaf("s", use=SHARED),
            leaf("e", use=EXCLUSIVE),
        ),
        version=Version.TWO,
    )

    found = plan(network, LARGE, pods, slots)

    assert nodes(found) == expected


def test_under_2_0_a_job_smaller_than_a_leaf_lies_under_one() -> None:
    """Five pods are no filler, but under a leaf of eight they need no spine."""
    network = Network(
        leaves=(leaf("a", 8), leaf("e", 8, use=EXCLUSIVE)), version=Version.TWO
    )

    found = plan(network, LARGE, 5, free(a="01234567", e="012345"))

    nodes = tuple(("e", f"e{position}") for position in range(5))
    assert found == (Part(nodes=nodes, use=EXCLUSIVE),)


def test_as_many_pods_as_positions_take_the_first_logical_leaf() -> None:
    """Fewer take the last that has room for them; a whole one is counted from first."""
    slots = free(a="0", b="0", c="1", d="1")
    narrow = Network(leaves=tuple(leaf(name, 2) for name in "abcd"))
    wide = Network(leaves=tuple(leaf(name, 3) for name in "abcd"))

    assert plan(narrow, NORMAL, 2, slots) == (Part(nodes=(("a", "a0"), ("c", "c1"))),)
    assert plan(wide, NORMAL, 2, slots) == (Part(nodes=(("b", "b0"), ("d", "d1"))),)


def test_the_last_logical_leaf_is_counted_from_the_leaves_with_the_most_slots() -> None:
    """Each position has three: a, f, g; a, b, c; a, b, c; b, c, f."""
    wide = Network(leaves=tuple(leaf(name, 8) for name in "gfabc"))
    slots = free(a="012", b="123", c="123", f="03", g="0")

    assert plan(wide, LARGE, 4, slots) == (
        Part(nodes=(("g", "g0"), ("c", "c1"), ("c", "c2"), ("f", "f3"))),
    )
