"""A scheduling loop that calls an extender as kube-scheduler does.

Belongs here: the queue, the in-tree filters that extended resources need, the extender
protocol, assumed pods and background binds. Does not belong here: any rule about chips.

Paths in comments are below `pkg/scheduler/` of Kubernetes v1.36.3.
Decision: `docs/adr/0010-a-sandbox-of-our-own.md`.
"""

from sandbox.scheduler.extender import ExtenderSettings
from sandbox.scheduler.loop import SchedulingLoop, Step

__all__ = ["ExtenderSettings", "SchedulingLoop", "Step"]
