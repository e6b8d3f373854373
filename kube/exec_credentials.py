"""What token do we show, when a kubeconfig leaves that to a program or a provider."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from kube.errors import CredentialsError
from service.worker import Worker

#: How long a token is used before the official client is asked again.
FRESH_S = 60.0
#: A credential plugin may ask a person or a provider far away; the requests that
#: need its token have deadlines of their own. Unit: seconds.
TOKEN_WITHIN_S = 10.0


class PluginTokens:
    """A bearer token that the official client keeps fresh: exec plugins, OIDC.

    It may run a program, which can hang, and then nothing here can end it. So it is
    asked in one thread of its own, at most once a minute and once at a time: whoever
    needs a token meanwhile waits for the same answer, and for so long only.
    Protects the token and the question that is under way.
    """

    def __init__(
        self,
        configuration: Any,  # the official package has no types
        *,
        clock: Callable[[], float] = time.monotonic,
        within_s: float = TOKEN_WITHIN_S,
    ) -> None:
        """Ask nothing yet.

        Args:
            configuration: The official client's.
            clock: Monotonic seconds.
            within_s: How long a request waits for its token.
        """
        self._configuration = configuration
        self._clock = clock
        self._within_s = within_s
        self._worker = Worker("kubeconfig")
        self._call: asyncio.Future[str] | None = None
        self._token = ""
        self._asked_at = float("-inf")

    async def token(self) -> str:
        """Return the present token; empty when certificates are used.

        Raises:
            CredentialsError: There is none, or not in time.
        """
        if self._clock() - self._asked_at >= FRESH_S:
            await self._ask_in_time()
        return self._token

    async def _ask_in_time(self) -> None:
        """Ask, or wait for the answer to what was asked before."""
        call = self._call
        if call is None:
            call = self._call = self._worker.call(self._ask)
            call.add_done_callback(self._answered)
        # not awaited itself: whoever stops waiting leaves it to the others
        done, _ = await asyncio.wait({call}, timeout=self._within_s)
        if not done:
            raise CredentialsError(
                "kubeconfig: no token: the credential plugin or identity provider has "
                f"not answered within {self._within_s:g} s"
            )
        call.result()

    def _answered(self, call: asyncio.Future[str]) -> None:
        self._call = None
        if not call.exception():
            self._token = call.result()
            self._asked_at = self._clock()

    def expire(self) -> None:
        """Ask next time."""
        self._asked_at = float("-inf")

    def _ask(self) -> str:
        try:
            value = self._configuration.get_api_key_with_prefix(
                "BearerToken", alias="authorization"
            )
        except Exception as error:  # plugins and identity providers throw anything
            raise CredentialsError(f"kubeconfig: no token: {error}") from error
        return (value or "").removeprefix("Bearer ")
