"""Metrics as a page documents them, and as `/metrics` serves them.

A row of a page's table has names of metrics, then labels, then a sentence: each label
in backticks, and behind a colon its values. A label without values takes any.
"""

import re
from collections.abc import Mapping

from prometheus_client import CollectorRegistry, generate_latest

_ROW = re.compile(r"^\| (`ascend_[^|]+) \|([^|]*)\|", re.MULTILINE)
_WORD = re.compile(r"`([^`]+)`")


def documented(page: str, program: str) -> dict[str, Mapping[str, set[str]]]:
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
    return set(re.findall(rf"^# TYPE ({program}_\w+) ", text, re.MULTILINE))
