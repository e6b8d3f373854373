"""Snapshots with everything in them, made by chance, and what readers say of them."""

import json
from collections.abc import Callable
from functools import cache
from typing import Any

from hypothesis import strategies as st

from scheduler_core.documents.reader import DocumentError
from scheduler_core.node.decision import LeafUse
from scheduler_core.node.reasons import Reason
from scheduler_core.placement.job_rules import Profile
from scheduler_core.products import lookup
from scheduler_core.products.table import ATLAS_800_TRAINING, PRODUCTS, Product
from scheduler_core.snapshot.values import (
    Snapshot,
    SnapshotBudget,
    SnapshotJob,
    SnapshotNode,
    SnapshotPod,
    SnapshotSwitches,
)
from scheduler_core.topology.leaves import Leaf, Schema, Server, Version
from tests.machines import EIGHT

#: every row that a node of a snapshot may have: servers, then kinds of parts
ROWS = (
    *PRODUCTS,
    *filter(None, map(lookup.find_virtual_row, lookup.STATIC_PARTS)),
)
_NAMES = st.text(min_size=1, max_size=5)
_TEXTS = st.dictionaries(_NAMES, st.text(max_size=3), max_size=2)
_BARS = (Reason.NO_ALLOCATABLE, Reason.AGENT_SILENT, Reason.IDS_LOST)


def problems_of(parse: Callable[[str], object], document: object) -> tuple[str, ...]:
    """Return what a reader says of a document; nothing when it is content."""
    try:
        parse(json.dumps(document))
    except DocumentError as error:
        return error.problems
    return ()


def node(name: str, **more: Any) -> SnapshotNode:
    """Return an Atlas 800 training server with eight chips; `more` says otherwise."""
    usual: dict[str, Any] = {"product": ATLAS_800_TRAINING, "chips": EIGHT}
    return SnapshotNode(name=name, **usual | more)


@cache  # a strategy is checked when it is first drawn from
def _some(within: tuple[int, ...]) -> st.SearchStrategy[tuple[int, ...]]:
    if not within:
        return st.just(())
    some = st.frozensets(st.sampled_from(within), max_size=8)
    return some.map(lambda chips: tuple(sorted(chips)))


def _unique_names(most: int) -> st.SearchStrategy[list[str]]:
    return st.lists(_NAMES, max_size=most, unique=True)


@cache
def _products(besides: str = "") -> st.SearchStrategy[Product]:
    """A product, but none of this resource."""
    return st.sampled_from([row for row in ROWS if row.resource != besides])


@st.composite
def _nodes(draw: st.DrawFn, name: str, besides: str = "") -> SnapshotNode:
    product = draw(_products(besides))
    chips = draw(_some(tuple(range(product.chip_count))))
    part = _some(chips)
    return SnapshotNode(
        name=name,
        product=product,
        chips=chips,
        unhealthy=draw(part),
        network_unhealthy=draw(part),
        held=draw(part),
        releasing=draw(part),
        listed=draw(st.none() | part),
        barred=draw(st.none() | st.sampled_from(_BARS)),
        superpod=draw(st.integers(-1, 3)),
        labels=draw(_TEXTS),
        annotations=draw(_TEXTS),
    )


@st.composite
def _lines(draw: st.DrawFn, name: str) -> list[SnapshotNode]:
    """A node, once for each resource of which it has chips."""
    first = draw(_nodes(name))
    if not draw(st.booleans()):
        return [first]
    return [first, draw(_nodes(name, first.product.resource))]


@st.composite
def _pods(
    draw: st.DrawFn,
    name: str,
    on: list[list[SnapshotNode]],
    jobs: list[str],
    some: list[str],
) -> SnapshotPod:
    lines = draw(st.sampled_from(on))
    node = draw(st.sampled_from(lines))
    return SnapshotPod(
        name=name,
        node=node.name,
        chips=draw(_some(tuple(range(node.product.chip_count)))),
        resource=node.product.resource if len(lines) > 1 else "",
        phase=draw(st.sampled_from(["Pending", "Running", "Succeeded"])),
        terminating=draw(st.booleans()),
        priority=draw(st.integers(-(2**31), 10**9)),
        started_s=draw(st.none() | st.integers(0, 2**40)),
        job=draw(st.sampled_from(["", *jobs])),
        rank=draw(st.none() | st.integers(0, 9)),
        budgets=tuple(
            draw(st.lists(st.sampled_from(some), unique=True)) if some else ()
        ),
    )


@st.composite
def _switches(draw: st.DrawFn, nodes: list[str]) -> SnapshotSwitches:
    hung = draw(st.permutations([*nodes, "", ""]))
    names = draw(_unique_names(3))
    leaves = [
        Leaf(
            name=name,
            servers=tuple(
                Server(node=node, slice_id=draw(st.integers(0, 3)))
                for node in hung[at :: len(names)]
            ),
            use=draw(st.sampled_from(LeafUse)),
            healthy=draw(st.booleans()),
        )
        for at, name in enumerate(names)
    ]
    return SnapshotSwitches(
        leaves=tuple(leaves),
        version=draw(st.sampled_from(Version)),
        shared_leaves=draw(st.integers(1, 2)),
    )


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    """Up to four nodes and pods, whatever is said of them."""
    on = [draw(_lines(name)) for name in draw(_unique_names(4))]
    nodes = [node for lines in on for node in lines]
    jobs, budgets = draw(_unique_names(2)), draw(_unique_names(2))
    pods = draw(_unique_names(4)) if nodes else []
    hung = [lines[0].name for lines in on]
    return Snapshot(
        nodes=tuple(nodes),
        pods=tuple(draw(_pods(name, on, jobs, budgets)) for name in pods),
        jobs=tuple(
            SnapshotJob(
                name=name,
                min_available=draw(st.none() | st.integers(1, 9)),
                schema=draw(st.none() | st.sampled_from(Schema)),
            )
            for name in jobs
        ),
        budgets=tuple(
            SnapshotBudget(name=name, allowed=draw(st.integers(0, 3)))
            for name in budgets
        ),
        switches=draw(st.none() | _switches(hung)),
        superpod_size=draw(st.integers(1, 99)),
        superpod_reserve=draw(st.integers(0, 9)),
        profile=draw(st.sampled_from(Profile)),
    )
