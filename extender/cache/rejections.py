"""Which controllers must wait, because the kubelet keeps rejecting their pods?

A controller that re-creates a rejected pod at once spins: create, bind, reject, and
again, many times a second. After the third rejection within a minute the pods of that
controller wait, each time twice as long, up to five minutes.

Pure: time comes in with each call. Owner: the cache; source of truth: the phases of
pods as the watch shows them; a restart forgets it, and learns it again from the next
three rejections.
"""

from dataclasses import dataclass

#: This many rejections in a row make a storm.
STORM = 3
#: Rejections further apart than this (plus the wait imposed) are no row.
WITHIN_S = 60.0
FIRST_WAIT_S = 10.0
LONGEST_WAIT_S = 300.0


@dataclass(frozen=True, slots=True)
class _Row:
    count: int
    last_s: float

    @property
    def wait_s(self) -> float:
        if self.count < STORM:
            return 0.0
        doublings = min(self.count - STORM, 10)  # beyond, the longest wait rules
        return min(FIRST_WAIT_S * (1 << doublings), LONGEST_WAIT_S)

    @property
    def forgotten_s(self) -> float:
        return self.last_s + WITHIN_S + self.wait_s


class Storms:
    """Rejections in a row, by owner."""

    def __init__(self) -> None:
        """Start with no storm."""
        self._rows: dict[str, _Row] = {}

    def rejected(self, owner: str, now_s: float) -> None:
        """Note that the kubelet has rejected a pod of `owner`; "" is no owner."""
        if not owner:
            return
        row = self._rows.get(owner)
        count = 1 if row is None or now_s > row.forgotten_s else row.count + 1
        self._rows[owner] = _Row(count, now_s)

    def refusal(self, owner: str, now_s: float) -> str | None:
        """Why pods of `owner` must wait now; None if they need not."""
        row = self._rows.get(owner)
        if row is None or now_s >= row.last_s + row.wait_s:
            return None
        return (
            f"backing off for {row.wait_s:g} s: the kubelet rejected "
            f"{row.count} pods of this owner in a row"
        )

    def has_ended(self, since_s: float, now_s: float) -> bool:
        """Whether some owner's wait has ended after `since_s`, and not after now."""
        return any(
            row.wait_s and since_s < row.last_s + row.wait_s <= now_s
            for row in self._rows.values()
        )

    def forget(self, now_s: float) -> None:
        """Drop the rows that have ended."""
        self._rows = {
            owner: row for owner, row in self._rows.items() if now_s <= row.forgotten_s
        }

    def __len__(self) -> int:
        """Count the owners that are remembered."""
        return len(self._rows)
