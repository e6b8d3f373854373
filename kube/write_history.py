"""History of the writes to one object: notice writes that do not last, and pause.

A webhook may change what a write sets: the answer then lacks it. Another controller may
change it after each write: the same text is then written again and again. Without
pauses, two such programs write as fast as the API server answers.
"""

import logging
from collections.abc import Mapping

from service import clock
from service.backoff import Backoff

log = logging.getLogger(__name__)

#: Longest pause: a webhook that drops a key does so on all nodes. Unit: seconds.
LONGEST_PAUSE_S = 60.0
#: A write that is undone later than this is repeated without a pause. Unit: seconds.
UNDONE_WITHIN_S = 300.0
#: Repeats without a pause: the watch may still show versions from before the write, or
#: a person may have edited the object.
FREE_REPEATS = 2


class WriteHistory:
    """Texts that the API server took for one object, and how often they came again."""

    def __init__(self, title: str) -> None:
        """Begin without a write.

        Args:
            title: Kind and name of the object, for the log.
        """
        self._title = title
        self._backoff = Backoff(cap_s=LONGEST_PAUSE_S)
        #: {key: text that was last written}
        self._texts: dict[str, str] = {}
        #: Loop time of the last write, in seconds.
        self._at_s = float("-inf")
        #: Number of writes in a row that repeated a text.
        self._repeats = 0

    def add(self, sent: Mapping[str, str], answer: Mapping[str, str]) -> float:
        """Add a write that the API server took; return the pause after it in seconds.

        The pause is 0 unless the write does not last. A pause is logged with the keys.

        Args:
            sent: {key: text} that the write set.
            answer: {key: text} of the object in the answer.
        """
        if clock.loop_s() - self._at_s > UNDONE_WITHIN_S:
            self._texts.clear()
            self._backoff.reset()
        self._at_s = clock.loop_s()
        lacking = [key for key, text in sent.items() if answer.get(key) != text]
        repeated = [key for key, text in sent.items() if self._texts.get(key) == text]
        self._texts.update(sent)
        self._repeats = self._repeats + 1 if repeated else 0
        if not lacking and not repeated:
            self._backoff.reset()
        if not lacking and self._repeats <= FREE_REPEATS:
            return 0.0
        pause_s = self._backoff.next_s()
        extra = {
            "object": self._title,
            "keys": ", ".join(sorted(lacking or repeated)),
            "retry_in_s": round(pause_s, 2),
        }
        if lacking:
            log.warning("write not kept by the API server", extra=extra)
        else:
            log.warning("write undone by another program", extra=extra)
        return pause_s
