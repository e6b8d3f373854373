"""Names of nodes in order, cheap to change and to begin at the first.

Blocks of sorted lists: adding and removing moves a few kilobytes at most, whatever
the size. A heap with lazy deletion is as fast on average, but pays its debts in one
call, and cannot be walked in order past names that are to be avoided.
"""

from bisect import bisect_left, insort
from collections.abc import Container, Iterator

#: names of a block at most; half of it after a split
_BLOCK = 1024


class SortedNames:
    """A set of names, iterated in ascending order.

    Invariant: no block is empty, `_lasts[i]` is the last name of `_blocks[i]`, and
    the blocks one after the other are sorted.
    """

    __slots__ = ("_blocks", "_lasts")

    def __init__(self) -> None:
        """Begin empty."""
        self._blocks: list[list[str]] = []
        self._lasts: list[str] = []

    def add(self, name: str) -> None:
        """Take in a name that is not in yet."""
        if not self._blocks:
            self._blocks.append([name])
            self._lasts.append(name)
            return
        at = bisect_left(self._lasts, name)
        if at == len(self._lasts):
            at -= 1
        block = self._blocks[at]
        insort(block, name)
        if len(block) > _BLOCK:
            self._blocks.insert(at, block[: _BLOCK // 2])
            self._lasts.insert(at, block[_BLOCK // 2 - 1])
            del block[: _BLOCK // 2]
            at += 1
        self._lasts[at] = block[-1]

    def remove(self, name: str) -> None:
        """Let go of a name that is in."""
        at = bisect_left(self._lasts, name)
        block = self._blocks[at]
        del block[bisect_left(block, name)]
        if block:
            self._lasts[at] = block[-1]
        else:
            del self._blocks[at]
            del self._lasts[at]

    def first(self, avoid: Container[str] = ()) -> str | None:
        """The smallest name outside `avoid`, or None."""
        if self._blocks and (name := self._blocks[0][0]) not in avoid:
            return name
        return next((name for name in self if name not in avoid), None)

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self._blocks)

    def __len__(self) -> int:
        """How many there are. Cost: O(blocks)."""
        return sum(map(len, self._blocks))

    def __iter__(self) -> Iterator[str]:
        """All names, ascending. The set must not change meanwhile."""
        for block in self._blocks:
            yield from block
