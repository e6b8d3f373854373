"""Read YAML that people write: plain values, each key once, in bounded time.

PyYAML's safe loader builds plain values only, but it can be made to raise anything
(`!!int ''` is an IndexError), it drops a key that stands twice, and a short text can
stand for a value without end (aliases of aliases), which is why nothing here is shown
or compared as a whole.
"""

from collections.abc import Hashable
from typing import Any

import yaml

from service.quote import shown

#: The most of the parser's own words that are repeated. Unit: characters.
_LONGEST = 240
#: Deeper than anything that people write; and PyYAML's time grows with its square.
_MOST_LEVELS = 30


class YamlError(ValueError):
    """A text is not YAML of plain values.

    Attributes:
        at: Line and column, counted from 1; "" when they are not known.
        found: What is wrong there.
    """

    def __init__(self, at: str, found: str) -> None:
        """Keep the facts; the text is made from them."""
        self.at = at
        self.found = found
        where = f" ({at})" if at else ""
        super().__init__(f"expected YAML, found: {found}{where}")


class _StrictLoader(yaml.SafeLoader):
    """YAML without surprises: a key that stands twice is an error."""

    def __init__(self, stream: str | bytes) -> None:
        super().__init__(stream)
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self._depth += 1
        if self._depth > _MOST_LEVELS:
            mark = self.get_mark()
            text = f"more than {_MOST_LEVELS} levels"
            raise yaml.composer.ComposerError(None, None, text, mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_mapping(
        self,
        node: yaml.MappingNode,
        deep: bool = False,  # noqa: FBT001, FBT002  # PyYAML's signature
    ) -> dict[Hashable, Any]:
        known: set[Hashable] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in known:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {shown(key)} twice", key_node.start_mark
                )
            known.add(key)
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
        # KeyError, IndexError, AttributeError, …: constructors check nothing
        except Exception as error:
            kind = node.tag.rpartition(":")[2]
            raise yaml.constructor.ConstructorError(
                None,
                None,
                f"no {kind}: {shown(node.value)}",
                node.start_mark,
            ) from error


def parse(text: str | bytes) -> object:
    """Return the value that a YAML text stands for; None for one without any.

    Raises:
        YamlError: It is none, or not of plain values.
    """
    try:
        # A SafeLoader: it builds plain values only.
        return yaml.load(text, _StrictLoader)  # noqa: S506
    except RecursionError as error:
        raise YamlError("", "more levels than can be read") from error
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise _told(error) from error


def _told(error: Exception) -> YamlError:
    mark = getattr(error, "problem_mark", None)
    at = f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    problem = getattr(error, "problem", None)
    if problem is None:
        problem = next(iter(str(error).splitlines()), type(error).__name__)
    return YamlError(at, str(problem)[:_LONGEST])
