"""Choose node and chips for the pods of a job on one kind of server, or tell why not.

`scheduler_core.placement.job` chooses nodes by chips and networks. This module adds
CPU, memory and pod places (`capacity`). kube-scheduler would check these for one pod at
a time only.

It is pure. It tries other free chips on an overlay.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from extender.planning import unlike_pods
from extender.planning.candidates import SUPERPOD_AFFINITY
from extender.planning.plan_input import PlanInput, number_pods
from extender.planning.unlike_pods import UnlikePod
from extender.scheduling import capacity
from scheduler_core.index.queries import NodeIndex
from scheduler_core.node import chips
from scheduler_core.node.decision import JobPlacement, Placement, Rejection
from scheduler_core.node.packing import EXACT_UP_TO
from scheduler_core.node.state import NodeState
from scheduler_core.placement import gang as gang_placement
from scheduler_core.placement import gang_on_leaves, job_rules, one_kind
from scheduler_core.placement import job as core
from scheduler_core.placement.gang_query import Member, NodeQuery
from scheduler_core.placement.job import Terms
from scheduler_core.placement.overlay import Overlay
from scheduler_core.products import lookup
from scheduler_core.products.columns import JobRule, Product, distributed
from scheduler_core.products.lookup import SP_BLOCK
from scheduler_core.topology import leaves
from scheduler_core.topology.joined_leaves import Running
from scheduler_core.topology.leaves import TOR_AFFINITY, Schema
from scheduler_core.wire.annotations import parse_count
from scheduler_core.wire.quote import quote_value

#: Plans of one job, if several pods do not fit one node together.
_TRIES = 8


def place(job: PlanInput) -> tuple[Placement, ...] | Rejection:
    """Return node and chips for each unbound pod of a job, or why the pods do not fit.

    The result may also have the bound pods, with the nodes that they have. All pods get
    servers of one kind (`one_kind`).
    """
    first_pod = job.pods[0]
    resource = first_pod.shape.resource
    states = job.view.index.nodes(resource)
    names: defaultdict[Product, list[str]] = defaultdict(list)
    for name in job.names:
        if name in states:
            names[states[name].product].append(name)
    kinds = one_kind.kinds_of(
        lookup.resolve_job(resource, job.members[first_pod.uid].traits),
        names,
        [states[p.node].product for p in job.places.values() if p.node in states],
    )
    return one_kind.place_on_one(
        kinds,
        names,
        lambda kind: _place_by_row(job, kind.row, names.get(kind.hardware, ())),
    )


def _place_by_row(
    job: PlanInput, row: Product, names: Sequence[str]
) -> tuple[Placement, ...] | Rejection:
    """Return places as `place` does, on nodes of one kind.

    A node may be unable to take all pods planned on it. Then the job is planned again,
    with fewer free chips on that node. The job is planned at most `_TRIES` times.

    Args:
        row: Product row by which the nodes serve.
        names: The nodes.
    """
    distinct_pods = {pod.shape: pod for pod in job.unbound}.values()
    avoid = frozenset().union(*(job.cache.conflicts(pod) for pod in distinct_pods))
    size = min(pod.total for pod in distinct_pods)
    survey = job.view.index.survey(
        row, size, names, avoid=avoid, in_network=not job.is_one
    )
    able_names = [*survey.best, *survey.worse]
    largest = max(pod.total for pod in distinct_pods)
    limited, usable_names = capacity.limit_by_requests(
        job.view, row, able_names, job.requests, largest
    )
    for number in range(_TRIES):
        index = Overlay(job.view.index, limited.values()) if limited else job.view.index
        placement = _place_in_core(job, row, usable_names, index)
        if isinstance(placement, Rejection):
            unlike = _place_unlike(job, row, usable_names) if number else None
            return unlike or placement
        overfull = _overfull_nodes(job, row, placement)
        if not overfull:
            return placement.pods
        limited |= overfull
    text = "its pods do not fit their nodes together: CPU, memory, or unlike pods"
    unlike = _place_unlike(job, row, usable_names)
    return unlike or Rejection(job=text, reasons=())


def _place_unlike(
    job: PlanInput, row: Product, names: Sequence[str]
) -> tuple[Placement, ...] | None:
    """Return places of a few pods that the core gave nodes too small for them.

    None if they are of more than one kind, or if their network decides.
    """
    traits = job.gang.members[job.pods[0].uid].traits
    if (
        len(job.unbound) > EXACT_UP_TO
        or job.siblings is not None
        or row.job_rule is JobRule.SUPERPOD
        or leaves.asks_leaves(traits.labels)
    ):
        return None
    asks = {pod.name: ask for pod, ask in zip(job.unbound, job.requests, strict=True)}
    pods = [
        UnlikePod(pod, asks[pod.name], rank)
        for rank, pod in number_pods(job)
        if pod.name in asks
    ]
    return unlike_pods.place(job.view, distributed(row), names, pods)


def _place_in_core(
    job: PlanInput, row: Product, names: Sequence[str], index: NodeIndex
) -> JobPlacement | Rejection:
    traits = job.gang.members[job.pods[0].uid].traits
    labels, annotations = traits.labels, traits.annotations
    try:
        schema = leaves.schema_of(labels.get(TOR_AFFINITY, ""))
    except ValueError as error:
        return Rejection(job=str(error), reasons=())
    text = annotations.get(SP_BLOCK, "")
    sp_block = parse_count(text) if text else None
    if text and sp_block is None:
        found = quote_value(text)
        text = f"annotation {SP_BLOCK}: expected a whole number, found {found}"
        return Rejection(job=text, reasons=())
    core_job = job_rules.Job(
        row=row,
        pods=tuple([job_rules.Pod(pod.name, pod.shape.total) for pod in job.pods]),
        sp_block=sp_block,
        superpod_size=job.topology.superpod_size,
        soft_superpods=labels.get(SUPERPOD_AFFINITY) == "soft",
    )
    if job.places and row.job_rule is not JobRule.SUPERPOD:
        return _place_unbound(job, row, names, index, schema)
    places = None
    if job.places:  # `place_job` keeps the logical SuperPoDs of the job's bound pods
        nowhere = Placement(node="", chips=(), reason="")
        places = job.places | {pod.name: nowhere for pod in job.unbound}
    placement = core.place_job(
        core_job,
        index,
        terms=Terms(
            schema=schema,
            network=job.topology.network,
            superpods=job.topology.superpods,
            profile=job.topology.profile,
        ),
        names=names,
        places=places,
        siblings=job.siblings,
    )
    if (
        places
        and isinstance(placement, JobPlacement)
        and any(
            place.pod in job.places and place.node != job.places[place.pod].node
            for place in placement.pods
        )
    ):
        return Rejection(job="no room beside its pods that run", reasons=())
    return placement


def _place_unbound(
    job: PlanInput,
    row: Product,
    names: Sequence[str],
    index: NodeIndex,
    schema: Schema | None,
) -> JobPlacement | Rejection:
    """Return node and chips for each unbound pod of a job, or why the pods do not fit.

    The bound pods of the job keep their chips and are not in the result.

    Args:
        schema: Switch affinity of the job; None asks for none.
    """
    members = [
        Member(name=pod.name, chips=pod.total, rank=rank)
        for rank, pod in number_pods(job)
        if pod.uid not in job.gang.bound
    ]
    network = job.topology.network
    if schema is not None and network is not None:
        nodes = frozenset(place.node for place in job.places.values())
        may_have = job.siblings.common_names(names) if job.siblings else names
        query = NodeQuery(
            wanted=row,
            cluster=index,
            names=tuple(name for name in may_have if name not in nodes),
            in_network=True,
        )
        running = Running(nodes=nodes, uses=job.topology.leaf_uses)
        return gang_on_leaves.plan(query, members, network, schema, running)
    return gang_placement.plan(
        distributed(row), members, index, names=names, siblings=job.siblings
    )


def _overfull_nodes(
    job: PlanInput, row: Product, placement: JobPlacement
) -> dict[str, NodeState]:
    """Return {node: node state} of nodes where the planned pods do not fit together.

    `capacity.select_fitting` selects pods of the node that do fit together. In the node
    state, only the chips planned for the selected pods are free.
    """
    is_uniform = len(set(job.requests)) == 1  # limit_by_requests made one fit
    nodes = {place.node for place in placement.pods}
    if is_uniform and len(nodes) == len(placement.pods):
        return {}  # the common case: no step for each pod
    by_name = {
        pod.name: (pod, ask) for pod, ask in zip(job.unbound, job.requests, strict=True)
    }
    places_on: defaultdict[str, list[Placement]] = defaultdict(list)
    for place in placement.pods:
        if place.pod in by_name:
            places_on[place.node].append(place)
    overfull: dict[str, NodeState] = {}
    for node, places in places_on.items():
        if is_uniform and len(places) == 1:
            continue
        fitting = capacity.select_fitting(
            job.view, node, [(*by_name[place.pod], place) for place in places]
        )
        if len(fitting) < len(places):
            mask = sum(chips.mask_of(place.chips) for place in fitting)
            state = job.view.index.nodes(row)[node]
            overfull[node] = replace(state, free=mask)
    return overfull
