"""What does the kubelet itself say runs here: its `/pods`, for when the watch is late.

Used seldom and in a hurry, so it has a short deadline and a session of its own: the
kubelet is another server, with another certificate, than the API server.
"""

import ssl as tls

import msgspec

from kube.client import Client
from kube.credentials import Credentials
from kube.errors import (
    MalformedError,
)
from kube.objects import ObjectList, Pod
from service.decoding import UNDECODABLE, undecodable

_PODS = msgspec.json.Decoder(Pod)


class _Given:
    """A token that the caller has at hand."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token

    def expire(self) -> None:
        """Leave it: the next call brings the next token."""


async def pods(
    url: str,
    token: str = "",
    ssl: tls.SSLContext | None = None,
    *,
    timeout_s: float = 1.0,
) -> list[Pod]:
    """Return the pods that the kubelet knows, mirror pods included.

    Args:
        url: The kubelet's base URL.
        token: Bearer token; empty for none.
        ssl: How to verify the kubelet; None for plain http or the system's trust.
        timeout_s: For the whole call.

    Raises:
        KubeError: No answer in time, or a refusal.
    """
    context = None if ssl is None else lambda: ssl
    credentials = Credentials(url.rstrip("/"), tls=context, tokens=_Given(token))
    async with Client(credentials) as client:
        body = await client.request("GET", "/pods", timeout_s=timeout_s)
    return decoded(body, url)


def decoded(body: bytes, url: str) -> list[Pod]:
    """Return the pods of the kubelet's answer.

    Args:
        body: The answer.
        url: Whose, for the error.

    Raises:
        MalformedError: It is no list of pods.
    """
    try:
        page = msgspec.json.decode(body, type=ObjectList)
        return [_PODS.decode(item) for item in page.items or ()]
    except UNDECODABLE as error:
        raise MalformedError(undecodable(f"{url}/pods", error)) from error
