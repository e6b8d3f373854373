"""Back-off for controllers whose pods the kubelet keeps rejecting.

Some controllers replace a rejected pod at once. Then pods are created, bound and
rejected many times a second. So after three rejections of a controller's pods, the
extender refuses all pods of this controller for 10 s. Each further rejection doubles
this pause, up to 5 min.

Accepted pods of the controller do not reset the count. But if none of its pods is
rejected for a minute, the next rejection counts as the first. After a rejection that
causes a pause, this minute begins at the end of the pause. A restart of the extender
deletes all counts.
"""

from dataclasses import dataclass

#: Consecutive rejections after which the owner must wait.
BACK_OFF = 3
#: Rejections further apart than this, plus the wait, are not consecutive.
WITHIN_S = 60.0
FIRST_WAIT_S = 10.0
LONGEST_WAIT_S = 300.0


@dataclass(frozen=True, slots=True)
class _Row:
    count: int
    last_s: float

    @property
    def wait_s(self) -> float:
        if self.count < BACK_OFF:
            return 0.0
        doublings = min(
            self.count - BACK_OFF, 10
        )  # more doublings would exceed the longest wait
        return min(FIRST_WAIT_S * (1 << doublings), LONGEST_WAIT_S)

    @property
    def forgotten_s(self) -> float:
        return self.last_s + WITHIN_S + self.wait_s


class OwnerBackoff:
    """For each controller, the number of recent rejections, and the back-off.

    In all methods, `owner` is the controller of a pod.
    """

    def __init__(self) -> None:
        #: {owner: its rejections in a row}; a restart forgets them
        self._rows: dict[str, _Row] = {}

    def record_rejection(self, owner: str, now_s: float) -> None:
        """Count one more pod of `owner` that the kubelet rejected.

        For a pod without a controller `owner` is "", and nothing is counted.
        """
        if not owner:
            return
        row = self._rows.get(owner)
        count = 1 if row is None or now_s > row.forgotten_s else row.count + 1
        self._rows[owner] = _Row(count, now_s)

    def refusal(self, owner: str, now_s: float) -> str | None:
        """Return why pods of `owner` are refused at `now_s`; None if they are not."""
        row = self._rows.get(owner)
        if row is None or now_s >= row.last_s + row.wait_s:
            return None
        return (
            f"backing off for {row.wait_s:g} s: the kubelet rejected "
            f"{row.count} pods of this owner in a row"
        )

    def has_ended(self, since_s: float, now_s: float) -> bool:
        """Whether any owner's back-off ended after `since_s`, and not after `now_s`."""
        return any(
            row.wait_s and since_s < row.last_s + row.wait_s <= now_s
            for row in self._rows.values()
        )

    def forget(self, now_s: float) -> None:
        """Delete each owner whose next rejection would count as the first."""
        self._rows = {
            owner: row for owner, row in self._rows.items() if now_s <= row.forgotten_s
        }

    def __len__(self) -> int:
        return len(self._rows)
