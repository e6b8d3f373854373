"""Search for differences between a followed collection and the API server.

A lost event shows in nothing else: the watch goes on. One list of versions is compared
with the cache after the watch has reached the list's version.
"""

import asyncio
from typing import TypeVar

from kube.objects import VersionOnly
from kube.pager import HasMeta, Listing
from kube.store import Collection, Difference, is_older

#: Longest wait for the watch to reach the list: two bookmarks (60 s each) and 30 s.
WATCH_TIMEOUT_S = 150.0
_POLL_S = 0.5

T = TypeVar("T", bound=HasMeta)


async def find_differences(
    collection: Collection[T],
    listing: Listing[VersionOnly],
    timeout_s: float = WATCH_TIMEOUT_S,
) -> list[Difference] | None:
    """Return objects whose cached version is wrong; None if undecided now.

    Args:
        collection: Cache that a running watch updates.
        listing: The same collection at the server.
        timeout_s: Longest wait for the watch to reach the list; seconds.

    Raises:
        KubeError: The server refused or garbled the list.
    """
    loop = asyncio.get_running_loop()
    start_version = collection.version
    comparison = collection.begin_comparison()
    try:
        version = await listing.visit_all(comparison.add_listed)
        if is_older(version, start_version):
            return None  # a lagging server: it may list objects that are deleted
        deadline_s = loop.time() + timeout_s
        while not collection.has_reached(version):
            if loop.time() >= deadline_s:
                return None
            await asyncio.sleep(_POLL_S)
        return comparison.find_differences(version) if comparison.is_valid else None
    finally:
        collection.end_comparison(comparison)
