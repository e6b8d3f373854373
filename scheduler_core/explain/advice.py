"""What would unblock a pod or a job that has no place.

An advice is a set of parts, each one thing that somebody can do, and it checks itself:
with all parts there is a place, and without any one of them there is none. Chips that
become free or healthy come first; then nodes that are out of use as a whole; nodes to
be added are the last resort, and as few of them as can be.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import chain, islice
from itertools import count as count_from

from scheduler_core.index.cluster import Cluster
from scheduler_core.node.chip_mask import ids_of
from scheduler_core.node.decision import Placement, Rejection
from scheduler_core.node.soonest_free import Tiers, nearest
from scheduler_core.node.state import NodeState
from scheduler_core.placement.job import COMMON, Terms, place_job
from scheduler_core.placement.job_rules import Job, problems
from scheduler_core.placement.pod import place
from scheduler_core.preemption.relaxations import (
    Add,
    Advice,
    Asked,
    Free,
    Heal,
    HealNetwork,
    Mend,
    Part,
    Settle,
    Trial,
)
from scheduler_core.products import table
from scheduler_core.products.columns import JobRule, Product

#: parts that only help together, for one pod on one node
_Wish = tuple[Part, ...]
#: how much trouble a wish is: nodes out of use, parts, chips to be healed
_Trouble = tuple[int, int, int]


def for_pod(
    wanted: Product | str,
    count: int,
    cluster: Cluster,
    *,
    names: Iterable[str] | None = None,
    avoid: Container[str] = (),
    in_network: bool = False,
) -> Advice | None:
    """What would make `pod.place` find a place; arguments as for that.

    On the node where the fewest parts do, of equals where fewer chips are to be healed.

    Returns:
        None when there is a place already, and when nothing helps: no node that there
        could be gives a pod so many chips.

    Cost:
        Some microseconds for each node, to copy it; more for those that lack few chips.
    """
    trial = Trial(wanted, cluster, names, avoid)

    def serves(trial: Trial) -> bool:
        answer = place(
            wanted,
            count,
            trial.cluster,
            names=trial.names,
            avoid=trial.avoid,
            in_network=in_network,
        )
        return not isinstance(answer, Rejection)

    row = _row_to_add(wanted, count, cluster)
    added = [] if row is None else _added(row, cluster, 1)
    wishes = _wishes(wanted, (count,), trial, in_network=in_network)
    return _least(chain(wishes, added), trial, serves)


def for_job(
    job: Job,
    cluster: Cluster,
    *,
    terms: Terms = COMMON,
    names: Iterable[str] | None = None,
    places: Mapping[str, Placement] | None = None,
) -> Advice | None:
    """What would make `job.place_job` find places; arguments as for that.

    Where leaf switches or SuperPoDs decide, nodes to be added are never advised, since
    it is not known where they would hang.

    Returns:
        None when there is a place already, when something is wrong with the job
        itself, and when nothing helps.

    Cost:
        One planning of the job for each part, and a few more: tens of milliseconds for
        a few pods, seconds for hundreds of pods that all lack chips.
    """
    row, pods = job.row, sorted((pod.chips for pod in job.npu_pods), reverse=True)
    if row is None or problems(job, terms.profile):
        return None
    trial = Trial(row, cluster, names, ())
    in_network = len(pods) > 1

    def serves(trial: Trial) -> bool:
        answer = place_job(
            job, trial.cluster, terms=terms, names=trial.names, places=places
        )
        return not isinstance(answer, Rejection)

    in_superpods = in_network and row.job_rule is JobRule.SUPERPOD
    anywhere = terms.schema is None and not in_superpods
    added = _added(row, cluster, len(pods)) if anywhere else []
    wishes = _wishes(row, pods, trial, in_network=in_network)
    return _least(chain(wishes, added), trial, serves)


def _least(wishes: Iterator[_Wish], trial: Trial, serves: Asked) -> Advice | None:
    """The first wishes that do, without any part that is not needed."""
    known: list[_Wish] = []

    def helps(number: int) -> bool:
        known.extend(islice(wishes, max(number - len(known), 0)))
        return trial.holds(tuple(chain.from_iterable(known[:number])), serves)

    if helps(0):
        return None
    low, high = 0, 1
    while not helps(high):
        if len(known) < high:
            return None
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if helps(middle) else (middle, high)
    return Advice(
        parts=_needed(tuple(chain.from_iterable(known[:high])), trial, serves)
    )


def _needed(parts: _Wish, trial: Trial, serves: Asked) -> _Wish:
    """Of parts that do, those that cannot be left out; the last are dropped first."""
    before: _Wish = ()
    while parts != before:  # once more where rules over the job are not monotone
        before = parts
        for part in reversed(before):
            rest = tuple(each for each in parts if each != part)
            if trial.holds(rest, serves):
                parts = rest
    return parts


def _wishes(
    wanted: Product | str, pods: Sequence[int], trial: Trial, *, in_network: bool
) -> Iterator[_Wish]:
    """What each node would need for one pod, one more …; the least trouble first.

    A node is looked at only when it may be the next: the chips that it lacks say how
    little its trouble can be.
    """
    queue: list[tuple[_Trouble, str, Iterator[_Wish], _Wish]] = []
    for node in trial.nodes():
        row = node.row_for(wanted, in_network=in_network)
        if row is None:
            continue
        first: _Wish = (Settle(node=node.name),) if node.name in trial.avoid else ()
        if node.barred:
            first = (*first, Mend(node=node.name, bar=node.barred))
        mended, parts, _ = _trouble(first)
        lacking = max(min(pods, default=0) - node.free_for(row).bit_count(), 0)
        least = mended, parts + lacking, 0
        queue.append((least, node.name, _of_node(node, row, pods, first), ()))
    heapify(queue)
    while queue:
        trouble, name, others, wish = heappop(queue)
        if wish:
            yield wish
        for one in others:
            heappush(queue, (max(trouble, _trouble(one)), name, others, one))
            break


def _trouble(wish: _Wish) -> _Trouble:
    mended = sum(isinstance(part, Mend) for part in wish)
    healed = sum(isinstance(part, Heal | HealNetwork) for part in wish)
    return mended, len(wish), healed


def _of_node(
    node: NodeState, row: Product, pods: Sequence[int], first: _Wish
) -> Iterator[_Wish]:
    """What is to be done on a node for one pod after the other; `first` comes first."""
    watched = row.for_distributed and row.network_health
    bad = node.inventory & node.network_unhealthy if watched else 0
    short = node.inventory & ~node.free
    tiers = _by_number_of_parts(node.inventory, short, node.taken & ~node.healthy, bad)
    for count in pods:
        chosen = nearest(row, tiers, count)
        if chosen:
            yield (*first, *_parts(node, chosen & short, chosen & bad))
            first = ()
            tiers = tuple(tier & ~chosen for tier in tiers)


def _by_number_of_parts(every: int, one: int, two: int, three: int) -> Tiers:
    """Chips by how many of three masks have them, from none to all."""
    all_three = one & two & three
    twice = one & two | one & three | two & three
    once = one ^ two ^ three
    some = one | two | three
    return every & ~some, once & ~all_three, twice & ~all_three, all_three


def _parts(node: NodeState, short: int, bad: int) -> Iterator[Part]:
    """What makes usable the chips that are not free, and those of a faulty network."""
    for chip in ids_of(short & (node.healthy | node.taken)):
        yield Free(node=node.name, chip=chip)
    for chip in ids_of(short & ~node.healthy):
        yield Heal(node=node.name, chip=chip)
    for chip in ids_of(bad):
        yield HealNetwork(node=node.name, chip=chip)


def _row_to_add(wanted: Product | str, count: int, cluster: Cluster) -> Product | None:
    """A kind of node that would serve; one that the cluster has, if it does."""
    if isinstance(wanted, Product):
        return wanted if count in wanted.ways else None
    nodes = cluster.line(wanted).values()
    there = sorted({node.product for node in nodes}, key=lambda row: row.key)
    able = (
        row
        for row in (*there, *table.PRODUCTS)
        if row.resource == wanted and count in row.ways
    )
    return next(able, None)


def _added(row: Product, cluster: Cluster, number: int) -> list[_Wish]:
    """So many more nodes, by names that no node has."""
    names = (f"new-{each}" for each in count_from(1))
    known = frozenset(cluster.names)
    free = (name for name in names if name not in known)
    return [(Add(node=name, row=row),) for name in islice(free, number)]
