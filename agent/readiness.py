"""Is the agent ready, and if not, what is it waiting for?"""


class Readiness:
    """Protects the list of what is still missing, in the order it was named."""

    def __init__(self, **missing: str) -> None:
        """Begin with what has to happen first.

        Args:
            missing: {what: a sentence that says what is waited for}.
        """
        self._missing = dict(missing)

    def __call__(self) -> str | None:
        """Return what is waited for; None when nothing is."""
        return next(iter(self._missing.values()), None)

    def lacks(self, what: str, sentence: str) -> None:
        """Say that something is missing."""
        self._missing[what] = sentence

    def has(self, what: str) -> None:
        """Say that something is there."""
        self._missing.pop(what, None)
