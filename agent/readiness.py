"""Readiness of the agent: the answer of `/readyz`, with a reason if it is not ready.

A module of its own: parts of several packages report to it, and it imports none of
them.
"""

from collections.abc import Callable


class Readiness:
    """Checks, each of which can find why the agent is not ready."""

    def __init__(self, *checks: Callable[[], str | None]) -> None:
        self._checks = list(checks)

    def __call__(self) -> str | None:
        """Return a sentence that says what the agent waits for; None if it is ready.

        It is the first problem that a check finds.
        """
        problems = (check() for check in self._checks)
        return next((problem for problem in problems if problem), None)

    def add_check(self, check: Callable[[], str | None]) -> None:
        """Add a check, which runs at each call for which no earlier one has a problem.

        Args:
            check: Returns a sentence that says why a part of the agent is not ready;
                None if that part is ready.
        """
        self._checks.append(check)
