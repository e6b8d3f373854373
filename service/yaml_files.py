"""Strict YAML for files that people write: plain values, no duplicate keys.

PyYAML's safe loader builds plain values only, but has three flaws. It can raise any
exception (`!!int ''` is an IndexError). It accepts duplicate keys and drops one. It
expands aliases of aliases, so a short text can stand for an endless value. Therefore no
value is printed or compared as a whole here.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, TypeVar

import yaml

from service.quote import quote_value

T = TypeVar("T")

#: Longest part of the parser's message that is repeated; characters.
_MAX_CHARACTERS = 240
#: Deepest nesting; PyYAML's time grows with its square, and people write less.
_MAX_LEVELS = 30


class YamlError(ValueError):
    """Error in a text that is not YAML of plain values.

    Attributes:
        position: Line and column, counted from 1; "" if unknown.
        problem: The error at that position.
        line: Line of the error, counted from 1; 1 if unknown.
    """

    def __init__(self, position: str, problem: str, line: int = 1) -> None:
        self.position = position
        self.problem = problem
        self.line = line
        suffix = f" ({position})" if position else ""
        super().__init__(f"expected YAML, found: {problem}{suffix}")


class _StrictLoader(yaml.SafeLoader):
    """Safe loader that refuses duplicate keys and deep nesting."""

    def __init__(self, stream: str | bytes) -> None:
        super().__init__(stream)
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self._depth += 1
        if self._depth > _MAX_LEVELS:
            mark = self.get_mark()
            text = f"more than {_MAX_LEVELS} levels"
            raise yaml.composer.ComposerError(None, None, text, mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_mapping(
        self,
        node: yaml.MappingNode,
        deep: bool = False,  # noqa: FBT001, FBT002  # PyYAML's signature
    ) -> dict[Hashable, Any]:
        keys: set[Hashable] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in keys:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {quote_value(key)} twice", key_node.start_mark
                )
            keys.add(key)
        return super().construct_mapping(node, deep)

    def construct_object(
        self,
        node: yaml.Node,
        deep: bool = False,  # noqa: FBT001, FBT002  # PyYAML's signature
    ) -> Any:
        try:
            return super().construct_object(node, deep)
        except (yaml.YAMLError, RecursionError):
            raise
        # Constructors check nothing: KeyError, IndexError, AttributeError, …
        except Exception as error:
            kind = node.tag.rpartition(":")[2]
            raise yaml.constructor.ConstructorError(
                None,
                None,
                f"no {kind}: {quote_value(node.value)}",
                node.start_mark,
            ) from error


def parse(text: str | bytes) -> object:
    """Return the value of a YAML text; None for an empty one.

    Raises:
        YamlError: The text is malformed, or has other than plain values.
    """
    return _load(text, lambda loader: loader.get_single_data())


def parse_with_lines(text: str) -> tuple[object, Mapping[tuple[object, ...], int]]:
    """Return the value of a YAML text, and the line of each part.

    Returns:
        The value, and {keys and positions from the root: line, counted from 1}.

    Raises:
        YamlError: As `parse`.
    """

    def load(loader: _StrictLoader) -> tuple[object, dict[tuple[object, ...], int]]:
        node = loader.get_single_node()
        if node is None:
            return None, {(): 1}
        return loader.construct_document(node), dict(
            _lines(node, (), node.start_mark.line + 1, set())
        )

    return _load(text, load)


def _lines(
    node: yaml.Node, keys: tuple[object, ...], line: int, earlier: set[yaml.Node]
) -> Iterator[tuple[tuple[object, ...], int]]:
    """Yield the keys of each part with its line; parts below an alias have none."""
    yield keys, line
    if node in earlier:
        return
    earlier.add(node)
    if isinstance(node, yaml.SequenceNode):
        for position, item in enumerate(node.value):
            at = item.start_mark.line + 1
            yield from _lines(item, (*keys, position), at, earlier)
    elif isinstance(node, yaml.MappingNode):
        for key, item in node.value:
            at = key.start_mark.line + 1
            yield from _lines(item, (*keys, key.value), at, earlier)


def _load(text: str | bytes, load: Callable[[_StrictLoader], T]) -> T:
    try:
        loader = _StrictLoader(text)
        try:
            return load(loader)
        finally:
            loader.dispose()
    except RecursionError as error:
        raise YamlError("", "more levels than can be read") from error
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise _yaml_error(error) from error


def _yaml_error(error: Exception) -> YamlError:
    mark = getattr(error, "problem_mark", None)
    position = f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    problem = getattr(error, "problem", None)
    if problem is None:
        problem = next(iter(str(error).splitlines()), type(error).__name__)
    line = mark.line + 1 if mark else 1
    return YamlError(position, str(problem)[:_MAX_CHARACTERS], line)
