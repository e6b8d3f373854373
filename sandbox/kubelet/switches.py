"""Switches by which stories and tests steer an embedded kubelet.

Everything here happens with real kubelets as well, only not at will.

A module of its own: all parts of the kubelet read these values, and stories set them.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class Switches:
    """Read at each use; change them at any time."""

    #: fill requests at random, whatever the plugin prefers
    ignore_preferences: bool = False
    #: ids that the next allocations use instead of the plugin's preference;
    #: what of them is not available is filled up at random
    scripted_ids: deque[list[str]] = field(default_factory=deque)
    #: keep new pods until `Kubelet.admit` names them
    hold_admission: bool = False
    #: names of pods that a check rejects that comes after Allocate (AppArmor)
    reject_after_allocate: set[str] = field(default_factory=set)
    #: how long an init container runs; infinite: until `Kubelet.finish`
    init_container_s: float = 0.02
    #: how long containers take to stop, at most the pod's grace period
    stop_s: float = 0.0
    #: names of pods whose processes stay on their chips when their containers end,
    #: until `Kubelet.end_processes`
    outlived: set[str] = field(default_factory=set)
    #: how long the driver shows the processes of a container that has ended
    process_lag_s: float = 0.0
    #: back-off of the second restart of a container; doubles up to 300 s
    restart_backoff_s: float = 10.0
    #: pause before a container is created again whose creation failed
    retry_s: float = 1.0
    #: called when a GetPreferredAllocation is about to be sent to a plugin
    before_preference: Callable[[], None] | None = None
    #: called when an Allocate is about to be sent to a plugin, and when it has answered
    before_allocate: Callable[[], None] | None = None
    after_allocate: Callable[[], None] | None = None
