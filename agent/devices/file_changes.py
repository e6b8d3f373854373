"""Wait until a file may have been edited; the kernel reports edits through inotify.

inotify reports what this kernel does to a file. It does not report what another machine
does to a file on a shared network volume. A node can also have run out of inotify
watches. So inotify is never the only sign: callers also check the file at intervals.
"""

import ctypes
import os
import select
from pathlib import Path

#: <sys/inotify.h>: IN_CLOSE_WRITE and IN_MOVED_TO. Both mark the end of an edit: a
#: file that is being written is half a file.
_EDITED = 0x008 | 0x080
#: Size of one read of events, far more than come between two waits; the rest of them
#: wakes the thread again. Unit: bytes.
_READ_BYTES = 1 << 14


class FileWatch:
    """Inotify watch of one file, for one thread that waits for edits until `stop`.

    Only the waiting thread calls `arm` and `wait`; any thread may call `stop` and
    `wake`.
    """

    def __init__(self, path: Path) -> None:
        """Open the inotify descriptor; nothing is watched until `arm`.

        Args:
            path: The file to watch. It may be absent or a link. Another file may be
                renamed to this path.
        """
        self._watched_paths = [os.fsencode(path.parent), os.fsencode(path)]
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._stop_event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._notifier = self._libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        self._poll = select.poll()
        self._poll.register(self._stop_event, select.POLLIN)
        self._wake_event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll.register(self._wake_event, select.POLLIN)
        if self._notifier >= 0:
            self._poll.register(self._notifier, select.POLLIN)

    def __del__(self) -> None:
        """Close the descriptor of inotify, and the one that `stop` uses."""
        for descriptor in (self._stop_event, self._wake_event, self._notifier):
            if descriptor >= 0:
                os.close(descriptor)

    def arm(self) -> bool:
        """Watch the file and its folder, so that a later edit ends `wait`.

        The watch of the folder reports that another file was renamed to the path. If
        the path is a link, the watch of the file reports writes to the link's target.

        Returns:
            Whether the kernel watches both the file and its folder.
        """
        if self._notifier < 0:
            return False
        # requested each time, because the file may be another one: this costs nothing
        # when it is the same
        watches = [
            self._libc.inotify_add_watch(self._notifier, path, _EDITED)
            for path in self._watched_paths
        ]
        return all(watch >= 0 for watch in watches)

    def wait(self, for_s: float) -> bool:
        """Wait up to `for_s` until the file may have been edited or `stop` is called.

        An event of another file in the folder can also end the wait.

        Args:
            for_s: Longest wait. Unit: seconds.

        Returns:
            False if `stop` was called; otherwise True, even if no edit was reported.
        """
        ready = [descriptor for descriptor, _ in self._poll.poll(for_s * 1000)]
        if self._notifier in ready:
            os.read(self._notifier, _READ_BYTES)
        if self._wake_event in ready:
            os.eventfd_read(self._wake_event)
        return self._stop_event not in ready

    def wake(self) -> None:
        """Make a running `wait`, or the next one, return True at once."""
        os.eventfd_write(self._wake_event, 1)

    def stop(self) -> None:
        """Make a running `wait` and all later ones return False at once."""
        os.eventfd_write(self._stop_event, 1)
