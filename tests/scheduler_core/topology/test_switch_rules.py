"""Switch affinity 1.0 against the rule said a second time, and its edges."""

import pytest

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
    schema_of,
)
from tests.scheduler_core.leaf_parts import Slots, free, leaf, nodes, plan
from tests.scheduler_core.topology import switch_rules
from tests.support.rows import rows

LARGE, NORMAL = Schema.LARGE_MODEL, Schema.NORMAL
IDLE, SHARED, EXCLUSIVE = LeafUse.IDLE, LeafUse.SHARED, LeafUse.EXCLUSIVE


def mixed(seed: int, below: int) -> int:
    """Numbers without a visible pattern, the same in every run."""
    return (seed * 0x9E3779B97F4A7C15 & (1 << 64) - 1) * below >> 64


def question(seed: int) -> tuple[Network, Schema, int, Slots]:
    """A small network, some of its nodes free, some jobs running, a job to place."""
    numbers = (mixed(seed * 1009 + at, 1 << 20) for at in range(10_000))
    width, leaves = 1 + next(numbers) % 6, 1 + next(numbers) % 8
    names = "abcdefgh"[:leaves]
    slots: Slots = {}
    share = 1 + next(numbers) % 8
    for name in names:
        for position in range(width):
            if next(numbers) % 8 < share:
                slots[f"{name}{position}"] = ("", next(numbers) % 3)
    tenants = [
        Tenant(
            schema=NORMAL if next(numbers) % 2 else LARGE,
            nodes=frozenset(
                f"{names[next(numbers) % leaves]}{next(numbers) % width}"
                for _ in range(1 + next(numbers) % 3)
            ),
        )
        for _ in range(next(numbers) % 3)
    ]
    network = Network(
        leaves=tuple(
            Leaf(
                name=name,
                servers=tuple(
                    Server(node=f"{name}{p}", slice_id=next(numbers) % width)
                    for p in range(width - (next(numbers) % 5 == 0))
                ),
            )
            for name in names
        ),
        tenants=tuple(tenants),
    )
    schema = NORMAL if next(numbers) % 2 else LARGE
    return network, schema, 1 + next(numbers) % 12, slots


@pytest.mark.seed("003-07", "003-08")
def test_thousands_of_networks_agree_with_the_rule() -> None:
    seen = set()
    for seed in range(4_000):
        asked = question(seed)

        found = plan(*asked)

        expected = switch_rules.version_one(*asked)
        if isinstance(found, str):
            assert expected is None, seed
            seen.add("refused")
            continue
        assert [[node for _, node in part.nodes] for part in found] == expected, seed
        assert {(part.use, part.healthy) for part in found} == {(IDLE, True)}
        leaves = {len({leaf for leaf, _ in part.nodes}) for part in found}
        seen.add(f"{'logical' if max(leaves) > 1 else 'whole'} {min(len(found), 2)}")
    assert seen == {"refused", "whole 1", "whole 2", "logical 1", "logical 2"}


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


def test_a_label_that_means_nothing_is_answered_with_those_that_do() -> None:
    known = "large-model-schema, normal-schema, null"
    said = f"label tor-affinity: expected one of {known}, found 'some-schema'"
    with pytest.raises(ValueError, match=f"^{said}$"):
        schema_of("some-schema")
