"""Pods that need a chip first to prepare, and who has what of theirs."""

from agent.claims.store import LedgerStore
from scheduler_core.wire.pods import NpuPod
from tests.agent.node import current, holds, pod
from tests.agent.rules.kubelet import app, init, mounts, shows

NEEDS = [init("prepare", 1), app("main", 1)]


def train(name: str, chip: int, time: int, phase: str = "Pending") -> NpuPod:
    """A pod that needs a chip, first to prepare."""
    return pod(name, [chip], time, containers=NEEDS, phase=phase)


def confirmed() -> LedgerStore:
    """A node where such a pod runs, with both its holds."""
    now = current(train("train", 0, 1, phase="Running"))
    mounts(now, 5)
    mounts(now, 5)
    shows(now, "train", main=(5,))
    return now


def owners(now: LedgerStore) -> dict[int, str]:
    """{sequence of a hold: whose it is (pod/container)}."""
    return {sequence: owner for sequence, (owner, _, _) in holds(now).items()}
