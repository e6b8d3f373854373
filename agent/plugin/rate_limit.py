"""Limit the rate of requests to the kubelet, over all callers of one node.

A module of its own: other modules share it. `app` constructs the one RateLimit of a
node. Before a request, each client of `pod_resources` waits for its turn.
"""

import asyncio

from service import clock


class RateLimit:
    """Rate limit for all requests to one kubelet: at most one per `each_s` seconds."""

    def __init__(self, each_s: float) -> None:
        """Construct a rate limit that lets the first request pass at once.

        Args:
            each_s: Least time between two requests. Unit: seconds.
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
