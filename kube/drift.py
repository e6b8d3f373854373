"""Is what a watch has shown what is there? One list, held against what is known."""

import asyncio
from typing import TypeVar

from kube.objects import OnlyStamp
from kube.pager import HasMeta, Listing
from kube.store import Collection, Difference, is_older

#: How long the watch is given to come so far as the list: two bookmarks, and some.
PATIENCE_S = 150.0
_LOOK_S = 0.5

T = TypeVar("T", bound=HasMeta)


async def differences(
    collection: Collection[T],
    listing: Listing[OnlyStamp],
    patience_s: float = PATIENCE_S,
) -> list[Difference] | None:
    """Return what is known wrongly; None: it cannot be told now.

    Args:
        collection: What a watch goes on to bring up to date.
        listing: The same collection at the server.
        patience_s: How long the watch is waited for; seconds.

    Raises:
        KubeError: The server refused or garbled the list.
    """
    loop = asyncio.get_running_loop()
    begun = collection.version
    comparison = collection.compare()
    try:
        version = await listing.each(comparison.see)
        if is_older(version, begun):
            return None  # a server that lags: what it still has may have gone before
        until_s = loop.time() + patience_s
        while not collection.has_come_to(version):
            if loop.time() >= until_s:
                return None
            await asyncio.sleep(_LOOK_S)
        return comparison.differences(version) if comparison.is_valid else None
    finally:
        collection.leave(comparison)
