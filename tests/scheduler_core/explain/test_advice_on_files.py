"""What is advised for a file, done in the file."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.node.decision import Rejection
from scheduler_core.node.reasons import Reason
from scheduler_core.preemption.relaxations import (
    AddNode,
    ConfirmPod,
    FreeChip,
    HealChip,
    HealNetwork,
    Relaxation,
    ReopenNode,
)
from scheduler_core.products import table
from scheduler_core.snapshot import questions
from scheduler_core.snapshot.job import Job
from scheduler_core.snapshot.questions import Case
from scheduler_core.snapshot.values import Snapshot, SnapshotNode, SnapshotPod
from tests.machines import EIGHT
from tests.scheduler_core.snapshot.documents import node

ROWS = [table.by_key(key) for key in ("atlas-800-training", "atlas-a3-8", "mesh-8")]
Chips = tuple[int, ...]
SOME = st.frozensets(st.sampled_from(EIGHT), max_size=3).map(
    lambda chips: tuple(sorted(chips))
)


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    row = draw(st.sampled_from(ROWS))
    nodes = [
        node(
            name,
            product=row,
            unhealthy=draw(SOME),
            network_unhealthy=draw(SOME),
            held=draw(SOME),
            releasing=draw(SOME),
            barred=draw(st.sampled_from([None, None, Reason.AGENT_SILENT])),
        )
        for name in draw(st.sampled_from(["", "a", "ab", "abc"]))
    ]
    pods = [
        SnapshotPod(name=f"{one.name}-{at}", node=one.name, chips=draw(SOME))
        for one in nodes
        for at in range(draw(st.integers(0, 3)))
    ]
    return Snapshot(nodes=tuple(nodes), pods=tuple(pods))


def done(before: Snapshot, part: Relaxation) -> Snapshot:
    """The file when one part has been done, as a person would do it."""
    match part:
        case AddNode(node=name, row=row):
            new = node(name, product=row, chips=tuple(range(row.chip_count)))
            return replace(before, nodes=(*before.nodes, new))
        case FreeChip(node=name, chip=chip):
            pods = tuple(
                replace(pod, chips=without(pod.chips, chip))
                if pod.node == name
                else pod
                for pod in before.pods
            )
            before = replace(before, pods=pods)
        case ConfirmPod():
            pytest.fail("nothing is to be avoided in a file")
        case _:
            pass
    nodes = tuple(
        mended(one, part) if one.name == part.node else one for one in before.nodes
    )
    return replace(before, nodes=nodes)


def mended(before: SnapshotNode, part: Relaxation) -> SnapshotNode:
    match part:
        case FreeChip(chip=chip):
            held = without(before.held, chip)
            return replace(before, held=held, releasing=without(before.releasing, chip))
        case HealChip(chip=chip):
            return replace(before, unhealthy=without(before.unhealthy, chip))
        case HealNetwork(chip=chip):
            left = without(before.network_unhealthy, chip)
            return replace(before, network_unhealthy=left)
        case ReopenNode():
            return replace(before, barred=None)
        case _:
            return before


def without(chips: Chips, chip: int) -> Chips:
    return tuple(each for each in chips if each != chip)


def fits(case: Case, parts: list[Relaxation]) -> bool:
    after = case.snapshot
    for part in parts:
        after = done(after, part)
    answer = questions.decide(replace(case, snapshot=after))
    return not isinstance(answer, Rejection)


@pytest.mark.property
@given(
    found=snapshots(),
    chips=st.sampled_from((1, 2, 4, 8)),
    pods=st.sampled_from((1, 1, 2, 3)),
)
def test_a_file_in_which_all_is_done_has_a_place_and_not_without_any_part(
    found: Snapshot, chips: int, pods: int
) -> None:
    job = Job(resource="huawei.com/Ascend910", chips=chips, pods=pods)
    case = Case(snapshot=found, job=job)

    advice = questions.advise(case)

    parts = [] if advice is None else list(advice.parts)
    if advice is not None:
        assert not fits(case, [])
        assert fits(case, parts)
    for part in parts:
        assert not fits(case, [each for each in parts if each != part]), part
    if pods == 1:
        assert (advice is None) == fits(case, [])
