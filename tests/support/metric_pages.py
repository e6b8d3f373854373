"""Metrics as `/metrics` serves them, against Prometheus' conventions and a page.

A row of a page's table has names of metrics, then labels, then a sentence: each label
in backticks, and behind a colon its values. A label without values takes any.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, generate_latest

#: Units that are no base unit, and base units, which come last.
UNITS = frozenset(
    (
        *("ns", "us", "ms", "s", "minutes", "hours", "days"),
        *("milliseconds", "microseconds", "nanoseconds"),
        *("kb", "mb", "gb", "kib", "mib", "gib", "bits", "percent"),
    )
)
BASE_UNITS = frozenset(("seconds", "bytes"))
#: Labels that Prometheus sets itself.
TAKEN = frozenset(("job", "instance", "le", "quantile"))
#: Ends of names that belong to samples of histograms and counters.
ENDS = ("_total", "_count", "_sum", "_bucket", "_created")

_ROW = re.compile(r"^\| (`ascend_[^|]+) \|([^|]*)\|", re.MULTILINE)
_WORD = re.compile(r"`([^`]+)`")
_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? \S+$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

#: {label: its values}
Labels = Mapping[str, set[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A metric of `/metrics`: name as in its TYPE line, type, help text, labels."""

    name: str
    kind: str
    text: str
    labels: Labels


def documented(page: str, program: str) -> dict[str, Labels]:
    """Return {metric: {label: its values; empty if it takes any}} of a page's rows."""
    return {
        name: {label: set(values) for label, *values in _labels(cell)}
        for names, cell in _ROW.findall(page)
        for name in _WORD.findall(names)
        if name.startswith(f"{program}_")
    }


def _labels(cell: str) -> list[list[str]]:
    parts = (_WORD.findall(part) for part in cell.split(";"))
    return [words for words in parts if words]


def served(registry: CollectorRegistry, program: str) -> set[str]:
    """Return the names of a program's metrics, as `/metrics` has them."""
    text = generate_latest(registry).decode()
    names = {family.name for family in families(text)}
    return {name for name in names if name.startswith(f"{program}_")}


def families(text: str) -> list[Family]:
    """Return the metrics in the text format, with the labels that samples show."""
    helps = dict(re.findall(r"^# HELP (\w+) ?(.*)$", text, re.MULTILINE))
    kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE))
    labels: dict[str, dict[str, set[str]]] = {name: {} for name in kinds}
    for sample, pairs in _SAMPLE.findall(text):
        name = sample
        if name not in kinds:
            name = re.sub("_(bucket|count|sum)$", "", sample)
        for label, value in _LABEL.findall(pairs):
            if label != "le":
                labels[name].setdefault(label, set()).add(value)
    return [
        Family(name=name, kind=kind, text=helps.get(name, ""), labels=labels[name])
        for name, kind in kinds.items()
    ]


def problems(text: str, page: str, program: str) -> list[str]:
    """Return what is wrong with a program's `/metrics`, or with the page about it.

    Args:
        text: What `/metrics` serves, once the program is ready.
        page: The page with the table of the program's metrics.
        program: Prefix of its metrics.
    """
    told, found = documented(page, program), families(text)
    of_ours = {each.name for each in found if each.name.startswith(f"{program}_")}
    return [
        *(f"{name}: only on the page" for name in told.keys() - of_ours),
        *(f"{name}: not on the page" for name in of_ours - told.keys()),
        *(f"{each.name}: {problem}" for each in found for problem in against(each)),
        *(
            f"{each.name}: {problem}"
            for each in found
            if each.name in told
            for problem in undocumented(each.labels, told[each.name])
        ),
        *(
            f"{each.name}: of no program"
            for each in found
            if not each.name.startswith((f"{program}_", "process_"))
        ),
    ]


def against(family: Family) -> Iterator[str]:
    """Yield each convention of Prometheus that a metric breaks."""
    yield from (problem for problem, is_so in _of_name(family).items() if is_so)
    if family.kind not in ("counter", "gauge", "histogram"):
        yield f"is a {family.kind}"
    if not re.fullmatch(r"[A-Z0-9].*\.", family.text):
        yield "no sentence says what it is"
    for label in family.labels:
        if label in TAKEN or not re.fullmatch("[a-z]+(_[a-z]+)*", label):
            yield f"{label} is no name of a label"


def _of_name(family: Family) -> dict[str, bool]:
    """Return {problem: whether the name has it, being of this type}."""
    name, kind = family.name, family.kind
    words = name.removesuffix("_total").split("_")
    is_counter = kind == "counter"
    return {
        "is not in lower case with single underscores": not re.fullmatch(
            "[a-z][a-z0-9]*(_[a-z0-9]+)+", name
        ),
        f"a {kind} and its name do not fit": is_counter != name.endswith("_total"),
        "ends as the sample of another type": not is_counter and name.endswith(ENDS),
        "a histogram without a base unit": kind == "histogram"
        and words[-1] not in BASE_UNITS,
        "not in a base unit": bool(UNITS & set(words)),
        "the unit is not at its end": bool(BASE_UNITS & set(words[:-1])),
    }


def undocumented(shown: Labels, told: Labels) -> Iterator[str]:
    """Yield each label or value that only a metric's samples, or only its row, has.

    Without samples nothing is known of labels: the row may name any.
    """
    if not shown:
        closed = [label for label, values in told.items() if values]
        yield from (f"{label} shows no value yet" for label in closed)
        return
    yield from (f"{label} is only in one of both" for label in shown.keys() ^ told)
    for label in shown.keys() & told:
        if told[label] and told[label] != shown[label]:
            yield f"{label}: {sorted(told[label] ^ shown[label])} only in one of both"
