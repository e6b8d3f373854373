"""Pods that follow one another on a full node: none is refused, no id is bad."""

from collections import Counter

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.claims import occupancy
from agent.claims.events import Identity
from scheduler_core.node import chips as chip_sets
from tests.agent.claims.admission_model import Manner
from tests.agent.claims.cluster_model import APP
from tests.agent.claims.world_model import World

SIZES = (1, 2, 4, 8)
#: A look begins and is told before, while or after the pods of the node end.
ORDERS = st.permutations(["begin look", "end look", "pods end", "watch"]).filter(
    lambda order: (
        order.index("begin look") < order.index("end look")
        and order.index("pods end") < order.index("watch")
    )
)


def fill(world: World, size: int, seed: int) -> list[str]:
    """Fill the node with pods of this size, by a scheduler that reads no report."""
    uids = []
    for index in range(8 // size):
        uid = world.cluster.bind(
            ((APP, size),),
            name=f"{world.cluster.moment}-{index}",
            reads_annotation=False,
            heeds_report=False,
        )
        assert uid is not None
        uids.append(uid)
    for uid in uids:
        world.agent.deliver(len(world.cluster.watch))
        world.kubelet.begin(world.cluster.pods[uid], Manner(seed=seed))
        while world.kubelet.admission is not None:
            world.kubelet.advance()
        if uid not in world.kubelet.ended:
            world.kubelet.start(uid)
            world.kubelet.report(uid)
        world.check()
    world.agent.deliver(len(world.cluster.watch))
    world.agent.pass_(thorough=False, looks=False)
    return uids


def end(world: World, uids: list[str], order: list[str], *, outlives: str = "") -> None:
    """All pods end, in this order with a look; of one of them a process does not."""
    for event in order:
        if event == "begin look":
            world.agent.begin_look()
        elif event == "end look":
            world.agent.end_look()
        elif event == "watch":
            world.agent.deliver(len(world.cluster.watch))
        else:
            for uid in uids:
                world.kubelet.finish(uid, "Succeeded", leftover=uid == outlives)
        world.check()
    world.kubelet.sync()


def unhealthy(world: World) -> set[str]:
    listed = occupancy.list_devices(world.agent.ledger)
    return {name for name, is_healthy in listed if not is_healthy}


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    rounds=st.lists(st.tuples(st.sampled_from(SIZES), ORDERS, st.integers(0, 9))),
    last=st.sampled_from(SIZES),
)
def test_no_successor_is_refused_or_moved_at_any_phase_of_the_look(
    rounds: list[tuple[int, list[str], int]], last: int
) -> None:
    world = World(Counter())
    for size, order, seed in rounds:
        end(world, fill(world, size, seed), order)
        assert unhealthy(world) == set()
        world.agent.stream()

    uids = fill(world, last, 0)

    assert world.seen["refused"] == world.seen[Identity.RECHOSEN] == 0
    assert set(uids) <= world.kubelet.running.keys()


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    size=st.sampled_from(SIZES),
    order=ORDERS,
    seed=st.integers(0, 9),
    which=st.integers(0, 7),
)
def test_after_a_look_exactly_the_ids_of_a_process_that_is_left_are_unhealthy(
    size: int, order: list[str], seed: int, which: int
) -> None:
    world = World(Counter())
    uids = fill(world, size, seed)
    outlives = uids[which % len(uids)]
    (kept,) = (
        {kubelet_id for kubelet_id, _ in container.mounted}
        for (uid, _), container in world.kubelet.containers.items()
        if uid == outlives
    )
    end(world, uids, order, outlives=outlives)
    before = unhealthy(world)

    world.agent.look()

    assert before in (set(), kept)
    assert unhealthy(world) == kept
    left = chip_sets.ids_of(world.kubelet.leftovers)
    world.agent.pass_(thorough=True)
    world.kubelet.leftovers = 0
    world.agent.look()
    world.agent.pass_(thorough=True)
    assert len(left) == size
    assert (unhealthy(world), world.agent.ledger.holds) == (set(), {})
