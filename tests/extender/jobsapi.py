"""What planning whole jobs asks of the world, written down."""

from dataclasses import dataclass, field

from extender.gang.membership import SizeSource
from extender.gang.size import Size
from scheduler_core.wire.pods import NpuPod


@dataclass(slots=True)
class Jobs:
    """Sizes of jobs as their objects say them, and what was said of pods."""

    #: {path of the object: size}
    sizes: dict[str, Size] = field(default_factory=dict)
    #: (pod, reason, sentence)
    told: list[tuple[str, str, str]] = field(default_factory=list)
    #: names of the pods that were evicted
    removed: list[str] = field(default_factory=list)
    wakes: int = 0

    async def size(self, told: SizeSource) -> Size | str:
        return self.sizes.get(told.path, f"its {told.kind} cannot be read")

    async def remove(self, pod: NpuPod) -> None:
        self.removed.append(pod.name)

    def tell(self, pod: NpuPod, reason: str, text: str) -> None:
        self.told.append((pod.name, reason, text))

    def wake(self) -> None:
        self.wakes += 1
