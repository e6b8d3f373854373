"""The last decision for each pod, and the reason of the decision, for `/v1/explain`.

A decision is the outcome of a call, such as a refusal by filter or a successful bind.
No decision depends on this store, and a restart of the extender empties it.
"""

from dataclasses import dataclass

from extender.scheduling.node_filter import FilterResult

#: Number of pods remembered; the oldest are forgotten first.
REMEMBERED = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LastDecision:
    """The last decision for one pod: its time, its text, and why nodes were refused."""

    #: seconds since the epoch
    at_s: float
    #: a sentence
    text: str
    #: (text, number of nodes), as `FilterResult.counts`; empty if a node fits
    counts: tuple[tuple[str, int], ...] = ()


class LastDecisions:
    """The last decision for each pod, by UID, for at most `REMEMBERED` pods."""

    def __init__(self) -> None:
        #: {uid: last decision}, the oldest first
        self._decisions: dict[str, LastDecision] = {}

    def get(self, uid: str) -> LastDecision | None:
        """Return the last decision for a pod; None if it is not remembered."""
        return self._decisions.get(uid)

    def put(self, uid: str, note: LastDecision) -> None:
        """Store the last decision for a pod.

        If more than `REMEMBERED` pods then have a decision, the oldest one is removed.
        """
        self._decisions.pop(uid, None)  # moves the key to the end of the dict
        self._decisions[uid] = note
        if len(self._decisions) > REMEMBERED:
            del self._decisions[next(iter(self._decisions))]

    def record_refusal(self, uid: str, result: FilterResult, wall_s: float) -> None:
        """Store why a filter call refused all nodes, as the pod's last decision.

        Args:
            wall_s: Time of the call, in seconds since the epoch.
        """
        counts = result.counts
        reasons = ", ".join(f"{nodes} {text}" for text, nodes in counts)
        total = sum(nodes for _, nodes in counts)
        reasons = reasons or "no node was offered"
        self.put(
            uid,
            LastDecision(
                at_s=wall_s,
                text=f"0/{total} nodes are available: {reasons}",
                counts=counts,
            ),
        )
