"""Exceptions of the core, raised when a caller breaks the contract.

A refused pod is a value (`decision.Rejection`), never an exception. The base class
stands in a module of its own because every layer raises subclasses of it.

    SchedulerCoreError
    ├── UnknownProductError            no such row in the table (also ValueError)
    ├── wire.annotations.WireError     one text that does not parse (also ValueError)
    └── documents.DocumentError        all that is wrong with one file (also ValueError)
"""


class SchedulerCoreError(Exception):
    """Base of all exceptions about arguments or files the core cannot work with."""


class UnknownProductError(SchedulerCoreError, ValueError):
    """A product key that is not in the table.

    Attributes:
        key: The key that the caller gave.
        known_keys: All keys of the table.
    """

    def __init__(self, key: str, known_keys: tuple[str, ...]) -> None:
        super().__init__(
            f"product: expected one of {', '.join(known_keys)}, found {key!r}"
        )
        self.key = key
        self.known_keys = known_keys
