"""Pods that the kubelet's `/pods` lists, for use when the watch is late.

The agent asks seldom, and a pod's admission may wait for it, so the deadline is short.
The kubelet is a server with another certificate than the API server, so each call opens
a session.
"""

import ssl as tls

from kube.client import Client
from kube.credentials import Credentials
from kube.objects import ObjectList, Pod, decode


class _StaticToken:
    """Token source with a fixed token."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token

    def expire(self) -> None:
        """Do nothing: the next call of `pods` has a new token."""


async def pods(
    url: str,
    token: str = "",
    ssl: tls.SSLContext | None = None,
    *,
    timeout_s: float = 1.0,
) -> list[Pod]:
    """Return the pods that the kubelet knows, mirror pods included.

    Args:
        url: Base URL of the kubelet.
        token: Bearer token; empty for none.
        ssl: TLS context; None for plain http or the system's trust.
        timeout_s: For the whole call.

    Raises:
        KubeError: No answer in time, or a refusal.
    """
    context = None if ssl is None else lambda: ssl
    credentials = Credentials(url.rstrip("/"), tls=context, tokens=_StaticToken(token))
    async with Client(credentials) as client:
        body = await client.request("GET", "/pods", timeout_s=timeout_s)
    return decode_pods(body, url)


def decode_pods(body: bytes, url: str) -> list[Pod]:
    """Return the pods in the kubelet's answer.

    Args:
        body: Body of the answer.
        url: Base URL of the kubelet, for messages.

    Raises:
        MalformedError: The body is no list of pods.
    """
    path = f"{url}/pods"
    page = decode(body, ObjectList, path)
    return [decode(item, Pod, path) for item in page.items or ()]
