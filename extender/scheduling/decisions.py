"""What was decided for which pod, and why: remembered for whoever asks.

Owner: the decisions as they are made. Nothing depends on it, and a restart forgets
it; what a pod has is on the pod.
"""

from dataclasses import dataclass

from extender.scheduling.node_filter import Judgement

#: Pods remembered; the oldest go first.
REMEMBERED = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """The last decision on a pod."""

    #: seconds since the epoch
    at_s: float
    #: a sentence
    text: str
    #: (text, nodes), as `filter.Judgement.counts`; only if no node was fit
    counts: tuple[tuple[str, int], ...] = ()


class Notes:
    """The last decision on each pod, by UID."""

    def __init__(self) -> None:
        """Remember nothing yet."""
        self._notes: dict[str, Note] = {}

    def get(self, uid: str) -> Note | None:
        """The last decision on a pod, if it is remembered."""
        return self._notes.get(uid)

    def put(self, uid: str, note: Note) -> None:
        """Remember a decision in place of the one before."""
        self._notes.pop(uid, None)  # so that it becomes the youngest
        self._notes[uid] = note
        if len(self._notes) > REMEMBERED:
            del self._notes[next(iter(self._notes))]

    def judged(self, uid: str, judgement: Judgement, wall_s: float) -> None:
        """Remember what filter said, if no node was fit."""
        if judgement.fitting:
            return
        counts = judgement.counts
        said = ", ".join(f"{nodes} {text}" for text, nodes in counts)
        looked = sum(nodes for _, nodes in counts)
        self.put(
            uid,
            Note(
                at_s=wall_s,
                text=f"0/{looked} nodes are available: {said or 'no node was offered'}",
                counts=counts,
            ),
        )
