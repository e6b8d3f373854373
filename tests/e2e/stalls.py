"""How long the machine has given us no time: then it gave the others none either."""

import threading
import time
from typing import Final

_PAUSE_S: Final = 0.02
#: A pause may be so much longer than asked for on any machine.
_LATE_S: Final = 0.03


class _Stalls(threading.Thread):
    """Sleeps, and sees how late it is woken. Protects the sum."""

    def __init__(self) -> None:
        super().__init__(name="stalls", daemon=True)
        self.sum_s = 0.0
        self._lock = threading.Lock()

    def run(self) -> None:
        while True:
            asked = time.monotonic()
            time.sleep(_PAUSE_S)
            self.sum_s += max(0.0, time.monotonic() - asked - _PAUSE_S - _LATE_S)

    def running(self) -> "_Stalls":
        """Begin, once."""
        with self._lock:
            if self.ident is None:
                self.start()
        return self


_STALLS: Final = _Stalls()


def stood_still_s() -> float:
    """How long all together, since somebody first asked; differences mean something."""
    return _STALLS.running().sum_s
