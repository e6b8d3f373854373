"""Decisions of every kind, printed: a program that must always print the same.

Wherever a caller may give names in any order, they are given as a set of texts, whose
order is another in every process.
"""

from collections.abc import Iterator

from scheduler_core.explain import advice
from scheduler_core.index.cluster import Cluster, NodeState
from scheduler_core.node.chip_mask import ids_of, mask_of
from scheduler_core.node.decision import JobPlacement, Placement, Rejection
from scheduler_core.node.reasons import Reason
from scheduler_core.placement.gang_on_superpods import SuperPods
from scheduler_core.placement.job import Terms, place_job
from scheduler_core.placement.job_rules import Job, Profile
from scheduler_core.placement.pod import place
from scheduler_core.preemption.relaxations import Advice
from scheduler_core.preemption.victims import Eviction, Preemptor, RunningPod, preempt
from scheduler_core.products.table import PRODUCTS, Product, by_key
from scheduler_core.topology.leaves import Network, Schema, Tenant, Version
from tests.machines import node_state
from tests.scheduler_core.jobs import job_of
from tests.scheduler_core.leaf_parts import leaf_of

_NODES = 24
Answer = Placement | JobPlacement | Rejection
Help = Advice | Eviction | None


def _node(row: Product, index: int, free: int) -> NodeState:
    hurt = 1 << index % row.chip_count if index % 5 == 0 else 0
    healthy = row.all_chips & ~hurt
    return node_state(
        f"node-{index * 7 % _NODES}-{row.key}",
        row,
        free,
        healthy=healthy,
        network_unhealthy=1 << index % 3 if index % 4 == 0 else 0,
        barred=Reason.AGENT_SILENT if index % 11 == 10 else None,
    )


def _cluster(row: Product) -> Cluster:
    """Nodes of which some are whole, some empty, and the others in between."""
    some = (index * 0x9E3779B97F4A7C15 >> 7 for index in range(_NODES))
    return Cluster(
        _node(row, index, row.all_chips if index % 3 == 0 else mixed & row.all_chips)
        for index, mixed in enumerate(some)
    )


def single_pods() -> Iterator[Answer]:
    """One pod of each legal count and one more, of every product."""
    for row in PRODUCTS:
        cluster = _cluster(row)
        names = frozenset(node.name for node in cluster)
        few = frozenset(sorted(names)[::3])
        for count in (*row.counts[:6], row.counts[-1], row.counts[-1] + 1):
            yield place(row.resource, count, cluster)
            yield place(row, count, cluster, names=names, avoid=few, in_network=True)


def gangs() -> Iterator[Answer]:
    """Jobs of several pods, of one size and of several."""
    for row in PRODUCTS:
        cluster = _cluster(row)
        names = frozenset(node.name for node in cluster)
        for sizes in ((2, 2, 2), (row.counts[-1],) * 3, (4, 2, 2, 1), (6, 4)):
            job = job_of(row, *sizes)
            terms = Terms(profile=Profile.PER_POD)
            yield place_job(job, cluster, terms=terms, names=names)


def networks() -> Iterator[Answer]:
    """Jobs under leaf switches and in SuperPoDs."""
    row = by_key("atlas-a2-8")
    cluster = _cluster(row)
    names = sorted(node.name for node in cluster)
    leaves = tuple(leaf_of(f"leaf-{at}", names[at::6]) for at in range(6))
    tenant = Tenant(schema=Schema.LARGE_MODEL, nodes=frozenset(names[:3]))
    for version in Version:
        network = Network(leaves=leaves, version=version, tenants=(tenant,))
        for schema in Schema:
            for number in (2, 4, 6):
                yield place_job(
                    _job(row, number, 8), cluster, terms=_terms(network, schema)
                )
    superpod = by_key("atlas-a3-16-superpod")
    cluster = _cluster(superpod)
    joined = SuperPods(
        of_node={node.name: at % 3 for at, node in enumerate(cluster)}, reserve=1
    )
    for number in (2, 4, 6):
        terms = Terms(superpods=joined)
        yield place_job(
            _job(superpod, number, 16), cluster, terms=terms, names=frozenset(names)
        )
        yield place_job(_job(superpod, number, 16), cluster, terms=terms)


def helps() -> Iterator[Help]:
    """What would unblock a pod or a job, and who would have to go for it."""
    for row in PRODUCTS:
        cluster = _cluster(row)
        full = (node for node in cluster if 2 * node.free.bit_count() <= row.chip_count)
        names = frozenset(node.name for node in full)
        few, most = frozenset(sorted(names)[::3]), row.counts[-1]
        yield advice.advise_pod(row, most, cluster, names=names, avoid=few)
        terms = Terms(profile=Profile.PER_POD)
        job = job_of(row, most, most, most)
        yield advice.advise_job(job, cluster, terms=terms, names=names)
        running = {node.name: _running(node) for node in cluster}
        pod = Preemptor(wanted=row, chips=row.counts[-2], priority=2)
        yield preempt(pod, cluster, running, names=names)


def _running(node: NodeState) -> list[RunningPod]:
    """A pod for every two chips in use."""
    taken = ids_of(node.healthy & ~node.free)
    pairs = (taken[at : at + 2] for at in range(0, len(taken), 2))
    return [
        RunningPod(
            name=f"{node.name}-{at}",
            chips=mask_of(pair),
            priority=at % 3,
            start_time=at % 2,
            budgets=tuple(frozenset(("b", "c"))),
        )
        for at, pair in enumerate(pairs)
    ]


def _terms(network: Network, schema: Schema) -> Terms:
    return Terms(network=network, schema=schema, profile=Profile.PER_POD)


def _job(row: Product, pods: int, chips: int) -> Job:
    return job_of(row, *[chips] * pods, sp_block=2 * chips)


def _printed(answer: Answer | Help) -> Answer | Help | str:
    """An advice and an eviction as they are said: their rows have no equal text."""
    if isinstance(answer, Advice | Eviction):
        return f"{type(answer).__name__}({answer.text})"
    return answer


if __name__ == "__main__":
    for ask in (single_pods, gangs, networks, helps):
        for answer in ask():
            print(ask.__name__, _printed(answer))  # noqa: T201  # what it is for
