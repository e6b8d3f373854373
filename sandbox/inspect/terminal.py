"""How does the story look on a terminal, and in a file?

Colour only where a person looks: on a terminal, unless NO_COLOR is set
(no-color.org).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TextIO

_INDENT = "   "


class Style(Enum):
    """What a piece of text is; the value is its SGR code (ECMA-48)."""

    PLAIN = ""
    TITLE = "1"
    DIM = "2"
    GOOD = "32"
    BAD = "31"
    NAME = "36"


@dataclass(frozen=True, slots=True)
class Span:
    """Text in one style."""

    text: str
    style: Style = Style.PLAIN


Line = Sequence[Span]


class Terminal:
    """Writes lines, each at once, so that the story is seen as it happens."""

    def __init__(self, stream: TextIO, environ: Mapping[str, str]) -> None:
        """Decide about colour once.

        Args:
            stream: Where to write.
            environ: For NO_COLOR and TERM.
        """
        self._stream = stream
        self._has_colour = (
            stream.isatty()
            and not environ.get("NO_COLOR")
            and environ.get("TERM") != "dumb"
        )

    def title(self, text: str) -> None:
        """Begin a step."""
        self._write("\n" + self._painted(Span(text, Style.TITLE)))

    def say(self, text: str = "", style: Style = Style.PLAIN) -> None:
        """Tell something, a line or several."""
        for line in text.split("\n"):
            self.line((Span(line, style),))

    def line(self, spans: Line) -> None:
        """Write one line of several styles."""
        text = "".join(self._painted(span) for span in spans)
        self._write(f"{_INDENT}{text}".rstrip())

    def lines(self, lines: Iterable[Line]) -> None:
        """Write several lines."""
        for line in lines:
            self.line(line)

    def good(self, text: str) -> None:
        """Tell what has been checked and holds."""
        self.line((Span("✓ ", Style.GOOD), Span(text)))

    def bad(self, text: str) -> None:
        """Tell what does not hold."""
        self.line((Span("✗ ", Style.BAD), Span(text)))

    def table(self, rows: Sequence[Sequence[str]], *, has_head: bool = True) -> None:
        """Write rows with aligned columns.

        Args:
            rows: All of the same length.
            has_head: Whether the first row names the columns.
        """
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for index, row in enumerate(rows):
            text = "  ".join(
                cell.ljust(width) for cell, width in zip(row, widths, strict=True)
            )
            is_head = has_head and index == 0
            self.say(text.rstrip(), Style.DIM if is_head else Style.PLAIN)

    def _painted(self, span: Span) -> str:
        if not self._has_colour or span.style is Style.PLAIN or not span.text.strip():
            return span.text
        return f"\x1b[{span.style.value}m{span.text}\x1b[0m"

    def _write(self, line: str) -> None:
        self._stream.write(f"{line}\n")
        self._stream.flush()
