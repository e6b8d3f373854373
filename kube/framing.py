"""Lines of a byte stream: a watch's events arrive split, joined and very large."""

from kube.errors import MalformedError

#: etcd takes objects up to 1.5 MB; as JSON, with the old object, a few times that.
LONGEST_LINE_BYTES = 32 << 20


class LineSplitter:
    """Bounded buffer for the beginning of a line whose end has not arrived.

    Cost:
        Each byte is looked at once, however many chunks a line comes in.
    """

    def __init__(self, longest_bytes: int = LONGEST_LINE_BYTES) -> None:
        """Start at the beginning of a line.

        Args:
            longest_bytes: Longest line, without its end.
        """
        self._longest_bytes = longest_bytes
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that a chunk completes, without their ends.

        Args:
            chunk: Any bytes. Empty lines are omitted.

        Raises:
            MalformedError: A line is too long.
        """
        head, *tail = chunk.split(b"\n")
        self._push(head)
        lines: list[bytes] = []
        for part in tail:
            lines.append(b"".join(self._parts))
            self._parts, self._size = [], 0
            self._push(part)
        return [line for line in lines if line.strip()]

    def _push(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self._longest_bytes:
            raise MalformedError(f"a line of more than {self._longest_bytes} bytes")
        if part:
            self._parts.append(part)
