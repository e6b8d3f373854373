"""How many nodes of each leaf switch or SuperPoD can take a pod, without counting.

A *site* is what nodes are joined by: a leaf, or a SuperPoD. Of each site a census
knows which positions can take a pod, and it keeps the sites by how many of these
slots they have, so that a job that asks for a few sites looks at a few.

Sets of sites and of positions are bit masks, as sets of chips are.
"""

from collections.abc import Iterable, Iterator, Mapping

from scheduler_core.products.columns import Product

#: {site: the nodes at its positions}; "" where there is none
Groups = tuple[tuple[str, ...], ...]
#: what was wanted, how many chips of it, and whether by a job of several pods
Asked = tuple[Product | str, int, bool]

#: descriptions of sites that an index follows: leaves, SuperPoDs, and the ones before
_SITES = 4
#: questions that are followed of each; each costs every update a look-up
_QUESTIONS = 16


class Sites:
    """Where nodes lie. Does not change; made from its groups, in a step for each node.

    A node that is named twice lies where it is named first.
    """

    __slots__ = ("_place_of", "groups", "width")

    def __init__(self, groups: Groups) -> None:
        """Work out each node's place."""
        self.groups = groups
        #: positions of a site, at most
        self.width = max(map(len, groups), default=0)
        #: {node: site and position as one number}
        self._place_of: dict[str, int] = {}
        for site in range(len(groups) - 1, -1, -1):
            nodes, first = groups[site], site * self.width
            for position in range(len(nodes) - 1, -1, -1):
                self._place_of[nodes[position]] = first + position
        self._place_of.pop("", None)

    def __len__(self) -> int:
        """How many sites there are."""
        return len(self.groups)

    def count(self, nodes: Iterable[str]) -> int:
        """How many of these nodes, each named once, lie somewhere."""
        return sum(map(self._place_of.__contains__, nodes))

    def place(self, node: str) -> tuple[int, int] | None:
        """Site and position of a node; None when it is nowhere."""
        place = self._place_of.get(node)
        return None if place is None else divmod(place, self.width)


class Census:
    """The slots of every site: its nodes that can take one pod of some count.

    Invariant: `columns` and `levels` say of the sites what `slots` says.
    """

    __slots__ = ("columns", "count", "levels", "sites", "slots")

    def __init__(self, sites: Sites, count: int, able: Iterable[str]) -> None:
        """Count the nodes that are able to take a pod.

        Args:
            sites: Where nodes lie.
            count: Chips of the pod.
            able: Those that can; nodes that lie nowhere do not matter.
        """
        self.sites = sites
        self.count = count
        #: by site: its slots, as a mask of positions
        self.slots = [0] * len(sites)
        for node in able:
            place = sites.place(node)
            if place is not None:
                self.slots[place[0]] |= 1 << place[1]
        #: by number of slots: the sites that have so many
        self.levels = [0] * (sites.width + 1)
        #: by position: the sites that have a slot there
        self.columns = [0] * sites.width
        for site, slots in enumerate(self.slots):
            self.levels[slots.bit_count()] |= 1 << site
            for position in ones(slots):
                self.columns[position] |= 1 << site

    @property
    def total(self) -> int:
        """Slots of all sites."""
        return sum(map(int.bit_count, self.slots))

    def mark(self, node: str, *, able: bool) -> None:
        """Take in whether a node can take a pod now."""
        place = self.sites.place(node)
        if place is None:
            return
        site, position = place
        before = self.slots[site]
        if (before >> position & 1) == able:
            return
        self.slots[site] = after = before ^ 1 << position
        here = 1 << site
        self.columns[position] ^= here
        self.levels[before.bit_count()] ^= here
        self.levels[after.bit_count()] ^= here


class Censuses:
    """The censuses that an index keeps up to date.

    They are made when they are asked for first, from all nodes, and forgotten when
    others have been asked for since.
    """

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        """Begin with none."""
        #: {sites by their groups: {question: census}}; asked last, last
        self._kept: list[tuple[Sites, dict[Asked, Census]]] = []

    def __iter__(self) -> Iterator[tuple[Asked, Census]]:
        """All questions and censuses."""
        return (item for _, kept in self._kept for item in kept.items())

    def of(self, groups: Groups) -> tuple[Sites, Mapping[Asked, Census]]:
        """These sites, and the censuses of them."""
        # Of equal groups most are the same object, so that they are soon compared.
        for index, (sites, kept) in enumerate(self._kept):
            if sites.groups == groups:
                self._kept.append(self._kept.pop(index))
                return sites, kept
        sites = Sites(groups)
        self._kept.append((sites, {}))
        del self._kept[:-_SITES]
        return sites, {}

    def keep(self, question: Asked, census: Census) -> None:
        """Keep one more, of the sites that were asked for last."""
        kept = self._kept[-1][1]
        kept[question] = census
        if len(kept) > _QUESTIONS:
            del kept[next(iter(kept))]

    def clear(self) -> None:
        """Forget all."""
        self._kept.clear()


def ones(mask: int) -> Iterator[int]:
    """The members of a set that is a mask, ascending."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def nth(mask: int, index: int) -> int:
    """The member of a set that is a mask that has `index` smaller ones; it must."""
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
