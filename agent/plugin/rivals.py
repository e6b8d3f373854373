"""Is there another device plugin for our resource, and has it gone?

The kubelet takes whoever registers last and tells nobody: the old stream stays open,
and lists that come through it still count (cm/devicemanager/plugin/v1beta1/handler.go
and manager.go, v1.36). When either stream ends, it drops the plugin that it knows
then. So two plugins that register whenever they are dropped do so for ever, and both
give out the same chips. Whoever notices has to be the one who yields.
"""

import asyncio
import re
import stat
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

from scheduler_core.products.table import PRODUCTS
from service import clock

_LINES = "|".join(sorted({re.escape(row.chip_prefix) for row in PRODUCTS}))
#: Plugins for a product line, or for a kind of parts of its chips, name their sockets
#: after what they serve, ours as well as the reference's.
_NAMED = re.compile(rf"(?:{_LINES})(?:[0-9]+c[\w.]*-)?")

KUBELET_SOCKET = "kubelet.sock"

#: pod-resources takes 100 calls a second from all callers together.
LOOK_EACH_S = 1.0
#: How often the kubelet is asked while nothing happens in its directory: each plugin
#: has a socket there, and registers soon after it has made that …
CALM_LOOK_EACH_S = 15.0
#: … at the latest so long after.
REGISTERS_WITHIN_S = 30.0
#: In a row, so that a list under way is no evidence.
LOOKS = 3
#: How long the kubelet may take to notice that our predecessor's stream has ended.
FORGETS_WITHIN_S = 1.0
_AGAIN_S = 0.1
_CONNECT_S = 0.5

#: The ids of our resource that the kubelet would give out; None: it does not say.
Offered = Callable[[], Awaitable[frozenset[str] | None]]


class Doubt(Enum):
    """What a look at the kubelet's devices says about our registration."""

    NONE = auto()
    FOREIGN = auto()  #: they are not what we have listed
    FORGOTTEN = auto()  #: there are none, although we have listed some


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """What we have done ourselves."""

    inode: int  #: of our socket's file
    listed: frozenset[str] | None  #: healthy ids of our last list; None: none sent


class Rivals:
    """Protects what was seen in the last looks, so that one alone decides nothing."""

    def __init__(self, socket: Path, *, resource: str, offered: Offered) -> None:
        """Look at nothing yet.

        Args:
            socket: Ours, in the kubelet's directory.
            resource: That we serve.
            offered: Asks the kubelet what it would give out.
        """
        self._socket = socket
        self._resource = resource
        self._offered = offered
        self._doubt = Doubt.NONE
        self._looks = 0
        self._listed: frozenset[str] | None = None
        self._asked_at = float("-inf")
        self._folder: tuple[int, int] | None = None
        self._changed_at = float("-inf")

    async def before(self) -> str:
        """Tell, before we register, who serves the resource; "" for nobody.

        What the kubelet offers although we are not registered somebody else has
        listed. A plugin needs a socket in the kubelet's directory: without one that
        answers, it is a list of the past.
        """
        self._doubt, self._looks = Doubt.NONE, 0
        if await listens(self._socket):
            return f"another device plugin serves at our socket, {self._socket}"
        deadline = clock.loop_s() + FORGETS_WITHIN_S
        while await self._offered():
            if clock.loop_s() > deadline:
                return await self._living()
            await asyncio.sleep(_AGAIN_S)
        return ""

    async def _living(self) -> str:
        others = [path for path in self._others() if await listens(path)]
        if not others:
            return ""
        sockets = ", ".join(path.name for path in others)
        return (
            f"another device plugin serves {self._resource}: the kubelet has its "
            f"devices (sockets beside ours: {sockets})"
        )

    async def beside(self, own: Own) -> str:
        """Tell, while we are registered, who serves the resource too; "" for nobody."""
        if inode_of(self._socket) not in (0, own.inode):
            return (
                "another device plugin has put its socket in the place of ours, "
                f"{self._socket}"
            )
        if self._is_calm():
            return ""
        if await self._doubts(own) is Doubt.FOREIGN:
            return (
                f"another device plugin serves {self._resource} too: the kubelet has "
                "other devices than we have listed"
            )
        return ""

    @property
    def are_we_forgotten(self) -> bool:
        """Whether the kubelet has dropped us without ending our stream."""
        return self._doubt is Doubt.FORGOTTEN and self._looks >= LOOKS

    async def is_gone(self, own: Own) -> bool:
        """Tell whether nobody serves the resource any more."""
        taken = inode_of(self._socket) not in (0, own.inode)
        if taken and await listens(self._socket):
            return False
        if await self._offered() == frozenset():
            return True
        return not [path for path in self._others() if await listens(path)]

    def _is_calm(self) -> bool:
        """Whether the kubelet need not be asked: it was, and no plugin has come."""
        now = clock.loop_s()
        folder = _state(self._socket.parent)
        if folder != self._folder:
            self._folder, self._changed_at = folder, now
        return (
            self._doubt is Doubt.NONE
            and now - self._changed_at > REGISTERS_WITHIN_S
            and now - self._asked_at < CALM_LOOK_EACH_S - clock.EARLY_S
        )

    async def _doubts(self, own: Own) -> Doubt:
        """Look once; return what the last looks agree in."""
        self._asked_at = clock.loop_s()
        offered = await self._offered()
        doubt = Doubt.NONE
        if offered is not None and own.listed and offered != own.listed:
            doubt = Doubt.FOREIGN if offered else Doubt.FORGOTTEN
        same = doubt is self._doubt and own.listed == self._listed
        self._looks = self._looks + 1 if same else 1
        self._doubt, self._listed = doubt, own.listed
        return doubt if self._looks >= LOOKS else Doubt.NONE

    def _others(self) -> list[Path]:
        """Return the sockets of plugins that may serve the same resource."""
        ours = {self._socket.name, KUBELET_SOCKET}
        found = []
        with suppress(OSError):
            for path in sorted(self._socket.parent.iterdir()):
                if path.name in ours or _is_of_another_resource(path):
                    continue
                with suppress(OSError):
                    if stat.S_ISSOCK(path.stat().st_mode):
                        found.append(path)
        return found


def inode_of(path: Path) -> int:
    """Return the inode of a file; 0 without one.

    While a socket is open its inode is taken, also when its file has been removed: a
    file of the same number is the same.
    """
    try:
        return path.stat().st_ino
    except OSError:
        return 0


def _is_of_another_resource(path: Path) -> bool:
    """Tell whether a socket that is not ours is named after what it serves."""
    return path.suffix == ".sock" and bool(_NAMED.fullmatch(f"{path.stem}-"))


def _state(folder: Path) -> tuple[int, int] | None:
    """Return what changes when something is put into a folder; None without one."""
    try:
        found = folder.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


async def listens(path: Path) -> bool:
    """Tell whether somebody takes connections at a socket."""
    try:
        async with asyncio.timeout(_CONNECT_S):
            _, writer = await asyncio.open_unix_connection(path)
    except TimeoutError:
        return True  # a full queue of connections is somebody's
    except OSError:
        return False
    writer.close()
    return True
