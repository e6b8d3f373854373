"""The call that the worker is making: a page mapped by worker and agent.

A hanging or crashed worker cannot report its call any more. So the worker notes each
call before making it, and the agent reads the note from the page.
"""

import mmap
import os
import struct
from dataclasses import dataclass

#: layout of the page: beats, card, device, name of the function
_NOTE = struct.Struct("<Qii48s")
#: layout of the first field alone
_BEATS = struct.Struct("<Q")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call: a function, and the chip that it is about."""

    function: str
    #: -1 for a function about no chip
    card: int = -1
    device: int = -1

    def __str__(self) -> str:
        """Return the text for people: the function, and the place of the chip."""
        if self.card < 0:
            return self.function
        return f"{self.function} (card {self.card}, device {self.device})"


class Progress:
    """The mapped page: the worker writes it, the agent reads it."""

    def __init__(self, descriptor: int) -> None:
        """Map the page of an open file; the file may be closed afterwards."""
        self._page = mmap.mmap(descriptor, mmap.PAGESIZE)
        #: value last written by this process
        self._beats = self.beats

    @staticmethod
    def create() -> int:
        """Return the descriptor of a new nameless file of one page."""
        descriptor = os.memfd_create("dcmi-progress")
        os.ftruncate(descriptor, mmap.PAGESIZE)
        return descriptor

    @property
    def beats(self) -> int:
        """Number of calls begun plus calls ended; odd within one."""
        return int(_BEATS.unpack_from(self._page)[0])

    @property
    def call(self) -> Call | None:
        """The call under way; None between two."""
        beats, card, device, name = _NOTE.unpack_from(self._page)
        if not beats % 2:
            return None
        return Call(
            function=name.rstrip(b"\0").decode(errors="replace"),
            card=card,
            device=device,
        )

    def begin(self, call: Call) -> None:
        """Note a call that is about to be made."""
        name = call.function.encode()
        self._beats += 1
        _NOTE.pack_into(self._page, 0, self._beats, call.card, call.device, name)

    def end(self) -> None:
        """Note that the call has returned."""
        self._beats += 1
        _BEATS.pack_into(self._page, 0, self._beats)

    def beat(self) -> None:
        """Note that the worker is alive although it had no call to make."""
        self._beats += 2
        _BEATS.pack_into(self._page, 0, self._beats)

    def close(self) -> None:
        """Unmap the page."""
        self._page.close()
