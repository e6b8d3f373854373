"""What an agent sees of the pods on its node, as a test wants it."""

from collections.abc import Sequence
from dataclasses import dataclass

from scheduler_core.wire.pods import NpuPod


@dataclass(kw_only=True)
class Sight:
    """What can be seen of pods, and who wanted to see."""

    kubelet_pods: Sequence[NpuPod] = ()
    kubelet_was_asked: int = 0
    was_hurried: int = 0
    silent_s: float = 0.0

    def hurry(self) -> None:
        self.was_hurried += 1

    def unseen_s(self) -> float:
        return self.silent_s

    async def of_kubelet(self, _resource: str) -> Sequence[NpuPod]:
        self.kubelet_was_asked += 1
        return self.kubelet_pods
