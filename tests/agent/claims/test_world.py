"""What the state machine's world takes for a fault of the agent, and what not."""

from collections import Counter

import pytest

from agent.claims import values
from agent.claims.annotations import Patch
from scheduler_core.wire.pods import NpuPod
from tests.agent.claims.admission_model import Manner
from tests.agent.claims.cluster_model import ALL_CHIPS, APP, annotated
from tests.agent.claims.world_model import World


def bound(world: World, name: str) -> NpuPod:
    """A new pod with one container of one chip."""
    uid = world.cluster.bind(((APP, 1),), name=name, reads_annotation=False)
    assert uid is not None
    return world.cluster.pods[uid]


def admitted(world: World, pod: NpuPod) -> None:
    """A pod that came through admission, runs, and is known to have its chip."""
    kubelet = world.kubelet
    kubelet.begin(pod, Manner())
    while kubelet.admission is not None:
        kubelet.advance()
    kubelet.start(pod.uid)
    kubelet.report(pod.uid)
    world.agent.deliver(len(world.cluster.watch))
    world.agent.pass_(thorough=False)


def with_a_chip_given_up(world: World) -> Patch:
    """Let a pod give up its chip for that of one that has gone.

    Returns:
        The patch that says so: it is on its way.
    """
    first, gone, heir = (bound(world, name) for name in ("first", "gone", "heir"))
    admitted(world, first)
    admitted(world, heir)
    world.force_delete(gone.uid)
    world.agent.deliver(len(world.cluster.watch))
    world.agent.publish()
    world.agent.send()
    (patch,) = world.agent.batch
    assert patch.uid == heir.uid
    return patch


def chosen_again(world: World) -> NpuPod:
    """A pod whose claim is broken: of the others' chips the one given up is free."""
    late = bound(world, "late")
    world.broken = ALL_CHIPS & ~world.cluster.annotated()
    world.broken |= world.cluster.bound[late.uid]
    world.agent.look()
    admitted(world, late)
    return late


def test_a_chip_may_be_chosen_again_while_a_patch_that_gives_it_up_is_on_its_way() -> (
    None
):
    world = World(Counter())
    with_a_chip_given_up(world)
    late = chosen_again(world)
    (chip,) = world.agent.ledger.holds[world.agent.ledger.sequence].chips

    world.agent.send()

    assert not world.cluster.annotated() >> chip & 1
    assert values.held_chips(world.agent.ledger) >> chip & 1
    while world.agent.send():
        pass
    assert annotated(world.cluster.pods[late.uid]) == 1 << chip


def test_but_no_patch_that_is_made_later_may_leave_it_to_nobody() -> None:
    world = World(Counter())
    patch = with_a_chip_given_up(world)
    world.agent.batch.clear()
    chosen_again(world)
    world.agent.send()  # the first of a new batch
    world.agent.batch = [patch]

    with pytest.raises(AssertionError, match="claimed by nobody"):
        world.agent.send()
