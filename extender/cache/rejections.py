"""Back-off for controllers whose pods the kubelet keeps rejecting.

A controller that replaces a rejected pod at once repeats create, bind and reject many
times a second. From the third consecutive rejection on, the pods of that controller
wait. The wait doubles with each rejection, up to 5 min. If no rejection follows within
a minute after the wait, the count starts again at one.

Owner: the cache. Source of truth: the phases of pods in the pod watch. A restart
forgets the counts; the next rejections are counted from one.
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
    """Consecutive rejections of each controller's pods, and how long its pods wait.

    In all methods, an owner is the controller of a pod.
    """

    def __init__(self) -> None:
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
        """Return why pods of `owner` must wait at `now_s`; None if they need not."""
        row = self._rows.get(owner)
        if row is None or now_s >= row.last_s + row.wait_s:
            return None
        return (
            f"backing off for {row.wait_s:g} s: the kubelet rejected "
            f"{row.count} pods of this owner in a row"
        )

    def has_ended(self, since_s: float, now_s: float) -> bool:
        """Whether any owner's wait ended after `since_s` and no later than `now_s`."""
        return any(
            row.wait_s and since_s < row.last_s + row.wait_s <= now_s
            for row in self._rows.values()
        )

    def forget(self, now_s: float) -> None:
        """Remove owners whose next rejection would be counted as the first one."""
        self._rows = {
            owner: row for owner, row in self._rows.items() if now_s <= row.forgotten_s
        }

    def __len__(self) -> int:
        return len(self._rows)
