"""Readiness of the agent: the answer of `/readyz`, with a reason if it is not ready.

A module of its own: parts of several packages report to it, and it imports none of
them.
"""

from collections.abc import Callable


class Readiness:
    """Reasons why the agent is not ready, and checks that can find more reasons."""

    def __init__(self, **reasons: str) -> None:
        """Begin with the given reasons; while any is stored, the agent is not ready.

        Args:
            reasons: {key: sentence that says what the agent waits for}. To remove a
                reason, call `set_ready` with its key.
        """
        self._reasons = dict(reasons)
        self._checks: list[Callable[[], str | None]] = []

    def __call__(self) -> str | None:
        """Return a sentence that says what the agent waits for; None if it is ready.

        Of the stored reasons, the one whose key was stored first is returned. If none
        is stored, the first problem that a check finds is returned.
        """
        for reason in self._reasons.values():
            return reason
        problems = (check() for check in self._checks)
        return next((problem for problem in problems if problem), None)

    def add_check(self, check: Callable[[], str | None]) -> None:
        """Add a check, which runs at each call of this object if no reason is stored.

        Reasons are stored by `set_waiting` and by the constructor. A check does not run
        if an earlier check has found a problem.

        Args:
            check: Returns a sentence that says why a part of the agent is not ready;
                None if that part is ready.
        """
        self._checks.append(check)

    def set_waiting(self, key: str, reason: str) -> None:
        """Store under `key` why the agent is not ready, in place of an earlier reason.

        Args:
            key: Any name for the reason. `set_ready` removes the reason by this name.
            reason: A sentence that says what the agent waits for.
        """
        self._reasons[key] = reason

    def set_ready(self, key: str) -> None:
        """Remove the reason for waiting that is stored under `key`, if there is one."""
        self._reasons.pop(key, None)
