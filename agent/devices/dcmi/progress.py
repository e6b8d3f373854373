"""Which call the worker is in: a page that worker and agent both have mapped.

A worker that hangs or has crashed can no longer say where. So it notes each call
before it makes it, and the agent reads the note without asking anybody.
"""

import mmap
import os
import struct
from dataclasses import dataclass

#: beats, card, device, name of the function
_NOTE = struct.Struct("<Qii48s")
#: The first of them alone.
_BEATS = struct.Struct("<Q")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One function, and the chip that it is asked about."""

    function: str
    #: -1 of a function that is about no chip
    card: int = -1
    device: int = -1

    def __str__(self) -> str:
        """What a person reads: the function, and where the chip sits."""
        if self.card < 0:
            return self.function
        return f"{self.function} (card {self.card}, device {self.device})"


class Progress:
    """Protects the page. The worker writes it, the agent reads it."""

    def __init__(self, descriptor: int) -> None:
        """Map the page of an open file; the file may be closed afterwards."""
        self._page = mmap.mmap(descriptor, mmap.PAGESIZE)
        #: As last written from here.
        self._beats = self.beats

    @staticmethod
    def create() -> int:
        """Make a file of one page that no name leads to; return its descriptor."""
        descriptor = os.memfd_create("dcmi-progress")
        os.ftruncate(descriptor, mmap.PAGESIZE)
        return descriptor

    @property
    def beats(self) -> int:
        """How many calls were begun and ended so far: odd within one."""
        return int(_BEATS.unpack_from(self._page)[0])

    @property
    def call(self) -> Call | None:
        """The call that is under way; None between two."""
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
        """Note that it has come back."""
        self._beats += 1
        _BEATS.pack_into(self._page, 0, self._beats)

    def beat(self) -> None:
        """Note that all is well, though there was nothing to call."""
        self._beats += 2
        _BEATS.pack_into(self._page, 0, self._beats)

    def close(self) -> None:
        """Let go of the page."""
        self._page.close()
