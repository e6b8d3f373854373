"""Limit the rate of all requests to the pod-resources API of one node's kubelet.

A module of its own: other modules share it. `app` constructs one RateLimit for the
node. Each `PodResourcesClient` waits for its turn before it sends a request.
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
