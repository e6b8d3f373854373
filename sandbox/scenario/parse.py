"""Make a scenario of a document, or say all that is wrong with it, line by line."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sandbox.faults import kinds
from sandbox.faults.kinds import Fault
from scheduler_core.documents import reader
from scheduler_core.documents.parsers import (
    boolean,
    chip,
    converted,
    distinct,
    listing,
    matching,
    optional,
    record,
    reference,
    required,
    whole,
    word,
)
from scheduler_core.documents.reader import (
    DocumentError,
    Keys,
    Parser,
    Part,
    WrongError,
)
from service import yaml_files
from service.yaml_files import YamlError

PHASES = ("Pending", "Running", "Succeeded", "Failed")
#: Settings of the extender besides its usual one, which YAML takes for a boolean.
RESCHEDULING = ("report", "evict")
#: How the pods of a job go because of a fault.
FAULT_SCHEDULING = ("grace", "force")
#: More agents than this are no laptop's scenario.
NODES_MOST = 16
PODS_MOST = 200
WITHIN_S = 10.0
#: More characters than any scenario has.
_CHARACTERS_MOST = 1 << 20
#: RFC 1123, as the API server asks for names.
_NAME = matching(
    re.compile("[a-z0-9]([-a-z0-9]{0,40}[a-z0-9])?").fullmatch,
    "small letters, digits and -, at most 42",
)
_TEXT = matching(bool, "a text")
#: Key of a job: the label of its pods.
_SWITCH = "fault-scheduling"

#: {keys and positions of a part: its line}
Lines = Mapping[tuple[object, ...], int]


class ScenarioError(ValueError):
    """A file is no scenario; has every flaw as (line, sentence)."""

    def __init__(self, flaws: list[tuple[int, str]]) -> None:
        self.flaws = tuple(sorted(flaws))
        super().__init__("\n".join(f"line {n}: {text}" for n, text in self.flaws))


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """Pods come, one after the other."""

    names: tuple[str, ...]
    chips: int
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateJob:
    """An Indexed Job comes."""

    name: str
    pods: int
    chips: int
    #: label of its pods; "" for none
    fault_scheduling: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """Pods go, or Jobs with their pods."""

    pattern: str
    of_jobs: bool = False
    #: without a grace, so that the API server forgets the pods at once
    is_forced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """All faults of a name end."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Nothing happens for a while."""

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Expect:
    """What must hold within a time; what is None is not looked at."""

    pods: str | None = None
    phase: str | None = None
    count: int | None = None
    message: str | None = None
    agreed: bool = False
    #: of the pods, or of what is expected of a node
    node: str | None = None
    allocatable: int | None = None
    free: int | None = None
    unhealthy: tuple[int, ...] | None = None
    within_s: float = WITHIN_S


Action = Create | CreateJob | Delete | Fault | End | Wait | Expect


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What happens, and on which line of the file it stands."""

    line: int
    text: str
    action: Action


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A file that is right."""

    title: str
    nodes: tuple[str, ...]
    steps: tuple[Step, ...]
    #: as the extender's setting
    rescheduling: str = "off"


def read(text: str) -> Scenario:
    """Return the scenario that a text describes.

    Raises:
        ScenarioError: It describes none; with all that is wrong.
    """
    if len(text) > _CHARACTERS_MOST:
        raise ScenarioError([(1, f"expected at most {_CHARACTERS_MOST} characters")])
    try:
        document, lines = yaml_files.parse_with_lines(text)
    except YamlError as error:
        flaw = error.line, f"expected YAML, found {error.problem}"
        raise ScenarioError([flaw]) from error
    try:
        return reader.read(document, lambda part: _read_scenario(part, lines))
    except DocumentError as error:
        found = (_line_of(keys, lines) for keys in error.places)
        raise ScenarioError(list(zip(found, error.problems, strict=True))) from error


def _line_of(keys: Keys, lines: Lines) -> int:
    """Return the line of a part; of the one around it if the part is absent."""
    return lines[keys] if keys in lines else _line_of(keys[:-1], lines)


def _read_scenario(part: Part, lines: Lines) -> Scenario:
    fields = part.fields("title", "nodes", "rescheduling", "steps")
    nodes = fields.get("nodes", _read_nodes, ("node-1",))
    title = fields.get("title", _TEXT, "A scenario")
    rescheduling = fields.get("rescheduling", _one_of(RESCHEDULING), "off")
    actions = _actions(nodes)

    def read_step(part: Part) -> Step:
        fields = part.fields(*actions)
        if len(fields.values) != 1:
            raise part.wrong(f"one of {', '.join(actions)}, and what belongs to it")
        ((word, value),) = fields.values.items()
        if word not in actions:
            raise WrongError
        action = actions[word](fields.at(word))
        # What is wrong may be endless: aliases of aliases.
        text = "" if part.problems.listed else f"{word}: {_shown(value)}"
        return Step(line=_line_of(part.keys, lines), text=text, action=action)

    steps = fields.need("steps", listing(read_step))
    if fields.values["steps"] == []:
        raise fields.at("steps").wrong("a list of steps")
    return Scenario(title=title, nodes=nodes, steps=steps, rescheduling=rescheduling)


def _one_of(words: Sequence[str]) -> Parser[str]:
    return word({each: each for each in words})


def _read_nodes(part: Part) -> tuple[str, ...]:
    value = part.value
    if isinstance(value, list) and 1 <= len(value) <= NODES_MOST:
        return distinct(_NAME, "name")(part)
    if type(value) is int and 1 <= value <= NODES_MOST:
        return tuple(f"node-{number}" for number in range(1, value + 1))
    raise part.wrong(f"1 to {NODES_MOST}, or a list of as many different names")


def _actions(nodes: Sequence[str]) -> Mapping[str, Parser[Action]]:
    """Return {word: parser of what belongs to it}."""
    node = reference(nodes, f"one of {', '.join(nodes)}")
    return {
        "pods": record(
            _create,
            name=required(_NAME),
            chips=required(whole(1, 64)),
            count=optional(whole(1, PODS_MOST)),
            node=optional(node, ""),
        ),
        "job": record(
            _create_job,
            name=required(_NAME),
            pods=required(whole(1, PODS_MOST)),
            chips=required(whole(1, 64)),
            **{_SWITCH: optional(_one_of(FAULT_SCHEDULING), "")},
        ),
        "delete": _read_delete,
        "fault": kinds.fault(nodes),
        "end": lambda part: End(name=word(kinds.KINDS)(part).name),
        "wait": lambda part: Wait(seconds=kinds.duration(part)),
        "expect": partial(_read_expect, node=node),
    }


def _create(*, name: str, chips: int, count: int | None, node: str) -> Create:
    numbers = range(1, (count or 0) + 1)
    names = (name,) if count is None else tuple(f"{name}-{n}" for n in numbers)
    return Create(names=names, chips=chips, node=node)


def _create_job(**given: Any) -> CreateJob:
    return CreateJob(fault_scheduling=given.pop(_SWITCH), **given)


def _read_delete(part: Part) -> Delete:
    if not isinstance(part.value, dict):
        return Delete(pattern=_TEXT(part))
    fields = part.fields("pods", "jobs", "force")
    if ("pods" in fields.values) is ("jobs" in fields.values):
        raise part.wrong("either pods or jobs", [*fields.values])
    of_jobs = "jobs" in fields.values
    if of_jobs and "force" in fields.values:
        part.wrong("pods with force", None)
    return Delete(
        pattern=fields.need("jobs" if of_jobs else "pods", _TEXT),
        of_jobs=of_jobs,
        is_forced=fields.get("force", boolean, default=False),
    )


def _read_expect(part: Part, node: Parser[str]) -> Expect:
    of_nodes = ("allocatable", "free", "unhealthy")
    parser = record(
        lambda *, within, **values: Expect(within_s=within, **values),
        pods=optional(_TEXT),
        phase=optional(_one_of(PHASES)),
        count=optional(whole(0, PODS_MOST)),
        message=optional(_TEXT),
        agreed=optional(
            converted(lambda value: value is True or None, "true"), default=False
        ),
        node=optional(node),
        allocatable=optional(whole(0, 8)),
        free=optional(whole(0, 8)),
        unhealthy=optional(_read_chips),
        within=optional(kinds.duration, WITHIN_S),
    )
    expected, given = parser(part), part.all_fields().values.keys()
    if not given & {"pods", "agreed", *of_nodes}:
        part.wrong(f"at least one of pods, agreed, {', '.join(of_nodes)}", [*given])
    if given & {*of_nodes} and "node" not in given:
        part.wrong(f"a node with {', '.join(of_nodes)}", None)
    if given & {"phase", "count", "message"} and "pods" not in given:
        part.wrong("pods with phase, count or message", None)
    return expected


def _read_chips(part: Part) -> tuple[int, ...]:
    return tuple(sorted(set(listing(chip(range(8)))(part))))


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {item}" for key, item in value.items())
    return str(value)
