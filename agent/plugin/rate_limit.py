"""Limit the rate at which the agent asks one node's kubelet about pods' device ids.

A module of its own: other modules share it. `app` constructs one RateLimit for the
node. `PodResourcesClient.read` waits for its turn before it asks about a pod. The
client's other methods do not wait.
"""

import asyncio

from service import clock


class RateLimit:
    """Rate limit for requests to one kubelet: at most one per `each_s` seconds."""

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
