"""Wait until a file may have been edited: told by the kernel, where it tells.

inotify tells of what this kernel does to a file, and not of what another machine does
to a file that is shared over a network; and a node can have run out of what it needs.
So what it says is never the only sign: whoever waits also looks, now and then.
"""

import ctypes
import os
import select
from pathlib import Path

#: <sys/inotify.h>: IN_CLOSE_WRITE and IN_MOVED_TO. An edit that has ended: what is
#: being written is half a file.
_EDITED = 0x008 | 0x080
#: Far more than come between two looks; what does not fit wakes us again.
_READ_BYTES = 1 << 14


class Edits:
    """Protects the descriptors by which one thread waits for edits of a file.

    Only that thread calls `tell` and `wait`; anybody may `end`.
    """

    def __init__(self, path: Path) -> None:
        """Ask the kernel for nothing yet.

        Args:
            path: The file. It may be absent, a link, or replaced by renaming.
        """
        self._watched = [os.fsencode(path.parent), os.fsencode(path)]
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._ended = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._told = self._libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        self._ready = select.poll()
        self._ready.register(self._ended, select.POLLIN)
        if self._told >= 0:
            self._ready.register(self._told, select.POLLIN)

    def __del__(self) -> None:
        """Let go of the descriptors: nobody waits any more."""
        for descriptor in (self._ended, self._told):
            if descriptor >= 0:
                os.close(descriptor)

    def tell(self) -> bool:
        """Have edits from now on end a `wait`; return whether they will.

        Both folder and file are watched: one sees what is renamed into place, the
        other what is written to where a link leads.
        """
        if self._told < 0:
            return False
        # asked for again each time, because the file may be another: this costs
        # nothing when it is the same
        found = [
            self._libc.inotify_add_watch(self._told, each, _EDITED)
            for each in self._watched
        ]
        return all(watch >= 0 for watch in found)

    def wait(self, for_s: float) -> bool:
        """Wait for an edit, but no longer than so; return False after the end."""
        ready = [descriptor for descriptor, _ in self._ready.poll(for_s * 1000)]
        if self._told in ready:
            os.read(self._told, _READ_BYTES)
        return self._ended not in ready

    def end(self) -> None:
        """Let nobody wait any more."""
        os.eventfd_write(self._ended, 1)
