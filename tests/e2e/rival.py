"""Another device plugin for our resource, of another make, on the real kubelet."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, Self

from tests.contract.kubelet.plugin import Plugin
from tests.e2e.configurations import RESOURCE
from tests.e2e.places import DEVICE_PLUGIN_DIR

_CHIPS = 8
_ANSWERS_WITHIN_S = 60.0


class Rival:
    """Serves the kubelet from a thread of its own. Protects that thread's loop."""

    def __init__(self, socket: str, *, prefix: str) -> None:
        """Nothing is served until it is entered.

        Args:
            socket: The name of its socket, in the kubelet's directory.
            prefix: Of its device ids.
        """
        self.plugin = Plugin(RESOURCE)
        self.plugin.devices = {f"{prefix}{chip}": "Healthy" for chip in range(_CHIPS)}
        self._socket = DEVICE_PLUGIN_DIR / socket
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="rival")

    def __enter__(self) -> Self:
        """Serve and register, as such plugins do: over whatever lies there."""
        self._thread.start()
        self._socket.unlink(missing_ok=True)
        self._do(self.plugin.serve(self._socket))
        self._do(self.plugin.register(self._socket))
        return self

    def __exit__(self, *_: object) -> None:
        """Be gone, as by kill -9."""
        self._do(self.plugin.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._socket.unlink(missing_ok=True)

    def _do(self, what: Coroutine[Any, Any, object]) -> None:
        asyncio.run_coroutine_threadsafe(what, self._loop).result(_ANSWERS_WITHIN_S)
