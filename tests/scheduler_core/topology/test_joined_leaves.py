"""Nodes for pods that join a job under leaf switches; a node is leaf and position."""

from collections import Counter
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.node.decision import LeafUse
from scheduler_core.topology import joined_leaves
from scheduler_core.topology.joined_leaves import Running
from scheduler_core.topology.leaves import Network, Part, Schema, Tenant, Version
from tests.scheduler_core.leaf_parts import free, leaf, nodes, request
from tests.support.rows import rows

LARGE, NORMAL = Schema.LARGE_MODEL, Schema.NORMAL
IDLE, SHARED, EXCLUSIVE = LeafUse.IDLE, LeafUse.SHARED, LeafUse.EXCLUSIVE
ABC = Network(leaves=(leaf("a"), leaf("b"), leaf("c")))
UNEVEN = "nodes that load the spine switches evenly can take a pod"


def join(
    network: Network,
    schema: Schema,
    pods: int,
    slots: dict[str, tuple[str, int]],
    *running: str,
    **uses: tuple[LeafUse, bool],
) -> tuple[Part, ...] | str:
    asked = request(network, schema, pods, slots)
    return joined_leaves.decide(asked, Running(nodes=frozenset(running), uses=uses))


@rows(
    ("schema", "pods", "running", "expected"),
    {
        "under the leaf of its job": (NORMAL, 1, ("a0", "a1"), ["a2"]),
        "of a filler too": (LARGE, 1, ("a0",), ["a2"]),
        "a filler goes nowhere else": (
            LARGE,
            1,
            ("b0",),
            ["too few nodes under leaf switch b, where its job runs"],
        ),
        "at the position that is used least": (
            LARGE,
            1,
            ("a0", "b1", "b2"),
            ["a3"],
        ),
        "no position twice before each is used": (
            LARGE,
            1,
            ("a2", "b2"),
            [f"no 1 {UNEVEN}"],
        ),
        "a normal job takes what there is": (
            NORMAL,
            2,
            ("a0", "b1", "b2"),
            ["a2 a3"],
        ),
    },
)
def test_a_joiner_keeps_the_rules_of_its_job(
    schema: Schema, pods: int, running: tuple[str, ...], expected: list[str]
) -> None:
    slots = free(a="23", c="12")

    assert nodes(join(ABC, schema, pods, slots, *running)) == expected


def test_without_a_spine_there_is_one_leaf() -> None:
    flat = Network(leaves=ABC.leaves, version=Version.SINGLE_LAYER)
    slots = free(a="23", c="0123")

    assert nodes(join(flat, NORMAL, 2, slots, "a0")) == ["a2 a3"]
    assert nodes(join(flat, NORMAL, 3, slots, "a0")) == [
        "too few nodes under leaf switch a, where its job runs"
    ]


@pytest.mark.parametrize("schema", [LARGE, NORMAL])
def test_a_leaf_from_which_another_job_uses_the_spine_is_closed(schema: Schema) -> None:
    other = Tenant(schema=LARGE, nodes=frozenset({"b3", "c3"}))
    network = Network(leaves=ABC.leaves, tenants=(other,))
    slots = free(a="13", b="12", c="12")

    found = join(network, schema, 1, slots, "a0", "a2", "b1")

    assert nodes(found) == ["a3"]
    assert join(network, LARGE, 1, free(a="2", c="2"), "b0", "b1", "b3") == (
        f"no 1 {UNEVEN}"
    )


def test_pods_whose_nodes_have_no_leaf_do_not_decide() -> None:
    assert nodes(join(ABC, LARGE, 2, free(c="12"), "x")) == ["c1 c2"]


# -- 2.0 -----------------------------------------------------------------------

OWN = {"a0": (EXCLUSIVE, True), "b0": (SHARED, True)}


def two(**uses: LeafUse) -> Network:
    leaves = tuple(leaf(name, use=uses.get(name, IDLE)) for name in "abcd")
    return Network(leaves=leaves, version=Version.TWO)


def marked(found: tuple[Part, ...] | str) -> list[Any]:
    return [(*nodes((part,)), part.use) for part in found if isinstance(part, Part)]


def test_leaves_of_the_job_come_first_and_keep_their_marks() -> None:
    slots = free(a="12", b="1", c="0123", d="0123")

    found = join(two(), LARGE, 3, slots, *OWN, **OWN)

    assert marked(found) == [("a1 a2", EXCLUSIVE), ("b1", SHARED)]


def test_leaves_that_a_job_shares_already_count() -> None:
    slots = free(a="1", c="123", d="123")
    once = join(two(c=SHARED, d=SHARED), LARGE, 2, slots, *OWN, **OWN)
    full = {**OWN, "b1": (SHARED, True)} | {"d0": (SHARED, True)}

    assert marked(once) == [("a1", EXCLUSIVE), ("c1", SHARED)]
    assert join(two(c=SHARED), LARGE, 2, free(a="1", c="123"), *full, **full) == (
        "fewer than 1 nodes under idle leaf switches and 0 shared ones can take a pod: "
        "0 and 0"
    )
    assert marked(
        join(two(c=SHARED), NORMAL, 2, free(a="1", c="123"), *full, **full)
    ) == [("a1", EXCLUSIVE), ("c1", SHARED)]


def test_a_job_under_one_leaf_that_does_not_say_so_crosses_no_spine() -> None:
    uses = {"a0": (IDLE, True)}
    slots = free(c="0123")

    assert join(two(), LARGE, 3, slots, "a0", **uses) == (
        "too few nodes under leaf switch a, where its job runs"
    )
    assert marked(join(two(), NORMAL, 1, slots, "a0", **uses)) == [("c0", SHARED)]


# -- all of a small network ------------------------------------------------------

NODES = [f"{name}{position}" for name in "abc" for position in range(3)]
SMALL = Network(leaves=tuple(leaf(name, 3) for name in "abc"))


def is_even(names: list[str]) -> bool:
    counts = Counter(name[1] for name in names)
    numbers = [counts[f"{position}"] for position in range(3)]
    return max(numbers) - min(numbers) <= 1


@given(
    running=st.sets(st.sampled_from(NODES), min_size=3, max_size=6),
    able=st.sets(st.sampled_from(NODES)),
    pods=st.integers(1, 4),
)
def test_a_large_job_that_crosses_the_spine_stays_even_if_that_can_be(
    running: set[str], able: set[str], pods: int
) -> None:
    """Of all sets of nodes, one that loads the spines evenly is found if there is."""
    able -= running
    own = {name[0] for name in running}
    slots = free(
        **{
            name: "".join(sorted(node[1] for node in able if node[0] == name))
            for name in "abc"
        }
    )

    found = join(SMALL, LARGE, pods, slots, *running)

    chosen = [] if isinstance(found, str) else [n for p in found for _, n in p.nodes]
    assert set(chosen) <= able
    if len(own) == 1:
        return
    possible = any(
        is_even([*running, *some]) for some in combinations(sorted(able), pods)
    )
    assert bool(chosen) == possible
    assert not chosen or (len(chosen) == pods and is_even([*running, *chosen]))
