"""Bearer tokens of a kubeconfig's credential plugin or identity provider."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from kube.errors import CredentialsError
from service.worker import Worker

#: Age at which a token is fetched again; seconds.
REFETCH_S = 60.0
#: Longest wait for a credential plugin, which may ask a person or a remote provider;
#: seconds. Requests have separate deadlines.
TOKEN_TIMEOUT_S = 10.0


class PluginTokens:
    """Bearer token that the official client refreshes: exec plugins, OIDC.

    The client may run a program, which can hang and cannot be ended from here. It
    therefore runs in one separate thread, at most once a minute and once at a time.
    All requests that need a token wait for the same call, for `timeout_s` at most.
    """

    def __init__(
        self,
        configuration: Any,  # the official package has no types
        *,
        clock: Callable[[], float] = time.monotonic,
        timeout_s: float = TOKEN_TIMEOUT_S,
    ) -> None:
        """Store the settings; `token` makes the first call.

        Args:
            configuration: Configuration of the official client.
            clock: Monotonic seconds.
            timeout_s: Longest time that a request waits for its token.
        """
        self._configuration = configuration
        self._clock = clock
        self._timeout_s = timeout_s
        self._worker = Worker("kubeconfig")
        self._call: asyncio.Future[str] | None = None
        self._token = ""
        self._fetched_at_s = float("-inf")

    async def token(self) -> str:
        """Return the current token; empty when certificates are used.

        Raises:
            CredentialsError: The plugin failed, or has not answered in time.
        """
        if self._clock() - self._fetched_at_s >= REFETCH_S:
            await self._await_token()
        return self._token

    async def _await_token(self) -> None:
        """Wait for the call that is under way, or start one."""
        call = self._call
        if call is None:
            call = self._call = self._worker.call(self._fetch_token)
            call.add_done_callback(self._store_token)
        # `await call` would cancel it with this task, though others wait for it
        finished_calls, _ = await asyncio.wait({call}, timeout=self._timeout_s)
        if not finished_calls:
            raise CredentialsError(
                "kubeconfig: no token: the credential plugin or identity provider has "
                f"not answered within {self._timeout_s:g} s"
            )
        call.result()

    def _store_token(self, call: asyncio.Future[str]) -> None:
        self._call = None
        if not call.exception():
            self._token = call.result()
            self._fetched_at_s = self._clock()

    def expire(self) -> None:
        """Make the next `token` call the plugin."""
        self._fetched_at_s = float("-inf")

    def _fetch_token(self) -> str:
        try:
            value = self._configuration.get_api_key_with_prefix(
                "BearerToken", alias="authorization"
            )
        except Exception as error:  # plugins and identity providers throw anything
            raise CredentialsError(f"kubeconfig: no token: {error}") from error
        return (value or "").removeprefix("Bearer ")
