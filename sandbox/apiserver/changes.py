"""The history of the store: every change, in order, until it is compacted away.

Invariants: revisions rise by one; whoever asks for a revision older than
`compacted` is told so, and never given a gap.
"""

import collections
import dataclasses
import itertools

from sandbox.apiserver.objects import Entry, Key
from sandbox.apiserver.resources import Resource

# A real server keeps minutes of history. At a sandbox's rate this is more.
_KEPT_CHANGES = 20_000


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Change:
    """One object was created (no `before`), changed, or removed (no `after`).

    Attributes:
        after: The new version. Of a removed object: its last state, with the
            resource version of the removal; `removed` tells.
    """

    revision: int
    resource: Resource
    key: Key
    before: Entry | None
    after: Entry
    removed: bool = False


class CompactedError(LookupError):
    """The history that was asked for is gone."""


class ChangeLog:
    """Remembers changes since the last compaction."""

    def __init__(self) -> None:
        """Start empty, at revision 1: 0 has a meaning of its own in requests."""
        self.revision = 1
        #: Changes up to and including this revision are forgotten.
        self.compacted = 1
        self._changes: collections.deque[Change] = collections.deque()

    def append(self, change: Change) -> None:
        """Add the next change; its revision is one above the last."""
        if change.revision != self.revision + 1:
            raise ValueError(
                f"expected revision {self.revision + 1}, found {change.revision}"
            )
        self.revision = change.revision
        self._changes.append(change)
        if len(self._changes) > _KEPT_CHANGES:
            self.compacted = self._changes.popleft().revision

    def since(self, revision: int) -> list[Change]:
        """Return the changes after `revision`, oldest first.

        Raises:
            CompactedError: Some of them are forgotten.
        """
        if revision < self.compacted:
            raise CompactedError(revision)
        # Revisions are consecutive, so a position is a subtraction.
        skipped = revision - self.compacted
        return list(itertools.islice(self._changes, skipped, None))

    def compact(self) -> None:
        """Forget everything that has happened."""
        self.compacted = self.revision
        self._changes.clear()
