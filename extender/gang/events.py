"""What happens to jobs of several pods, and what is to be done then, as values.

The book of jobs, the gate and the planner speak to each other in these words, so that
any order of events can be written down and replayed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long things may take, in seconds."""

    #: a bind call is answered within it: below the scheduler's `httpTimeout`
    gate_s: float = 20.0
    #: a plan of which no pod has come ends
    plan_s: float = 30.0
    #: people are told of a job that is bound in part
    partial_s: float = 60.0
    #: what such a job still keeps is given back
    complete_s: float = 600.0
    #: whether its bound pods are evicted then, so that it begins anew as a whole
    evicts_incomplete: bool = False
    #: a node that refused a pod of a job is left out when that job is planned
    avoid_s: float = 120.0
    #: a job that has waited so long has nodes kept for it, and for how long
    reserve_after_s: float = 300.0
    reserve_for_s: float = 1800.0
    #: pause after a plan that failed; doubles
    first_wait_s: float = 2.0
    longest_wait_s: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """One bind call that may have to wait."""

    uid: str
    node: str
    #: whether somebody still waits for the answer
    is_there: Callable[[], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A job has been planned: {uid: node} of its pods without a node."""

    job: str
    places: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unplanned:
    """A job has been looked at and has no room, and why."""

    job: str
    said: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Came:
    """A bind call of a pod, for a node."""

    uid: str
    node: str
    call: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """The caller of a bind that waits has gone."""

    uid: str
    call: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Seated:
    """A pod is bound."""

    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A bind that the gate let through has not bound the pod, as far as is known."""

    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocated:
    """Volcano has put a pod where the plan has it; the bind is its own."""

    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """Volcano has taken a pod back that it had put there."""

    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """A pod has gone, has failed or is ending."""

    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Missed:
    """The scheduler does not offer a pod its planned node."""

    uid: str
    #: whether it offered that node only, as it does for a pod with a nomination
    of_one: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """What a plan has promised can no longer be given, and why."""

    job: str
    said: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticked:
    """Time has passed."""


Event = (
    Planned
    | Unplanned
    | Came
    | Left
    | Seated
    | Failed
    | Allocated
    | Returned
    | Lost
    | Missed
    | Broken
    | Ticked
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """Carry out the binds of these calls: {uid: call}."""

    job: str
    calls: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Refuse the bind of a call, with a sentence."""

    call: int
    said: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveBack:
    """The chips planned for these pods are free."""

    uids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tell:
    """Say on these pods what became of their job."""

    uids: tuple[str, ...]
    reason: str
    said: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Remove:
    """Evict these pods: their job is not complete and is to begin anew."""

    uids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wake:
    """Have the scheduler try pods again."""


Effect = Open | Answer | GiveBack | Tell | Remove | Wake
