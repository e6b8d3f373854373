"""How long to wait before the next try: exponential, jittered, capped."""

import random  # noqa: TID251  # jitter must differ between nodes; tests pass their own

#: No server may send us to sleep for longer than this.
LONGEST_RETRY_AFTER_S = 300.0


class Backoff:
    """The pause after each failure in a row; a success starts it anew.

    Each pause is drawn from the upper half of its ceiling, so that a fleet whose API
    server came back does not knock in step.
    """

    def __init__(
        self,
        *,
        base_s: float = 1.0,
        cap_s: float = 30.0,
        rng: random.Random | None = None,
    ) -> None:
        """Start with no failure.

        Args:
            base_s: Ceiling of the first pause; seconds, above 0.
            cap_s: Ceiling that no pause exceeds; seconds.
            rng: The source of chance; by default one that nobody can predict.
        """
        self._base_s = base_s
        self._cap_s = cap_s
        self._rng = rng or random.Random()  # noqa: S311  # jitter, not a secret
        self._failures = 0

    def next_s(self, at_least_s: float = 0.0) -> float:
        """Count one failure and return the pause that follows it.

        Args:
            at_least_s: What the other side asked for (Retry-After); 0 for nothing.
        """
        # Ten doublings are beyond any cap in use, and keep the power small for ever.
        doublings = min(self._failures, 10)
        ceiling = min(self._cap_s, self._base_s * (1 << doublings))
        self._failures += 1
        asked = min(at_least_s, LONGEST_RETRY_AFTER_S)
        return max(ceiling * self._rng.uniform(0.5, 1.0), asked)

    def reset(self) -> None:
        """Forget all failures: something went well."""
        self._failures = 0
