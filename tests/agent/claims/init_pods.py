"""Pods that need a chip first to prepare."""

from scheduler_core.wire.pods import NpuPod
from tests.agent.node import NodeLedger, current, pod, staged


def train(name: str, chip: int, time: int, phase: str = "Pending") -> NpuPod:
    """A pod that needs a chip, first to prepare."""
    return pod(name, [chip], time, containers=staged(1, 1), phase=phase)


def confirmed() -> NodeLedger:
    """A node where such a pod runs, with both its holds."""
    now = current(train("train", 0, 1, phase="Running"))
    now.mounts_singly(5, 5)
    now.shows("train", main=(5,))
    return now
