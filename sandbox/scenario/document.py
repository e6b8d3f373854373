"""YAML that remembers on which line each value stands."""

from dataclasses import dataclass
from typing import Any

import yaml

#: Deeper than any scenario is.
_DEPTH_MOST = 20
_BYTES_MOST = 1 << 20


class DocumentError(ValueError):
    """A text is no YAML document that could be a scenario."""

    def __init__(self, line: int, text: str) -> None:
        """Say what is wrong on which line."""
        super().__init__(text)
        self.line = line
        self.text = text


@dataclass(frozen=True, slots=True)
class Spot:
    """A value and its line: mappings and lists hold spots, the rest is plain."""

    value: Any
    line: int

    def plain(self) -> Any:
        """Return the value without any lines."""
        if isinstance(self.value, dict):
            return {key: spot.plain() for key, spot in self.value.items()}
        if isinstance(self.value, list):
            return [spot.plain() for spot in self.value]
        return self.value


def parse(text: str) -> Spot:
    """Return what a text says.

    Raises:
        DocumentError: It says nothing, or not in YAML.
    """
    if len(text) > _BYTES_MOST:
        raise DocumentError(1, f"expected at most {_BYTES_MOST} characters")
    try:
        loader = yaml.SafeLoader(text)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise DocumentError(line, f"expected text: {error.reason}") from error
    try:
        node = loader.get_single_node()
        if node is None:
            raise DocumentError(1, "expected a scenario, found an empty file")
        return _spot(loader, node, 0)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = 1 if mark is None else mark.line + 1
        raise DocumentError(line, f"expected YAML: {error.problem}") from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        if isinstance(error, DocumentError):
            raise
        raise DocumentError(1, f"expected YAML: {error}") from error
    finally:
        loader.dispose()


def _spot(loader: yaml.SafeLoader, node: yaml.Node, depth: int) -> Spot:
    line = node.start_mark.line + 1
    if depth > _DEPTH_MOST:
        raise DocumentError(line, "expected less nesting")
    if isinstance(node, yaml.SequenceNode):
        return Spot([_spot(loader, each, depth + 1) for each in node.value], line)
    if isinstance(node, yaml.MappingNode):
        found: dict[str, Spot] = {}
        for key_node, value in node.value:
            key = str(key_node.value)
            if key in found:
                at = key_node.start_mark.line + 1
                raise DocumentError(at, f"expected each key once, found {key!r} twice")
            found[key] = _spot(loader, value, depth + 1)
        return Spot(found, line)
    return Spot(loader.construct_object(node), line)
