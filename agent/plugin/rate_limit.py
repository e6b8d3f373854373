"""Limit the rate of requests to the kubelet, over all callers of one node.

A module of its own: `product_line` shares one rate limit between all product lines, and
`pod_resources`, which waits for it, is constructed once for each product line.
"""

import asyncio

from service import clock


class RateLimit:
    """Rate limit of the requests to one kubelet: a pause after each request."""

    def __init__(self, each_s: float) -> None:
        """Construct a rate limit that lets the first request pass at once.

        Args:
            each_s: Pause between two requests. Unit: seconds.
        """
        self._each_s = each_s
        self._next_s = float("-inf")

    async def wait_for_turn(self) -> None:
        """Wait until the caller may send its request.

        Callers are let through in the order in which they call.
        """
        now = clock.loop_s()
        at = max(now, self._next_s)
        self._next_s = at + self._each_s
        if at - now > clock.EARLY_S:
            await asyncio.sleep(at - now)
