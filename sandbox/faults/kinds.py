"""Table of all faults: name, effect and parameters of each.

`inject.py` has the function that begins each fault. Commands, scenarios, their schema
and the page for people are made from the table or compared with it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from scheduler_core.documents import reader
from scheduler_core.documents.parsers import converted, matching, reference, word
from scheduler_core.documents.reader import (
    DocumentError,
    Fields,
    Parser,
    Part,
    WrongError,
)

Value = str | int | float | tuple[int, ...]

_DURATION = re.compile(r"(\d+(?:\.\d+)?) *(ms|s|m|h)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
#: No clock is stepped to a time that cannot be written.
_MOST_STEP_S = 365 * 24 * 3600.0


class FaultError(ValueError):
    """A fault that is not in the table, or is asked for wrongly; has every problem."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(problems))


class Kind(Enum):
    """What a parameter is; the value is what people are told is expected."""

    NODE = "the name of a node"
    CHIPS = "chip numbers such as 0,3"
    DURATION = "a duration such as 500ms, 10s, 1m"
    STEP = "a duration such as 10s, 1h, or back: -1h; a year at most"
    COUNT = "a whole number, 1 or more"
    PATTERN = "a name, or a pattern with * and ?"
    MOMENT = "one of now, asked, answered, write"
    OUTCOME = "one of refused, done"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One thing to be said about a fault; without a default it must be."""

    name: str
    kind: Kind
    does: str
    default: str | None = None


@dataclass(frozen=True, slots=True)
class FaultKind:
    """A row of the table."""

    name: str
    does: str
    parameters: tuple[Parameter, ...] = ()
    #: how long it lasts where nobody says; None: until it is ended
    usual_s: float | None = None
    #: whether it is over as soon as it is done
    is_momentary: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault that has been asked for, whole and right."""

    kind: FaultKind
    values: Mapping[str, Value]
    #: how long it lasts; None: until it is ended
    for_s: float | None


_NODE = Parameter("node", Kind.NODE, "whose")
_CHIPS = Parameter("chips", Kind.CHIPS, "which of its chips")
_USER = Parameter("user", Kind.PATTERN, "whose requests", "*")
_RESOURCE = Parameter("resource", Kind.PATTERN, "of what, such as pods", "*")
_COUNT = Parameter("count", Kind.COUNT, "how many requests; usual: all", "")
_WHO = (_USER, _RESOURCE, _COUNT)
_AT = Parameter(
    "at",
    Kind.MOMENT,
    "when: now; asked: the kubelet waits for an Allocate; answered: it has just been "
    "answered; write: a write to the API server has had its effect and no answer yet",
    "now",
)
_NTH = Parameter("nth", Kind.COUNT, "at the how manieth such moment", "1")
_WRITE_AT = Parameter(
    "at", Kind.MOMENT, "when: now, or write, as of an agent-killed", "now"
)

FAULTS = (
    FaultKind(
        "api-slow",
        "each request to the API server waits",
        (Parameter("delay", Kind.DURATION, "how long", "1s"), *_WHO),
    ),
    FaultKind("api-down", "the API server is away: connections break, and are refused"),
    FaultKind("api-409", "writes are refused: somebody else has written", _WHO),
    FaultKind(
        "api-410",
        "the API server forgets its history: watches end, and must begin with a list",
        is_momentary=True,
    ),
    FaultKind(
        "api-429",
        "requests are refused: too many",
        (Parameter("retry-after", Kind.DURATION, "when to come again", "1s"), *_WHO),
    ),
    FaultKind(
        "api-500",
        "requests fail",
        (
            Parameter(
                "outcome", Kind.OUTCOME, "whether they have their effect", "refused"
            ),
            *_WHO,
        ),
    ),
    FaultKind(
        "api-cut",
        "connections break before the answer, or in the middle of a watch's line",
        _WHO,
    ),
    FaultKind("api-silent", "watches stay open, and bring nothing", _WHO),
    FaultKind("api-stale", "lists show what was when the fault began", _WHO),
    FaultKind("kubelet-killed", "a kubelet is away; containers run on", (_NODE,)),
    FaultKind("kubelet-restarted", "a kubelet restarts", (_NODE,), is_momentary=True),
    FaultKind(
        "checkpoint-lost",
        "a kubelet restarts, and has forgotten who has which device",
        (_NODE,),
        is_momentary=True,
    ),
    FaultKind(
        "kubelet-stubborn",
        "a kubelet takes any ids, whatever the agent prefers",
        (_NODE,),
    ),
    FaultKind(
        "agent-killed",
        "an agent is killed, and started again after the fault's time",
        (_NODE, _AT, _NTH),
        usual_s=1.0,
    ),
    FaultKind("agent-frozen", "an agent stands still, its sockets open", (_NODE,)),
    FaultKind(
        "extender-killed",
        "the extender is killed, and started again after the fault's time",
        (_WRITE_AT, _NTH),
        usual_s=1.0,
    ),
    FaultKind("extender-frozen", "the extender stands still, its sockets open"),
    FaultKind(
        "job-late",
        "the Job controller notices each change late",
        (Parameter("delay", Kind.DURATION, "how late", "5s"),),
    ),
    FaultKind(
        "job-double",
        "the Job controller has lost its cache: it makes each pod twice, and deletes "
        "what is too much when the fault ends",
    ),
    FaultKind("chip-broken", "chips fail, and recover", (_NODE, _CHIPS)),
    FaultKind(
        "process-left",
        "a process (this sandbox's own) is on chips, whether or not a pod has them",
        (_NODE, _CHIPS),
    ),
    FaultKind(
        "container-outlives",
        "the processes of a node's containers stay on their chips after their pods are "
        "gone; at the end of the fault each ends in its time",
        (_NODE, Parameter("lag", Kind.DURATION, "for how long", "5s")),
    ),
    FaultKind("driver-silent", "the driver does not answer", (_NODE,)),
    FaultKind(
        "driver-slow",
        "the driver answers late",
        (_NODE, Parameter("delay", Kind.DURATION, "how late", "2s")),
    ),
    FaultKind(
        "driver-lying",
        "the driver says twice a second that chips have vanished, and are there again",
        (_NODE, _CHIPS),
    ),
    FaultKind(
        "disk-full",
        "an agent can write no file: neither its journal nor its log (the kernel "
        "refuses with EFBIG); an agent that is started meanwhile can again",
        (_NODE,),
    ),
    FaultKind(
        "clock-stepped",
        "the clock on the wall jumps, and jumps back in the end: an agent's or the "
        "extender's, not the API server's, a kubelet's or the scheduler's",
        (
            Parameter("user", Kind.PATTERN, "whose: ascend-agent-node-1 …", "*"),
            Parameter("by", Kind.STEP, "how far ahead, or back", "1h"),
        ),
    ),
)
KINDS: Mapping[str, FaultKind] = {kind.name: kind for kind in FAULTS}


def read(name: object, given: Mapping[str, object], nodes: Sequence[str]) -> Fault:
    """Return the fault that somebody asks for.

    Args:
        name: Of the table.
        given: {parameter: value}, as text or as YAML has it; `for` for all of them.
        nodes: Which there are.

    Raises:
        FaultError: It cannot be done; with every reason.
    """
    try:
        return reader.read({**given, "name": name}, fault(nodes))
    except DocumentError as error:
        raise FaultError(error.problems) from error


def fault(nodes: Sequence[str]) -> Parser[Fault]:
    """Return the parser of a fault, as an object or as its name alone.

    Args:
        nodes: Which there are.
    """

    def read_fault(part: Part) -> Fault:
        if isinstance(part.value, str):
            part = part._replace(value={"name": part.value})
        kind = part.all_fields().need("name", word(KINDS))
        names = [parameter.name for parameter in kind.parameters]
        lasting = [] if kind.is_momentary else ["for"]
        fields = part.fields("name", *names, *lasting)
        return Fault(
            kind=kind,
            values=dict(_values(kind, fields, nodes)),
            for_s=fields.get("for", duration, kind.usual_s),
        )

    return read_fault


def _values(
    kind: FaultKind, fields: Fields, nodes: Sequence[str]
) -> Iterator[tuple[str, Value]]:
    """Yield the parameters, with what is usual."""
    for parameter in kind.parameters:
        name, usual = parameter.name, parameter.default
        value = fields.values.get(name, usual)
        if value == usual == "":
            continue
        parser = _parameter(parameter.kind, nodes)
        try:
            yield name, parser(fields.part.under(name, value))
        except WrongError:
            continue


def _parameter(kind: Kind, nodes: Sequence[str]) -> Parser[Value]:
    if kind is Kind.NODE:
        return reference(nodes, f"one of {', '.join(nodes)}" if nodes else kind.value)
    return _PARSERS[kind]


def duration_s(told: object) -> float | None:
    """Return the seconds of `500ms`, `10s`, `1.5m`; None for anything else."""
    found = _DURATION.fullmatch(told.strip()) if isinstance(told, str) else None
    return float(found[1]) * _SECONDS[found[2]] if found else None


def _step_s(told: object) -> float | None:
    text = told.strip() if isinstance(told, str) else ""
    seconds = duration_s(text.removeprefix("-"))
    if seconds is None or seconds > _MOST_STEP_S:
        return None
    return -seconds if text.startswith("-") else seconds


def _count(told: object) -> int | None:
    number = int(told) if isinstance(told, str) and told.isdecimal() else told
    is_whole = isinstance(number, int) and not isinstance(number, bool)
    return number if isinstance(number, int) and is_whole and number >= 1 else None


def _chips(told: object) -> tuple[int, ...] | None:
    if isinstance(told, list):
        told = ",".join(str(n) if isinstance(n, int | str) else "?" for n in told)
    text = str(told) if isinstance(told, int | str) else ""
    if not re.fullmatch(r"\d{1,2}(,\d{1,2})*", text):
        return None
    return tuple(sorted({int(number) for number in text.split(",")}))


#: parser of a duration, in seconds
duration = converted(duration_s, Kind.DURATION.value)
_PARSERS: Mapping[Kind, Parser[Value]] = {
    Kind.CHIPS: converted(_chips, Kind.CHIPS.value),
    Kind.DURATION: duration,
    Kind.STEP: converted(_step_s, Kind.STEP.value),
    Kind.COUNT: converted(_count, Kind.COUNT.value),
    Kind.PATTERN: matching(bool, Kind.PATTERN.value),
    Kind.MOMENT: word({at: at for at in ("now", "asked", "answered", "write")}),
    Kind.OUTCOME: word({outcome: outcome for outcome in ("refused", "done")}),
}
