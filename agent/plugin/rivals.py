"""Detect a rival: another device plugin that serves the same resource.

The kubelet takes the plugin that registers last, and does not tell the older plugin.
The older plugin's stream stays open, and the kubelet still applies the device lists
sent on it (cm/devicemanager/plugin/v1beta1/handler.go and manager.go, v1.36). When the
stream of either plugin ends, the kubelet drops the plugin that registered last.

Suppose that both plugins register again after each drop. They would do so for ever, and
both would give out the same chips. So the plugin that notices a rival stops sending
device lists, but keeps its stream open. It registers again only when the rival has
gone.
"""

import asyncio
import re
import stat
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from enum import Enum, auto
from pathlib import Path

from scheduler_core.products.table import PRODUCTS
from service import clock

_PREFIXES = "|".join(sorted({re.escape(row.chip_prefix) for row in PRODUCTS}))
#: Names of sockets of known plugins. This agent's plugins and MindCluster's name their
#: sockets after the product line or the kind of virtual device that they serve.
_KNOWN_SOCKET = re.compile(rf"(?:{_PREFIXES})(?:[0-9]+c[\w.]*-)?")

KUBELET_SOCKET = "kubelet.sock"

#: Pause between two checks; pod-resources takes 100 calls a second from all callers
#: together. Unit: seconds.
LOOK_EACH_S = 1.0
#: Pause between two questions to the kubelet while its directory does not change: each
#: plugin makes a socket there and registers soon after. Unit: seconds.
CALM_LOOK_EACH_S = 15.0
#: Longest time from a new socket to the registration of its plugin. Unit: seconds.
REGISTERS_WITHIN_S = 30.0
#: Equal checks in a row that count; a list that is being sent is no evidence.
LOOKS = 3
#: The same while the kubelet has a list that this plugin sent earlier. The kubelet
#: reads no list before it has synced the previous one to its disk.
LATE_LOOKS = 60
#: How long the kubelet may take to notice that the predecessor's stream has ended.
#: Unit: seconds.
FORGETS_WITHIN_S = 1.0
_AGAIN_S = 0.1
_CONNECT_S = 0.5

#: (inode, mtime, ctime) of a file or folder; times in nanoseconds.
Identity = tuple[int, int, int]
#: Returns the ids of a resource that the kubelet may give out; None without answer.
AllocatableIds = Callable[[], Awaitable[frozenset[str] | None]]


class Doubt(Enum):
    """Difference between the kubelet's device ids and those that this plugin listed."""

    NONE = auto()
    FOREIGN = auto()  #: the kubelet has other devices than this plugin listed
    FORGOTTEN = auto()  #: the kubelet has none, although this plugin listed some


class Rivals:
    """Detector of other device plugins that serve the same resource as this plugin.

    The kubelet may not have read this plugin's last device list yet. So a difference
    between the kubelet's device ids and that list proves a rival only if LOOKS checks
    in a row find it, or LATE_LOOKS if the ids are those of an earlier list.
    """

    def __init__(
        self, socket: Path, *, resource: str, allocatable_ids: AllocatableIds
    ) -> None:
        """Construct the detector for one plugin; nothing is checked yet.

        Args:
            socket: Socket of the plugin, in the kubelet's device plugin directory.
            allocatable_ids: Asks the kubelet for the device ids of `resource`. Returns
                None if the kubelet does not answer.
        """
        self._socket = socket
        self._resource = resource
        self._allocatable_ids = allocatable_ids
        self._doubt = Doubt.NONE
        self._looks = 0
        #: whether the doubt has lasted for as many looks as it takes
        self._is_sure = False
        self._listed: frozenset[str] | None = None
        self._asked_at = float("-inf")
        self._folder: Identity | None = None
        self._changed_at = float("-inf")

    async def find_before_registration(self) -> str:
        """Return a sentence about another plugin of this resource; "" if there is none.

        Call this while this plugin is not registered. There is another plugin in two
        cases. First, a program accepts connections at this plugin's socket path.
        Second, the kubelet has device ids of the resource, and another socket that may
        serve the resource accepts connections.

        The kubelet may keep the ids of an ended plugin for FORGETS_WITHIN_S. So the
        second case counts only if the kubelet still has ids FORGETS_WITHIN_S after the
        beginning of this call.
        """
        self._doubt, self._looks, self._is_sure = Doubt.NONE, 0, False
        if await listens(self._socket):
            return f"another device plugin serves at our socket, {self._socket}"
        deadline = clock.loop_s() + FORGETS_WITHIN_S
        while await self._allocatable_ids():
            if clock.loop_s() > deadline:
                return await self._describe_listening()
            await asyncio.sleep(_AGAIN_S)
        return ""

    async def _describe_listening(self) -> str:
        others = [path for path in self._other_sockets() if await listens(path)]
        if not others:
            return ""
        sockets = ", ".join(path.name for path in others)
        return (
            f"another device plugin serves {self._resource}: the kubelet has its "
            f"devices (sockets beside ours: {sockets})"
        )

    async def find_while_registered(
        self,
        inode: int,
        listed_ids: frozenset[str] | None,
        earlier_ids: Collection[frozenset[str]] = (),
    ) -> str:
        """Return a sentence about another plugin of this resource; "" if there is none.

        Call this while this plugin is registered. There is another plugin in two cases.
        First, this plugin's socket file has been replaced. Second, in LOOKS checks in a
        row the kubelet has other device ids than this plugin listed, and another socket
        that may serve the resource accepts connections.

        Args:
            inode: Inode of this plugin's socket.
            listed_ids: Healthy ids of this plugin's last list; None: none was sent.
            earlier_ids: Healthy ids of each list before it, as far as they matter.
        """
        if inode_of(self._socket) not in (0, inode):
            return (
                "another device plugin has put its socket in the place of ours, "
                f"{self._socket}"
            )
        if self._is_calm():
            return ""
        doubt = await self._check_devices(listed_ids, earlier_ids)
        if doubt is Doubt.FOREIGN and await self._describe_listening():
            return (
                f"another device plugin serves {self._resource} too: the kubelet has "
                "other devices than we have listed"
            )
        return ""

    @property
    def is_forgotten(self) -> bool:
        """Whether the kubelet shows no device ids, although this plugin listed some.

        True only after several checks in a row with this result. It means that the
        kubelet has dropped this plugin, although this plugin's stream is still open.
        """
        return self._doubt is Doubt.FORGOTTEN and self._is_sure

    async def is_gone(self, inode: int) -> bool:
        """Whether no other plugin serves the resource of this plugin any more.

        False if another program has replaced this plugin's socket file and accepts
        connections there. Otherwise true if the kubelet has no device ids of the
        resource, or if no other socket that may serve it accepts connections.
        """
        is_replaced = inode_of(self._socket) not in (0, inode)
        if is_replaced and await listens(self._socket):
            return False
        if await self._allocatable_ids() == frozenset():
            return True
        return not [path for path in self._other_sockets() if await listens(path)]

    def _is_calm(self) -> bool:
        """Whether `find_while_registered` need not ask the kubelet for device ids."""
        now = clock.loop_s()
        folder = identity(self._socket.parent)
        if folder != self._folder:
            self._folder, self._changed_at = folder, now
        return (
            self._doubt is Doubt.NONE
            and now - self._changed_at > REGISTERS_WITHIN_S
            and now - self._asked_at < CALM_LOOK_EACH_S - clock.EARLY_S
        )

    async def _check_devices(
        self, listed_ids: frozenset[str] | None, earlier_ids: Collection[frozenset[str]]
    ) -> Doubt:
        """Compare the kubelet's present device ids with those that this plugin listed.

        Returns:
            The difference, once LOOKS calls in a row have found it for the same list;
            until then `Doubt.NONE`. LATE_LOOKS calls if the kubelet has earlier ids.
        """
        self._asked_at = clock.loop_s()
        allocatable_ids = await self._allocatable_ids()
        doubt = Doubt.NONE
        is_known = allocatable_ids is not None and listed_ids
        if is_known and allocatable_ids != listed_ids:
            doubt = Doubt.FOREIGN if allocatable_ids else Doubt.FORGOTTEN
        is_same = doubt is self._doubt and listed_ids == self._listed
        self._looks = self._looks + 1 if is_same else 1
        self._doubt, self._listed = doubt, listed_ids
        is_late = allocatable_ids in earlier_ids
        self._is_sure = self._looks >= (LATE_LOOKS if is_late else LOOKS)
        return doubt if self._is_sure else Doubt.NONE

    def _other_sockets(self) -> list[Path]:
        """Return the other plugins' sockets that may serve the same resource, sorted.

        The sockets are in the kubelet's directory. The kubelet's socket and sockets
        named after another resource are left out.
        """
        excluded = {self._socket.name, KUBELET_SOCKET}
        sockets = []
        with suppress(OSError):
            for path in sorted(self._socket.parent.iterdir()):
                is_known = path.suffix == ".sock" and _KNOWN_SOCKET.fullmatch(
                    f"{path.stem}-"
                )
                if path.name in excluded or is_known:
                    continue  # of another resource
                with suppress(OSError):
                    if stat.S_ISSOCK(path.stat().st_mode):
                        sockets.append(path)
        return sockets


def identity(path: Path) -> Identity | None:
    """Return the identity of a socket file or folder, or None if there is none.

    A file that a restarted program creates at the same path has another identity. A
    folder has another identity once a file is created in it.
    """
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_ctime_ns


def inode_of(path: Path) -> int:
    """Return the inode of a file; 0 if there is no file.

    An open socket keeps its inode, even when its file is removed. So a file with the
    inode of the agent's open socket is that socket.
    """
    inode, *_ = identity(path) or (0,)
    return inode


async def listens(path: Path) -> bool:
    """Whether a program accepts connections at a socket.

    Also true if connecting takes longer than _CONNECT_S. The program's queue of
    connections is then full.
    """
    try:
        async with asyncio.timeout(_CONNECT_S):
            _, writer = await asyncio.open_unix_connection(path)
    except TimeoutError:
        return True  # a program listens, and its queue of connections is full
    except OSError:
        return False
    writer.close()
    return True
