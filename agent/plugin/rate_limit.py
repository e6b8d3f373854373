"""Limit the rate of requests to the kubelet, over all callers of one node.

A module of its own: `product_line` shares one limit between all product lines, and
`pod_resources`, which waits for it, is constructed once for each of them.
"""

import asyncio

from service import clock


class RateLimit:
    """Earliest time of the next request."""

    def __init__(self, each_s: float) -> None:
        """Allow the first request at once.

        Args:
            each_s: Between two requests. Unit: seconds.
        """
        self._each_s = each_s
        self._next_s = float("-inf")

    async def wait_for_turn(self) -> None:
        """Wait until the caller may send its request."""
        now = clock.loop_s()
        at = max(now, self._next_s)
        self._next_s = at + self._each_s
        if at - now > clock.EARLY_S:
            await asyncio.sleep(at - now)
