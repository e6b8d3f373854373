"""Shared memory page in which the worker process shows the agent its libdcmi call.

After a hang or crash, the worker cannot report which call it was in. So the worker
writes each call into the page before making the call. The agent maps the same page.
"""

import mmap
import os
import struct
from dataclasses import dataclass, replace

#: layout of the page: beats, card, device, name of the function
_NOTE = struct.Struct("<Qii48s")
#: layout of the first field alone
_BEATS = struct.Struct("<Q")
#: layout of what is behind the note: `Progress.look_s`, or 0.0
_LOOK = struct.Struct("<d")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """Name of a C function of libdcmi, and the chip that the call is about, if any."""

    function: str
    #: -1 for a function about no chip
    card: int = -1
    device: int = -1

    def __str__(self) -> str:
        """Return the name of the function with card and device, as text for people.

        If the call is about no chip, the text is the name of the function alone.
        """
        if self.card < 0:
            return self.function
        return f"{self.function} (card {self.card}, device {self.device})"

    @property
    def any_of_chip(self) -> "Call":
        """Any call about the same chip: a call without a function.

        The call itself if it is about no chip.
        """
        return replace(self, function="") if self.card >= 0 else self


class Progress:
    """Memory page that shows the libdcmi call under way; the worker process writes it.

    The agent maps the same page and reads it.
    """

    def __init__(self, descriptor: int) -> None:
        """Map the page of an open file; `descriptor` may be closed afterwards."""
        self._page = mmap.mmap(descriptor, mmap.PAGESIZE)
        #: value last written by this process
        self._beats = self.beats

    @staticmethod
    def create() -> int:
        """Create an in-memory file of one page, and return its descriptor."""
        descriptor = os.memfd_create("dcmi-progress")
        os.ftruncate(descriptor, mmap.PAGESIZE)
        return descriptor

    @property
    def beats(self) -> int:
        """Counter that the worker process raises as a sign of life; odd during a call.

        The counter rises by 1 at the start and at the end of each call of libdcmi. It
        rises by 2 at each call of `beat`.
        """
        return int(_BEATS.unpack_from(self._page)[0])

    @property
    def call(self) -> Call | None:
        """The call under way in the worker process; None if there is none now."""
        beats, card, device, name = _NOTE.unpack_from(self._page)
        if not beats % 2:
            return None
        return Call(
            function=name.rstrip(b"\0").decode(errors="replace"),
            card=card,
            device=device,
        )

    @property
    def look_s(self) -> float | None:
        """Since when it is not known whether what was sent is the state of the chips.

        None while the process rests: then it is. Unit: seconds of the monotonic clock.
        """
        return float(_LOOK.unpack_from(self._page, _NOTE.size)[0]) or None

    def begin_look(self, now_s: float) -> None:
        """Show that a look at the chips has begun, and that what is sent was so then.

        The look lasts until the process rests: the next `beat`.
        """
        _LOOK.pack_into(self._page, _NOTE.size, max(now_s, self.look_s or 0.0))

    def begin(self, call: Call) -> None:
        """Show in this memory page that the worker process now makes `call`."""
        name = call.function.encode()
        self._beats += 1
        _NOTE.pack_into(self._page, 0, self._beats, call.card, call.device, name)

    def end(self) -> None:
        """Show in this memory page that the worker process's call has returned."""
        self._beats += 1
        _BEATS.pack_into(self._page, 0, self._beats)

    def beat(self) -> None:
        """Raise `beats` by 2, as a sign of life of a worker process that rests.

        A step of 2 keeps it even; an odd number means that a call runs.
        """
        self._beats += 2
        _BEATS.pack_into(self._page, 0, self._beats)
        _LOOK.pack_into(self._page, _NOTE.size, 0.0)

    def close(self) -> None:
        """Unmap this memory page in the calling process."""
        self._page.close()
