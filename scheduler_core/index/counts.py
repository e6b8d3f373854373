"""Censuses: nodes of each leaf switch or SuperPoD that can take a pod, kept current.

A *site* is a leaf or a SuperPoD; a *slot* is a position with a node that can take the
pod. A census groups sites by their number of slots. A job that needs a few sites then
reads only those.

Sets of sites and of positions are bit masks, as sets of chips are.
"""

from collections.abc import Iterable, Iterator, Mapping

from scheduler_core.products.columns import Product

#: [site][position] = name of the node; "" for none
Groups = tuple[tuple[str, ...], ...]
#: (resource or row, chips of the pod, whether its job has several pods)
Question = tuple[Product | str, int, bool]

#: number of `Groups` that an index follows: leaves, SuperPoDs, and the previous ones
_SITES = 4
#: number of questions that it follows for each; each costs every update a look-up
_QUESTIONS = 16


class Sites:
    """Site and position of each node; immutable.

    A node that is named twice has the first of its places.

    Cost:
        To create: one step for each node.
    """

    __slots__ = ("_place_of", "groups", "width")

    def __init__(self, groups: Groups) -> None:
        self.groups = groups
        #: largest number of positions of a site
        self.width = max(map(len, groups), default=0)
        #: {node: site * width + position}
        self._place_of: dict[str, int] = {}
        for site in range(len(groups) - 1, -1, -1):
            nodes, first = groups[site], site * self.width
            for position in range(len(nodes) - 1, -1, -1):
                self._place_of[nodes[position]] = first + position
        self._place_of.pop("", None)

    def __len__(self) -> int:
        """Return the number of sites."""
        return len(self.groups)

    def count(self, nodes: Iterable[str]) -> int:
        """Return how many of these nodes have a place.

        Args:
            nodes: Names, each once.
        """
        return sum(map(self._place_of.__contains__, nodes))

    def place(self, node: str) -> tuple[int, int] | None:
        """Return site and position of a node; None when it has no place."""
        place = self._place_of.get(node)
        return None if place is None else divmod(place, self.width)


class Census:
    """Slots of every site: positions of the nodes that can take one pod of a count.

    Invariant: `columns` and `levels` follow from `slots`.
    """

    __slots__ = ("columns", "count", "levels", "sites", "slots")

    def __init__(self, sites: Sites, count: int, able: Iterable[str]) -> None:
        """Count the nodes that can take a pod.

        Args:
            sites: Places of the nodes.
            count: Chips of the pod.
            able: Names of the nodes that can take the pod; nodes without a place are
                ignored.
        """
        self.sites = sites
        self.count = count
        #: [site] = mask of the positions of its slots
        self.slots = [0] * len(sites)
        for node in able:
            place = sites.place(node)
            if place is not None:
                self.slots[place[0]] |= 1 << place[1]
        #: [number of slots] = mask of the sites with that number
        self.levels = [0] * (sites.width + 1)
        #: [position] = mask of the sites with a slot there
        self.columns = [0] * sites.width
        for site, slots in enumerate(self.slots):
            self.levels[slots.bit_count()] |= 1 << site
            for position in set_bits(slots):
                self.columns[position] |= 1 << site

    def copy(self) -> "Census":
        """Return a census that may be marked without a change of this one.

        Cost:
            A step for each site.
        """
        census = Census.__new__(Census)
        census.sites, census.count = self.sites, self.count
        census.slots = self.slots.copy()
        census.levels = self.levels.copy()
        census.columns = self.columns.copy()
        return census

    @property
    def total(self) -> int:
        """Number of slots of all sites."""
        return sum(map(int.bit_count, self.slots))

    def mark(self, node: str, *, able: bool) -> None:
        """Record whether a node can take a pod now."""
        place = self.sites.place(node)
        if place is None:
            return
        site, position = place
        before = self.slots[site]
        if (before >> position & 1) == able:
            return
        self.slots[site] = after = before ^ 1 << position
        site_bit = 1 << site
        self.columns[position] ^= site_bit
        self.levels[before.bit_count()] ^= site_bit
        self.levels[after.bit_count()] ^= site_bit


class Censuses:
    """Cache of the censuses that an index keeps current.

    A census is created from all nodes at its first query. Later queries for other
    sites or questions evict it.
    """

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        #: (sites, {question: census}); the most recently queried sites are last
        self._entries: list[tuple[Sites, dict[Question, Census]]] = []

    def __iter__(self) -> Iterator[tuple[Question, Census]]:
        """Yield all questions with their censuses."""
        return (item for _, censuses in self._entries for item in censuses.items())

    def get(self, groups: Groups) -> tuple[Sites, Mapping[Question, Census]]:
        """Return the sites for `groups`, and their censuses; create the sites once."""
        # Equal groups are mostly the same object, so the comparison is fast.
        for index, (sites, censuses) in enumerate(self._entries):
            if sites.groups == groups:
                self._entries.append(self._entries.pop(index))
                return sites, censuses
        sites = Sites(groups)
        self._entries.append((sites, {}))
        del self._entries[:-_SITES]
        return sites, {}

    def add(self, question: Question, census: Census) -> None:
        """Add a census of the sites of the last `get`."""
        censuses = self._entries[-1][1]
        censuses[question] = census
        if len(censuses) > _QUESTIONS:
            del censuses[next(iter(censuses))]

    def clear(self) -> None:
        """Remove all censuses."""
        self._entries.clear()


def set_bits(mask: int) -> Iterator[int]:
    """Yield the numbers of the set bits of a mask, ascending."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def nth_bit(mask: int, index: int) -> int:
    """Return the number of the set bit with `index` set bits below it.

    Args:
        mask: Must have more than `index` set bits.
        index: From 0.
    """
    first, width = 0, mask.bit_length()
    while width > 1:
        half = width // 2
        lower = mask & (1 << half) - 1
        if index < lower.bit_count():
            mask, width = lower, half
        else:
            index -= lower.bit_count()
            mask, width, first = mask >> half, width - half, first + half
    return first
