"""Scheduling loops that talk to an extender as kube-scheduler and Volcano do.

What belongs here: the queue, the in-tree filters that extended resources need,
the extender protocol, assumed pods and background binds. What does not: any
idea of chips.

Paths in comments are under `pkg/scheduler/` of Kubernetes v1.36.3.
"""

from sandbox.scheduler.extender import ExtenderSettings
from sandbox.scheduler.loop import SchedulingLoop, Step
from sandbox.scheduler.volcano import VolcanoLoop

__all__ = ["ExtenderSettings", "SchedulingLoop", "Step", "VolcanoLoop"]
