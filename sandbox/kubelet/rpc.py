"""How do gRPC calls look from the kubelet?

Errors carry the text that Go's gRPC would give them, since that text ends up
in the pod's status.
"""

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import TypeVar

import grpc.aio

from sandbox.kubelet.devices import DeviceError

_T = TypeVar("_T")
_GO_NAMES = {"CANCELLED": "Canceled", "OK": "OK"}


def channel(socket: Path) -> grpc.aio.Channel:
    """Return a channel to a unix socket, as Go's client makes it.

    With a connection of its own: Python's clients share one for each address, also
    with who listened there before.
    """
    return grpc.aio.insecure_channel(
        f"unix:{socket}",
        options=[
            ("grpc.default_authority", "localhost"),
            ("grpc.use_local_subchannel_pool", 1),
        ],
    )


async def answer(call: Awaitable[_T], failed: str = "") -> _T:
    """Wait for a plugin's answer.

    Args:
        call: The call.
        failed: What stands before the text of an error.

    Raises:
        DeviceError: the call failed; its text is that of a Go client.
    """
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        name = error.code().name
        go_name = _GO_NAMES.get(name) or name.title().replace("_", "")
        problem = f"{go_name} desc = {error.details()}"
    except asyncio.CancelledError:
        pass_on_cancellation()
        # The channel was closed under the call: grpc.aio cancels it then.
        problem = "Canceled desc = grpc: the client connection is closing"
    raise DeviceError(f"{failed}rpc error: code = {problem}")


def pass_on_cancellation() -> None:
    """Raise CancelledError if it is this task that was cancelled, not its call."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
