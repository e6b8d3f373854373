"""Make a scenario of a document, or say all that is wrong with it, line by line."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sandbox.faults import kinds
from sandbox.faults.kinds import Fault, FaultError, duration_s
from sandbox.scenario.document import DocumentError, Spot, parse

_OF_NODES = ("allocatable", "free", "unhealthy")
PHASES = ("Pending", "Running", "Succeeded", "Failed")
#: More agents than this are no laptop's scenario.
NODES_MOST = 16
PODS_MOST = 200
WITHIN_S = 10.0
#: RFC 1123, as the API server asks for names.
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,40}[a-z0-9])?")


class ScenarioError(ValueError):
    """A file is no scenario; has every flaw as (line, sentence)."""

    def __init__(self, flaws: list[tuple[int, str]]) -> None:
        """Keep the flaws in the order of their lines."""
        self.flaws = tuple(sorted(flaws))
        super().__init__("\n".join(f"line {n}: {text}" for n, text in self.flaws))


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """Pods come, one after the other."""

    names: tuple[str, ...]
    chips: int
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """Pods go."""

    pattern: str


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
    node: str | None = None
    allocatable: int | None = None
    free: int | None = None
    unhealthy: tuple[int, ...] | None = None
    within_s: float = WITHIN_S


Action = Create | Delete | Fault | End | Wait | Expect


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


def read(text: str) -> Scenario:
    """Return the scenario that a text describes.

    Raises:
        ScenarioError: It describes none; with all that is wrong.
    """
    try:
        spot = parse(text)
    except DocumentError as error:
        raise ScenarioError([(error.line, error.text)]) from error
    reader = _Reader()
    scenario = reader.scenario(spot)
    if reader.flaws:
        raise ScenarioError(reader.flaws)
    return scenario


@dataclass(slots=True)
class _Reader:
    """Collects flaws, so that all come at once."""

    nodes: tuple[str, ...] = ()
    flaws: list[tuple[int, str]] = field(default_factory=list)

    def scenario(self, spot: Spot) -> Scenario:
        fields = self._fields("a scenario", spot, ("title", "nodes", "steps"))
        self.nodes = self._nodes(fields.get("nodes", Spot(1, spot.line)))
        title = self.text("title", fields.get("title", Spot("A scenario", 1)))
        steps = fields.get("steps", Spot(None, spot.line))
        if not isinstance(steps.value, list) or not steps.value:
            self._flaw(steps, "steps", "a list of steps", steps.value)
            return Scenario(title=title, nodes=self.nodes, steps=())
        read = [self._step(each) for each in steps.value]
        whole = tuple(step for step in read if step is not None)
        return Scenario(title=title, nodes=self.nodes, steps=whole)

    def _nodes(self, spot: Spot) -> tuple[str, ...]:
        value = spot.plain()
        if _is_int(value) and 1 <= value <= NODES_MOST:
            return tuple(f"node-{number}" for number in range(1, value + 1))
        if (
            isinstance(value, list)
            and value
            and len(set(map(str, value))) == len(value)
        ):
            names = [each for each in value if _is_name(each)]
            if len(names) == len(value) <= NODES_MOST:
                return tuple(names)
        expected = f"1 to {NODES_MOST}, or a list of as many different names"
        self._flaw(spot, "nodes", expected, value)
        return ()

    def _step(self, spot: Spot) -> Step | None:
        if not isinstance(spot.value, dict) or len(spot.value) != 1:
            expected = f"one of {', '.join(_ACTIONS)}, and what belongs to it"
            self._flaw(spot, "a step", expected, spot.plain())
            return None
        ((word, told),) = spot.value.items()
        if word not in _ACTIONS:
            self._flaw(spot, "a step", f"one of {', '.join(_ACTIONS)}", word)
            return None
        before = len(self.flaws)
        action = _ACTIONS[word](self, told)
        if action is None or len(self.flaws) > before:
            return None
        return Step(line=spot.line, text=f"{word}: {_shown(told)}", action=action)

    def create(self, spot: Spot) -> Create:
        known = ("name", "chips", "count", "node")
        fields = self._fields("pods", spot, known)
        name = self._name("name", fields.get("name", Spot(None, spot.line)))
        chips = self.number("chips", fields.get("chips", Spot(None, spot.line)), 64)
        node = self.node(fields["node"]) if "node" in fields else ""
        if "count" not in fields:
            return Create(names=(name,), chips=chips, node=node)
        count = self.number("count", fields["count"], PODS_MOST)
        names = tuple(f"{name}-{number}" for number in range(1, count + 1))
        return Create(names=names, chips=chips, node=node)

    def delete(self, spot: Spot) -> Delete:
        return Delete(pattern=self.text("delete", spot))

    def fault(self, spot: Spot) -> Fault | None:
        told = spot.plain()
        if isinstance(told, str):
            told = {"name": told}
        if not isinstance(told, dict):
            self._flaw(spot, "fault", "a name, or name and parameters", told)
            return None
        given = {key: value for key, value in told.items() if key != "name"}
        try:
            return kinds.read(told.get("name"), given, self.nodes)
        except FaultError as error:
            self.flaws += [(spot.line, f"fault: {text}") for text in error.problems]
            return None

    def end(self, spot: Spot) -> End:
        name = self.text("end", spot)
        if name not in kinds.KINDS:
            self._flaw(spot, "end", "the name of a fault", name)
        return End(name=name)

    def wait(self, spot: Spot) -> Wait:
        return Wait(seconds=self.duration("wait", spot))

    def expect(self, spot: Spot) -> Expect:
        fields = self._fields("expect", spot, tuple(_EXPECTED))
        told = {key: _EXPECTED[key](self, each) for key, each in fields.items()}
        if "within" in told:
            told["within_s"] = told.pop("within")
        if not told.keys() & {"pods", "agreed", *_OF_NODES}:
            expected = f"at least one of pods, agreed, {', '.join(_OF_NODES)}"
            self._flaw(spot, "expect", expected, sorted(fields))
        if told.keys() & set(_OF_NODES) and "node" not in told:
            expected = f"a node beside {', '.join(_OF_NODES)}"
            self._flaw(spot, "expect", expected, "none")
        if told.keys() & {"phase", "count", "message"} and "pods" not in told:
            self._flaw(spot, "expect", "pods beside phase, count or message", "none")
        return Expect(**told)

    def _fields(
        self, what: str, spot: Spot, known: tuple[str, ...]
    ) -> Mapping[str, Spot]:
        if not isinstance(spot.value, dict):
            self._flaw(spot, what, f"a mapping of {', '.join(known)}", spot.plain())
            return {}
        for key, each in spot.value.items():
            if key not in known:
                self._flaw(each, what, f"only {', '.join(known)}", key)
        return {key: spot.value[key] for key in known if key in spot.value}

    def text(self, what: str, spot: Spot) -> str:
        if isinstance(spot.value, str) and spot.value:
            return spot.value
        self._flaw(spot, what, "a text", spot.plain())
        return ""

    def _name(self, what: str, spot: Spot) -> str:
        if _is_name(spot.value):
            return str(spot.value)
        expected = "small letters, digits and -, at most 42"
        self._flaw(spot, what, expected, spot.plain())
        return ""

    def node(self, spot: Spot) -> str:
        if spot.value not in self.nodes:
            expected = f"one of {', '.join(self.nodes)}"
            self._flaw(spot, "node", expected, spot.plain())
        return str(spot.value)

    def number(self, what: str, spot: Spot, most: int, least: int = 1) -> int:
        if _is_int(spot.value) and least <= spot.value <= most:
            return int(spot.value)
        self._flaw(spot, what, f"a whole number, {least} to {most}", spot.plain())
        return 0

    def duration(self, what: str, spot: Spot) -> float:
        found = duration_s(spot.plain())
        if found is None:
            expected = kinds.Kind.DURATION.value
            self._flaw(spot, what, expected, spot.plain())
        return found or 0.0

    def phase(self, spot: Spot) -> str:
        if spot.value not in PHASES:
            self._flaw(spot, "phase", f"one of {', '.join(PHASES)}", spot.plain())
        return str(spot.value)

    def agreed(self, spot: Spot) -> bool:
        if spot.value is not True:
            self._flaw(spot, "agreed", "true", spot.plain())
        return True

    def chips(self, spot: Spot) -> tuple[int, ...]:
        value = spot.plain()
        if isinstance(value, list) and all(_is_int(n) and 0 <= n <= 7 for n in value):
            return tuple(sorted(set(value)))
        self._flaw(spot, "unhealthy", "a list of chips, 0 to 7", value)
        return ()

    def _flaw(self, spot: Spot, what: str, expected: str, found: object) -> None:
        shown = "nothing" if found is None else repr(found)
        self.flaws.append(
            (spot.line, f"{what}: expected {expected}; found {shown[:80]}")
        )


_ACTIONS: Mapping[str, Callable[[_Reader, Spot], Action | None]] = {
    "pods": _Reader.create,
    "delete": _Reader.delete,
    "fault": _Reader.fault,
    "end": _Reader.end,
    "wait": _Reader.wait,
    "expect": _Reader.expect,
}
_EXPECTED: Mapping[str, Callable[[_Reader, Spot], Any]] = {
    "pods": lambda reader, spot: reader.text("pods", spot),
    "phase": lambda reader, spot: reader.phase(spot),
    "count": lambda reader, spot: reader.number("count", spot, PODS_MOST, 0),
    "message": lambda reader, spot: reader.text("message", spot),
    "agreed": lambda reader, spot: reader.agreed(spot),
    "node": lambda reader, spot: reader.node(spot),
    "allocatable": lambda reader, spot: reader.number("allocatable", spot, 8, 0),
    "free": lambda reader, spot: reader.number("free", spot, 8, 0),
    "unhealthy": lambda reader, spot: reader.chips(spot),
    "within": lambda reader, spot: reader.duration("within", spot),
}


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_name(value: object) -> bool:
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def _shown(spot: Spot) -> str:
    told = spot.plain()
    if isinstance(told, dict):
        return ", ".join(f"{key} {value}" for key, value in told.items())
    return str(told)
