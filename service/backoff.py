"""Exponential, jittered, capped pauses between retries."""

import random  # noqa: TID251  # jitter must differ between nodes; tests pass their own

#: Longest Retry-After that is respected; seconds.
LONGEST_RETRY_AFTER_S = 300.0


class Backoff:
    """Pauses after failures in a row; `reset` starts again with the shortest.

    Each pause is drawn from the upper half of its ceiling. Without that jitter all
    nodes would retry at the same moment after an outage of the API server.
    """

    def __init__(
        self,
        *,
        base_s: float = 1.0,
        cap_s: float = 30.0,
        rng: random.Random | None = None,
    ) -> None:
        """Store the bounds of the pauses.

        Args:
            base_s: Ceiling of the first pause; seconds, above 0.
            cap_s: Ceiling of every pause; seconds.
            rng: Source of the jitter; by default one that is seeded by the system.
        """
        self._base_s = base_s
        self._cap_s = cap_s
        self._rng = rng or random.Random()  # noqa: S311  # jitter, not a secret
        self._failures = 0

    def next_s(self, min_s: float = 0.0) -> float:
        """Count one failure and return the pause after it, in seconds.

        Args:
            min_s: Retry-After of the server, in seconds; 0 for none. The pause is at
                least this long; values above `LONGEST_RETRY_AFTER_S` count as that.
        """
        # Ten doublings exceed every cap in use; the limit keeps the power small.
        doublings = min(self._failures, 10)
        ceiling = min(self._cap_s, self._base_s * (1 << doublings))
        self._failures += 1
        retry_after_s = min(min_s, LONGEST_RETRY_AFTER_S)
        return max(ceiling * self._rng.uniform(0.5, 1.0), retry_after_s)

    def reset(self) -> None:
        """Forget all failures, after a success."""
        self._failures = 0
