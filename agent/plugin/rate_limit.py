"""How often the kubelet is asked: each caller in his turn, however many there are."""

import asyncio

from service import clock


class Pace:
    """Protects when the next question may be asked."""

    def __init__(self, each_s: float) -> None:
        """Let the first be asked at once.

        Args:
            each_s: Between two questions. Unit: seconds.
        """
        self._each_s = each_s
        self._next_s = float("-inf")

    async def turn(self) -> None:
        """Wait until it is the caller's turn."""
        now = clock.loop_s()
        at = max(now, self._next_s)
        self._next_s = at + self._each_s
        if at - now > clock.EARLY_S:
            await asyncio.sleep(at - now)
