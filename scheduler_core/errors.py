"""What the core raises when its caller broke the contract.

The answer "no" is a value (`decision.Rejection`), never an exception.

    SchedulerCoreError
    ├── UnknownProductError            no such row in the table (also ValueError)
    ├── wire.annotations.WireError     one text that does not parse (also ValueError)
    └── wire.reader.SnapshotError      all that is wrong with one file (also ValueError)
"""


class SchedulerCoreError(Exception):
    """The caller gave something that no answer can be given for."""


class UnknownProductError(SchedulerCoreError, ValueError):
    """There is no product of that key.

    Attributes:
        key: What was asked for.
        known: The keys that exist.
    """

    def __init__(self, key: str, known: tuple[str, ...]) -> None:
        """Remember what was asked for and what there is."""
        super().__init__(f"product: expected one of {', '.join(known)}, found {key!r}")
        self.key = key
        self.known = known
