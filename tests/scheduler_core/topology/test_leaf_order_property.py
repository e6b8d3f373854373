"""Whatever hangs on the leaves and whatever is asked, the rules are kept."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.node.decision import LeafUse
from scheduler_core.topology.leaves import Network, Schema, Tenant, Version
from tests.scheduler_core.leaf_parts import leaf, plan


@st.composite
def questions(
    draw: st.DrawFn,
) -> tuple[Network, Schema, int, dict[str, tuple[str, int]]]:
    width = draw(st.integers(1, 5))
    names = "abcdef"[: draw(st.integers(1, 6))]
    every = [f"{name}{p}" for name in names for p in range(width)]
    tenants = draw(
        st.lists(
            st.builds(
                Tenant,
                schema=st.sampled_from(Schema),
                nodes=st.frozensets(st.sampled_from([*every, "x0"]), min_size=1),
            ),
            max_size=2,
        )
    )
    leaves = [
        leaf(
            name,
            width,
            use=draw(st.sampled_from(LeafUse)),
            healthy=draw(st.booleans()),
        )
        for name in names
    ]
    slots = draw(st.dictionaries(st.sampled_from(every), st.just(("", 0))))
    asked = Network(
        leaves=tuple(leaves),
        version=draw(st.sampled_from(Version)),
        shared_leaves=draw(st.sampled_from([1, 2])),
        tenants=tuple(tenants),
    )
    return asked, draw(st.sampled_from(Schema)), draw(st.integers(1, 12)), slots


@pytest.mark.property
@given(questions())
def test_whatever_is_asked_the_answer_keeps_the_rules(
    question: tuple[Network, Schema, int, dict[str, tuple[str, int]]],
) -> None:
    asked, schema, pods, slots = question
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
