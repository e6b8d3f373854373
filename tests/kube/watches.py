"""A watch on pods with a known jitter, and its changes as short words."""

import random  # noqa: TID251  # a fixed seed: the test knows the jitter
from typing import Any

from kube.client import Client
from kube.objects import Pod
from kube.reflector import Change, Deleted, ListWatch, Synced, Upserted
from tests.kube.server import Script

PODS = "/api/v1/pods"


def told(changes: list[Change[Pod]]) -> list[str]:
    """Return changes as short words: `+a1` upserted, `-a1` deleted, `=1` synced."""
    words = []
    for change in changes:
        match change:
            case Synced(version):
                words.append(f"={version}")
            case Upserted(obj):
                words.append(f"+{obj.metadata.name}{obj.metadata.resource_version}")
            case Deleted(obj):
                words.append(f"-{obj.metadata.name}{obj.metadata.resource_version}")
    return words


def seeded() -> random.Random:
    return random.Random(1)  # noqa: S311  # jitter, not a secret


def watch_of(server: Client | Script, **more: Any) -> ListWatch[Pod]:
    client = server.client if isinstance(server, Script) else server
    return ListWatch(client, PODS, Pod, rng=seeded(), **more)


async def steps(watch: ListWatch[Pod], count: int = 1) -> list[str]:
    changes: list[Change[Pod]] = []
    for _ in range(count):
        await watch.step(changes.append)
    return told(changes)
