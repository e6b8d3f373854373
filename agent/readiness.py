"""Readiness of the agent: what `/readyz` answers, and what the agent waits for.

A module of its own: parts of all packages report to it, and it imports none of them.
"""

from collections.abc import Callable


class Readiness:
    """What the agent still waits for, in the order in which it was named."""

    def __init__(self, **reasons: str) -> None:
        """Begin with what has to happen first.

        Args:
            reasons: {key: sentence that says what the agent waits for}.
        """
        self._reasons = dict(reasons)
        self._checks: list[Callable[[], str | None]] = []

    def __call__(self) -> str | None:
        """Return a sentence that says what the agent waits for; None when ready."""
        for reason in self._reasons.values():
            return reason
        problems = (check() for check in self._checks)
        return next((problem for problem in problems if problem), None)

    def add_check(self, check: Callable[[], str | None]) -> None:
        """Add a check to be called at each question, once nothing else is missing.

        Args:
            check: Returns a sentence that says why its part is not ready; None when it
                is.
        """
        self._checks.append(check)

    def set_waiting(self, key: str, reason: str) -> None:
        """Set the sentence that says what the agent waits for, under a key."""
        self._reasons[key] = reason

    def set_ready(self, key: str) -> None:
        """Remove the sentence of a key, if there is one."""
        self._reasons.pop(key, None)
