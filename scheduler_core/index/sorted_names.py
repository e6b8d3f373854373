"""Sorted set of node names with cheap insertion, removal and first element.

The names are in sorted blocks, so a change moves a few kilobytes at most. A heap with
lazy deletion is as fast on average, but one call pays for many deletions. It also
cannot be walked in order past names to avoid.
"""

from bisect import bisect_left, insort
from collections.abc import Container, Iterator, Sequence

#: largest number of names in a block; a split leaves half of it
_BLOCK = 1024
#: Share of a set below which a change of each name costs less than to sort all.
_FEW = 1 / 32


class SortedNames:
    """A set of names, iterated in ascending order.

    Invariant: no block is empty, `_lasts[i]` is the last name of `_blocks[i]`, and
    the blocks one after the other are sorted.
    """

    __slots__ = ("_blocks", "_lasts")

    def __init__(self) -> None:
        self._blocks: list[list[str]] = []
        self._lasts: list[str] = []

    def add(self, name: str) -> None:
        """Add a name that is not in the set."""
        if not self._blocks:
            self._blocks.append([name])
            self._lasts.append(name)
            return
        index = bisect_left(self._lasts, name)
        if index == len(self._lasts):
            index -= 1
        block = self._blocks[index]
        insort(block, name)
        if len(block) > _BLOCK:
            self._blocks.insert(index, block[: _BLOCK // 2])
            self._lasts.insert(index, block[_BLOCK // 2 - 1])
            del block[: _BLOCK // 2]
            index += 1
        self._lasts[index] = block[-1]

    def remove(self, name: str) -> None:
        """Remove a name that is in the set."""
        index = bisect_left(self._lasts, name)
        block = self._blocks[index]
        del block[bisect_left(block, name)]
        if block:
            self._lasts[index] = block[-1]
        else:
            del self._blocks[index]
            del self._lasts[index]

    def add_all(self, names: Sequence[str]) -> None:
        """Add names that are not in the set, each once, in any order."""
        if len(names) < len(self) * _FEW:
            for name in names:
                self.add(name)
        else:
            self._fill(sorted([*self, *names]))

    def remove_all(self, names: Sequence[str]) -> None:
        """Remove names that are in the set, each once, in any order."""
        if len(names) < len(self) * _FEW:
            for name in names:
                self.remove(name)
        else:
            removed = frozenset(names)
            self._fill([name for name in self if name not in removed])

    def _fill(self, names: list[str]) -> None:
        """Let these sorted names be the set."""
        starts = range(0, len(names), _BLOCK)
        self._blocks = [names[start : start + _BLOCK] for start in starts]
        self._lasts = [block[-1] for block in self._blocks]

    def first(self, avoid: Container[str] = ()) -> str | None:
        """Return the smallest name outside `avoid`, or None."""
        if self._blocks and (name := self._blocks[0][0]) not in avoid:
            return name
        return next((name for name in self if name not in avoid), None)

    def among(self, names: frozenset[str]) -> set[str]:
        """Return the names of the set that are in `names` too."""
        return {name for block in self._blocks for name in names.intersection(block)}

    def __bool__(self) -> bool:
        """Return whether the set has names."""
        return bool(self._blocks)

    def __len__(self) -> int:
        """Return the number of names. Cost: O(blocks)."""
        return sum(map(len, self._blocks))

    def __iter__(self) -> Iterator[str]:
        """Yield all names, ascending; the set must not change meanwhile."""
        for block in self._blocks:
            yield from block
