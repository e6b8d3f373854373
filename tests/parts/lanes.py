"""Run parts of a check, two lanes beside each other, and print what each took.

A real cluster mostly waits, so what computes runs beside it. A part that fails ends
nothing but the parts that need it.
"""

import codecs
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Self

_BEFORE = "setting up"
#: Last lines of a failed part that names no test.
_LAST_LINES = 5
#: A program that was told to end has this long: a cluster puts the machine back.
_ENDS_WITHIN_S = 120.0
_CHUNK_BYTES = 1 << 16
_CLOSING = re.compile(r"(\d+ \w+|no tests ran).* in [\d.]+s( \([\d:]+\))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One command."""

    name: str
    command: tuple[str, ...]
    #: names of parts without whose success it cannot run
    needs: tuple[str, ...] = ()
    #: whether it takes down what another part left up, and so runs in any case
    is_end: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Parts that run beside each other. The next stage begins when all have ended."""

    #: one after the other; what they print is shown while they run
    main: Sequence[Part]
    #: one after the other, those first that need nothing more; shown when they end
    beside: Sequence[Part] = ()


class State(Enum):
    """How a part ended."""

    OK = "ok"
    FAILED = "FAILED"
    NOT_RUN = "NOT RUN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a part."""

    name: str
    state: State
    seconds: float = 0.0
    #: all that it printed
    text: str = ""

    def counts(self) -> str:
        """Return pytest's last line; "" where none was printed."""
        lines = reversed(self.text.splitlines())
        return next((line for line in lines if _CLOSING.fullmatch(line)), "")

    def reasons(self) -> Sequence[str]:
        """Return the lines that name what failed, or its last lines."""
        lines = self.text.splitlines()
        named = [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
        return list(dict.fromkeys(named)) or lines[-_LAST_LINES:]


class Lanes:
    """A run of stages. Protects what came of each part, and what runs."""

    def __init__(self, folder: Path, show: Callable[[str], object]) -> None:
        """Begin with nothing run.

        Args:
            folder: Gets a log of each part.
            show: Prints a text at once.
        """
        self._folder = folder
        self._show = show
        self._changed = threading.Condition()
        #: {part: what came of it}, in the order of their ends
        self._outcomes: dict[str, Outcome] = {}
        #: {part: its process}
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        #: names of parts beside, not shown yet
        self._unshown: list[str] = []
        self._is_interrupted = False

    @property
    def outcomes(self) -> Sequence[Outcome]:
        """What came of each part so far."""
        return list(self._outcomes.values())

    def run(self, stages: Sequence[Stage]) -> None:
        """Run all parts, whatever fails.

        Raises:
            KeyboardInterrupt: It was interrupted. What runs has been ended, and parts
                that take something down have run.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        for stage in stages:
            beside = threading.Thread(target=self._run_beside, args=(stage.beside,))
            beside.start()
            try:
                for part in stage.main:
                    self._run_main(part)
                while beside.is_alive():
                    beside.join(1.0)
                    self._show_ended()
            except KeyboardInterrupt:
                self._end(beside)
                for part in stage.main:
                    if part.is_end and part.name not in self._outcomes:
                        self._run_main(part)
                raise
            self._show_ended()

    def _run_main(self, part: Part) -> None:
        if self._has_failed(part):
            self._add(Outcome(name=part.name, state=State.NOT_RUN))
            return
        with self._changed:
            beside = ", ".join(self._running)
        self._show(_title(part.name, f"beside it: {beside}" if beside else ""))
        self._add(self._outcome(part, self._show))
        self._show_ended()

    def _run_beside(self, parts: Sequence[Part]) -> None:
        left = list(parts)
        while left and (part := self._next(left)):
            left.remove(part)
            if self._has_failed(part):
                self._add(Outcome(name=part.name, state=State.NOT_RUN))
                continue
            outcome = self._outcome(part)
            with self._changed:
                self._add(outcome)
                self._unshown.append(part.name)

    def _next(self, left: Sequence[Part]) -> Part | None:
        """Wait for the first part whose needs are decided; None at an interrupt."""
        with self._changed:
            while not self._is_interrupted:
                for part in left:
                    if self._outcomes.keys() >= {*part.needs}:
                        return part
                self._changed.wait()
        return None

    def _has_failed(self, part: Part) -> bool:
        """Whether one of the parts that it needs has not succeeded."""
        with self._changed:
            return any(
                name not in self._outcomes or self._outcomes[name].state is not State.OK
                for name in part.needs
            )

    def _outcome(
        self, part: Part, show: Callable[[str], object] | None = None
    ) -> Outcome:
        begun = time.monotonic()
        path = self._folder / (re.sub(r"\W+", "-", part.name) + ".log")
        with path.open("w", encoding="utf-8") as log:
            with self._changed:
                process = subprocess.Popen(  # noqa: S603  # the commands are ours
                    part.command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
                )
                self._running[part.name] = process
            try:
                for text in _texts(process):
                    log.write(text)
                    log.flush()
                    if show is not None:
                        show(text)
                code = process.wait()
            except KeyboardInterrupt:
                process.send_signal(signal.SIGTERM)
                process.wait(_ENDS_WITHIN_S)
                raise
            finally:
                with self._changed:
                    del self._running[part.name]
        return Outcome(
            name=part.name,
            state=State.FAILED if code else State.OK,
            seconds=time.monotonic() - begun,
            text=path.read_text(encoding="utf-8"),
        )

    def _add(self, outcome: Outcome) -> None:
        with self._changed:
            self._outcomes[outcome.name] = outcome
            self._changed.notify_all()

    def _show_ended(self) -> None:
        """Show what parts beside have printed, whole."""
        with self._changed:
            ended, self._unshown = self._unshown, []
        for name in ended:
            outcome = self._outcomes[name]
            self._show(_title(name, f"{outcome.seconds:.0f} s, beside the others"))
            self._show(outcome.text)

    def _end(self, beside: threading.Thread) -> None:
        with self._changed:
            self._is_interrupted = True
            self._changed.notify_all()
            for process in self._running.values():
                process.send_signal(signal.SIGTERM)
        beside.join(_ENDS_WITHIN_S)


class Interrupts:
    """Turns SIGTERM into KeyboardInterrupt while it is entered."""

    def __enter__(self) -> Self:
        """Take the signal."""
        self._before = signal.signal(signal.SIGTERM, _interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        """Give it back."""
        signal.signal(signal.SIGTERM, self._before)


def summary(outcomes: Sequence[Outcome], total_s: float, before_s: float) -> str:
    """Return the seconds of each part and what failed, for the end of a run.

    Args:
        outcomes: In the order of their ends.
        total_s: From the first to the last.
        before_s: What setting up took, part of it.
    """
    width = max(len(name) for name in (_BEFORE, *(each.name for each in outcomes)))
    rows = [
        f"{each.name:{width}} {each.seconds:6.0f} s  {each.state.value:7} "
        f"{each.counts()}".rstrip()
        for each in outcomes
    ]
    lines = [
        _title("seconds of each part").strip(),
        f"{_BEFORE:{width}} {before_s:6.0f} s",
        *rows,
        f"{'all':{width}} {total_s:6.0f} s  ({total_s / 60:.1f} min)",
        *_failures(outcomes),
    ]
    return "\n".join(lines) + "\n"


def _failures(outcomes: Sequence[Outcome]) -> Iterator[str]:
    bad = [each for each in outcomes if each.state is not State.OK]
    if not bad:
        yield f"All {len(outcomes)} parts passed."
        return
    yield f"{len(bad)} of {len(outcomes)} parts did not pass:"
    for each in bad:
        yield f"  {each.name}: {each.state.value}"
        yield from (f"    {line}" for line in each.reasons())


def show(text: str) -> None:
    """Print a text at once, also into a pipe."""
    sys.stdout.write(text)
    sys.stdout.flush()


def _texts(process: subprocess.Popen[bytes]) -> Iterator[str]:
    """Yield what a process prints, as it comes."""
    assert process.stdout is not None
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    with process.stdout as stream:
        while chunk := os.read(stream.fileno(), _CHUNK_BYTES):
            yield decoder.decode(chunk)


def _title(name: str, remark: str = "") -> str:
    text = f"{name} ({remark})" if remark else name
    return f"\n==== {text} ".ljust(79, "=") + "\n"


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
