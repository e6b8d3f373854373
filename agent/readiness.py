"""Is the agent ready, and if not, what is it waiting for?"""

from collections.abc import Callable


class Readiness:
    """Protects the list of what is still missing, in the order it was named."""

    def __init__(self, **missing: str) -> None:
        """Begin with what has to happen first.

        Args:
            missing: {what: a sentence that says what is waited for}.
        """
        self._missing = dict(missing)
        self._asked: list[Callable[[], str | None]] = []

    def __call__(self) -> str | None:
        """Return what is waited for; None when nothing is."""
        for sentence in self._missing.values():
            return sentence
        answers = (ask() for ask in self._asked)
        return next((answer for answer in answers if answer), None)

    def ask(self, part: Callable[[], str | None]) -> None:
        """Have a part asked each time what it is waiting for."""
        self._asked.append(part)

    def lacks(self, what: str, sentence: str) -> None:
        """Say that something is missing."""
        self._missing[what] = sentence

    def has(self, what: str) -> None:
        """Say that something is there."""
        self._missing.pop(what, None)
