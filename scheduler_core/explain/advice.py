"""Advice for a pod or a job that does not fit: changes that would give it a place.

An advice is a set of relaxations (`preemption/relaxations.py`), and it is verified.
With all of them there is a place, and without any one of them there is none.
Freeing and healing chips comes first, then reopening barred nodes.
Adding nodes is the last resort, and as few of them as possible.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import chain, islice
from itertools import count as count_from

from scheduler_core.index.queries import NodeIndex
from scheduler_core.node.chip_mask import ids_of
from scheduler_core.node.decision import Placement, Rejection
from scheduler_core.node.soonest_free import Tiers, find_cheapest
from scheduler_core.node.state import NodeState
from scheduler_core.placement.job import COMMON, Terms, place_job
from scheduler_core.placement.job_rules import Job, problems
from scheduler_core.placement.pod import place
from scheduler_core.preemption.relaxations import (
    AddNode,
    Advice,
    Check,
    ConfirmPod,
    FreeChip,
    HealChip,
    HealNetwork,
    Relaxation,
    ReopenNode,
    Simulation,
)
from scheduler_core.products import table
from scheduler_core.products.columns import JobRule, Product

#: relaxations that only help together, for one pod on one node
_Bundle = tuple[Relaxation, ...]
#: effort of a bundle: barred nodes, relaxations, chips to be healed
_Effort = tuple[int, int, int]


def advise_pod(
    wanted: Product | str,
    count: int,
    cluster: NodeIndex,
    *,
    names: Iterable[str] | None = None,
    avoid: Container[str] = (),
    in_network: bool = False,
) -> Advice | None:
    """Return relaxations with which `pod.place` finds a place; arguments as there.

    The node is the one with the fewest relaxations, then with the fewest chips to heal.

    Returns:
        None when there is already a place, and when nothing helps, since no known kind
        of node gives a pod so many chips.

    Cost:
        Some microseconds for each node, to sort it; more for nodes that lack few chips.
    """
    simulation = Simulation(wanted, cluster, names, avoid)

    def serves(simulation: Simulation) -> bool:
        answer = place(
            wanted,
            count,
            simulation.cluster,
            names=simulation.names,
            avoid=simulation.avoid,
            in_network=in_network,
        )
        return not isinstance(answer, Rejection)

    row = _row_to_add(wanted, count, cluster)
    new_nodes = [] if row is None else _nodes_to_add(row, cluster, 1)
    bundles = _rank_bundles(wanted, (count,), simulation, in_network=in_network)
    return _find_minimal(chain(bundles, new_nodes), simulation, serves)


def advise_job(
    job: Job,
    cluster: NodeIndex,
    *,
    terms: Terms = COMMON,
    names: Iterable[str] | None = None,
    places: Mapping[str, Placement] | None = None,
) -> Advice | None:
    """Return relaxations with which `job.place_job` finds places; arguments as there.

    For a job under leaf switches or in SuperPoDs no node to add is advised, since its
    place in the network is unknown.

    Returns:
        None when there is already a place, when the job itself has problems, and when
        nothing helps.

    Cost:
        One planning of the job for each relaxation, and a few more: tens of
        milliseconds for a few pods, seconds for hundreds of pods that all lack chips.
    """
    row, pods = job.row, sorted((pod.chips for pod in job.npu_pods), reverse=True)
    if row is None or problems(job, terms.profile):
        return None
    simulation = Simulation(row, cluster, names, ())
    in_network = len(pods) > 1

    def serves(simulation: Simulation) -> bool:
        answer = place_job(
            job, simulation.cluster, terms=terms, names=simulation.names, places=places
        )
        return not isinstance(answer, Rejection)

    in_superpods = in_network and row.job_rule is JobRule.SUPERPOD
    anywhere = terms.schema is None and not in_superpods
    new_nodes = _nodes_to_add(row, cluster, len(pods)) if anywhere else []
    bundles = _rank_bundles(row, pods, simulation, in_network=in_network)
    return _find_minimal(chain(bundles, new_nodes), simulation, serves)


def _find_minimal(
    bundles: Iterator[_Bundle], simulation: Simulation, serves: Check
) -> Advice | None:
    """Return the first bundles that suffice, without needless relaxations."""
    collected: list[_Bundle] = []

    def helps(number: int) -> bool:
        collected.extend(islice(bundles, max(number - len(collected), 0)))
        return simulation.passes(tuple(chain.from_iterable(collected[:number])), serves)

    if helps(0):
        return None
    low, high = 0, 1
    while not helps(high):
        if len(collected) < high:
            return None
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if helps(middle) else (middle, high)
    return Advice(
        parts=_drop_unneeded(
            tuple(chain.from_iterable(collected[:high])), simulation, serves
        )
    )


def _drop_unneeded(parts: _Bundle, simulation: Simulation, serves: Check) -> _Bundle:
    """Return the relaxations that cannot be left out; the last are dropped first."""
    previous: _Bundle = ()
    while parts != previous:  # again, since rules over the job are not monotone
        previous = parts
        for part in reversed(previous):
            rest = tuple(other for other in parts if other != part)
            if simulation.passes(rest, serves):
                parts = rest
    return parts


def _rank_bundles(
    wanted: Product | str,
    pods: Sequence[int],
    simulation: Simulation,
    *,
    in_network: bool,
) -> Iterator[_Bundle]:
    """Yield bundles for the first, second … pod of each node, least effort first.

    A node's bundles are computed only when the node may be next.
    The number of its missing chips is a lower bound of their effort.
    """
    queue: list[tuple[_Effort, str, Iterator[_Bundle], _Bundle]] = []
    for node in simulation.nodes():
        row = node.row_for(wanted, in_network=in_network)
        if row is None:
            continue
        node_parts: _Bundle = (
            (ConfirmPod(node=node.name),) if node.name in simulation.avoid else ()
        )
        if node.barred:
            node_parts = (*node_parts, ReopenNode(node=node.name, bar=node.barred))
        reopened, parts, _ = _effort(node_parts)
        missing_count = max(min(pods, default=0) - node.free_for(row).bit_count(), 0)
        least_effort = reopened, parts + missing_count, 0
        queue.append(
            (least_effort, node.name, _bundles_on_node(node, row, pods, node_parts), ())
        )
    heapify(queue)
    while queue:
        effort, name, bundles, bundle = heappop(queue)
        if bundle:
            yield bundle
        for next_bundle in bundles:
            heappush(
                queue, (max(effort, _effort(next_bundle)), name, bundles, next_bundle)
            )
            break


def _effort(bundle: _Bundle) -> _Effort:
    reopened = sum(isinstance(part, ReopenNode) for part in bundle)
    healed_count = sum(isinstance(part, HealChip | HealNetwork) for part in bundle)
    return reopened, len(bundle), healed_count


def _bundles_on_node(
    node: NodeState, row: Product, pods: Sequence[int], node_parts: _Bundle
) -> Iterator[_Bundle]:
    """Yield a bundle for each further pod of a node; the first has `node_parts`."""
    needs_network = row.for_distributed and row.network_health
    bad_network = node.inventory & node.network_unhealthy if needs_network else 0
    not_free = node.inventory & ~node.free
    tiers = _tier_by_part_count(
        node.inventory, not_free, node.taken & ~node.healthy, bad_network
    )
    for count in pods:
        chosen = find_cheapest(row, tiers, count)
        if chosen:
            yield (*node_parts, *_parts(node, chosen & not_free, chosen & bad_network))
            node_parts = ()
            tiers = tuple(tier & ~chosen for tier in tiers)


def _tier_by_part_count(all_chips: int, one: int, two: int, three: int) -> Tiers:
    """Return masks of the chips that none, one, two and all of three masks have."""
    all_three = one & two & three
    two_or_more = one & two | one & three | two & three
    odd_count = one ^ two ^ three
    any_mask = one | two | three
    return (
        all_chips & ~any_mask,
        odd_count & ~all_three,
        two_or_more & ~all_three,
        all_three,
    )


def _parts(node: NodeState, not_free: int, bad_network: int) -> Iterator[Relaxation]:
    """Yield the relaxations that make these chips of a node usable."""
    for chip in ids_of(not_free & (node.healthy | node.taken)):
        yield FreeChip(node=node.name, chip=chip)
    for chip in ids_of(not_free & ~node.healthy):
        yield HealChip(node=node.name, chip=chip)
    for chip in ids_of(bad_network):
        yield HealNetwork(node=node.name, chip=chip)


def _row_to_add(
    wanted: Product | str, count: int, cluster: NodeIndex
) -> Product | None:
    """Return the row of a node to add that would serve, preferably of the cluster's."""
    if isinstance(wanted, Product):
        return wanted if count in wanted.ways else None
    nodes = cluster.nodes(wanted).values()
    present = sorted({node.product for node in nodes}, key=lambda row: row.key)
    suitable = (
        row
        for row in (*present, *table.PRODUCTS)
        if row.resource == wanted and count in row.ways
    )
    return next(suitable, None)


def _nodes_to_add(row: Product, cluster: NodeIndex, number: int) -> list[_Bundle]:
    """Return bundles that each add one node, under names that no node has."""
    names = (f"new-{index}" for index in count_from(1))
    unused = (name for name in names if not cluster.has_node(name))
    return [(AddNode(node=name, row=row),) for name in islice(unused, number)]
