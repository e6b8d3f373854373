"""The plan of a job, and the phase that it is in; a restart of the extender loses both.

Only steps of the cache change it: `permit.py` the phase, `learning.py` what the
scheduler's answers teach, `gangs.py` what ends with a pod or a node, and `step.py` of
the cache the nodes of two pods that swap them and the time of a node reservation.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from extender.gang.membership import AbsentMember
from scheduler_core.placement.siblings import Cap


class Phase(StrEnum):
    """How far a job is: without a plan, planned, or being bound.

    A job whose pods are all bound has no plan any more. Metrics show the name in lower
    case.
    """

    #: no chips are reserved
    GATHERING = "waiting"
    #: all members have reservations; their binds wait for each other
    RESERVED = "planned"
    #: binds are released, or a member was bound before
    BINDING = "being bound"


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """A list of nodes without the planned node of a pod."""

    offered: frozenset[str]
    #: nodes that are missing, of those offered before a member had come
    withheld: frozenset[str]
    #: (kind, node) of the members that have come, or have a node
    come: tuple[tuple[str, str], ...]


@dataclass(slots=True, kw_only=True)
class JobPlan:
    """What the extender has decided for a job; a restart drops it."""

    phase: Phase = Phase.GATHERING
    #: {uid: planned node} of members without a node
    places: dict[str, str] = field(default_factory=dict)
    #: {member without a pod: planned node}
    followers: dict[AbsentMember, str] = field(default_factory=dict)
    #: when the nodes of `followers` are given back, in seconds since the epoch
    followers_until_s: float = 0.0
    #: {uid: number of its waiting bind call}
    waiting_calls: dict[str, int] = field(default_factory=dict)
    #: members whose released bind has not ended
    open_binds: set[str] = field(default_factory=set)
    #: deadline of the phase, in seconds since the epoch
    until_s: float = 0.0
    #: when binds were released
    open_s: float = 0.0
    #: whether an event said that it is partly bound
    is_reported: bool = False
    #: whether an event said that it runs with fewer pods than it has
    is_part_reported: bool = False

    #: consecutive plans that failed
    failures: int = 0
    #: earliest time of the next plan
    again_s: float = 0.0
    #: {(kind, node that the scheduler refused to it): until when plans avoid it}
    refused: dict[tuple[str, str], float] = field(default_factory=dict)
    #: pairs of kinds that the scheduler has not let onto one node
    apart: set[tuple[str, str]] = field(default_factory=set)
    #: nodes onto which it has let no more pods of a kind together
    caps: dict[Cap, None] = field(default_factory=dict)
    #: {kind that must be beside pods like itself: until when plans count those of the
    #: job alone}
    near_own: dict[str, float] = field(default_factory=dict)
    #: {kind: nodes that the scheduler had offered to it when the plan was made}
    lists: Mapping[str, frozenset[str]] = field(default_factory=dict)
    #: members that filter has let go to their planned node
    accepted: set[str] = field(default_factory=set)
    #: {uid: what is to be learnt if it does not come in time}
    misses: dict[str, Miss] = field(default_factory=dict)
    #: when its chips were reserved
    planned_s: float = 0.0
    #: (end, seconds) of the plans of the last hour that the scheduler did not follow
    vain: list[tuple[float, float]] = field(default_factory=list)
    #: whether its binds wait for each other here; under Volcano they do not
    is_gated: bool = True
    #: since when it is complete and does not fit; None otherwise
    waits_s: float | None = None
    #: earliest time of its next node reservation
    nodes_again_s: float = 0.0
    #: why it does not fit
    text: str = ""
