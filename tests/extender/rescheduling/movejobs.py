"""Jobs of a cluster in which jobs move, and their pods."""

from dataclasses import dataclass

from extender.gang.fault_policy import Switch
from extender.rescheduling.ends import End, Reach, Replacement
from extender.rescheduling.moves import (
    Limits,
)
from scheduler_core.rescheduling.ladder import Rung
from scheduler_core.wire.chip_faults import ChipFault
from scheduler_core.wire.chip_faults import Effect as FaultEffect

LIMITS = Limits(is_evicting=True, most_asks=2, brake_nodes=3)
NODES = tuple(f"n{number}" for number in range(8))
CHIPS = (1, 2)
RESOURCE = "npu"
FAULT = ChipFault(
    chip=0, effect=FaultEffect.OUT_OF_SERVICE, level="SeparateNPU", codes=("A1",)
)


@dataclass(kw_only=True)
class Pod:
    uid: str
    #: its job, of which only one that is by itself has a key of its own
    job: str
    number: int
    #: "" while it waits
    node: str = ""
    chip: int = 0
    is_ending: bool = False

    @property
    def is_running(self) -> bool:
        return bool(self.node) and not self.is_ending


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job, and what its controller does."""

    name: str
    count: int
    rungs: tuple[Rung, ...] = (Rung.JOB,)
    #: what it needs at least, if it is elastic
    least: int | None = None
    switch: Switch = Switch.GRACE
    reach: Reach = Reach.POD
    survives: bool = True
    #: whether its one pod is a job by itself
    is_alone: bool = False

    def end(self, *, is_over: bool = False) -> End:
        survives = self.survives and not is_over
        makes = Replacement.YES if survives else Replacement.NO
        reason = "" if survives else "its job would end"
        return End(reach=self.reach, replacement=makes, reason=reason)
