"""Plan a job: node and chips for each unbound pod, or why not all these pods fit.

`scheduler_core.placement.job` chooses nodes by chips and networks. This module adds
CPU, memory and pod places (`capacity`). kube-scheduler would check these for one pod at
a time only.

`plan` is pure. It tries other free chips on an overlay.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from extender.cache.cache import Cache
from extender.cache.node_state import ResourceState
from extender.cache.overlay import ClusterView
from extender.cache.requests import NOTHING, Resources
from extender.cache.reservations import Claim, Owner, Reservation
from extender.gang.gang import Gang
from extender.gang.membership import Member as GangMember
from extender.planning import elastic, unlike_pods
from extender.planning.candidates import SUPERPOD_AFFINITY
from extender.planning.followers import Follower, followers_of, reserved_siblings
from extender.planning.offered_nodes import OfferedNodes, kinds_of
from extender.planning.unlike_pods import UnlikePod
from extender.refusals import Refusal, refuse_for_job
from extender.scheduling import capacity, claim
from scheduler_core.index.queries import NodeIndex
from scheduler_core.node import chips
from scheduler_core.node.decision import JobPlacement, LeafUse, Placement, Rejection
from scheduler_core.node.packing import EXACT_UP_TO
from scheduler_core.node.state import NodeState
from scheduler_core.placement import gang as gang_placement
from scheduler_core.placement import gang_on_leaves, job_rules
from scheduler_core.placement import job as core
from scheduler_core.placement.gang_on_superpods import SuperPods
from scheduler_core.placement.gang_query import Member, NodeQuery
from scheduler_core.placement.job import Terms
from scheduler_core.placement.job_rules import Profile
from scheduler_core.placement.overlay import Overlay
from scheduler_core.placement.siblings import NOTHING_LEARNT, Learnt, Siblings
from scheduler_core.products import lookup
from scheduler_core.products.columns import JobRule, Product, distributed
from scheduler_core.products.lookup import SP_BLOCK
from scheduler_core.topology import leaves
from scheduler_core.topology.joined_leaves import Running
from scheduler_core.topology.leaves import TOR_AFFINITY, Network, Schema, Version
from scheduler_core.wire import job_annotations
from scheduler_core.wire.job_annotations import LeafMark, Marks
from scheduler_core.wire.pods import NpuPod
from scheduler_core.wire.shapes import Shape

#: Plans of one job, if several pods do not fit one node together.
_TRIES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologySnapshot:
    """Leaf switches, SuperPoDs and job rules that hold while one job is planned.

    A job rule restricts all pods of a job together, for example to whole nodes
    (`scheduler_core.placement.job_rules`).
    """

    profile: Profile = Profile.SEED
    #: number of nodes in a physical SuperPoD
    superpod_size: int = 48
    network: Network | None = None
    superpods: SuperPods | None = None
    #: {node of a pod of the job: use of its leaf switch by the job, and its health}
    leaf_uses: Mapping[str, tuple[LeafUse, bool]] = field(default_factory=dict)


#: No network is known.
PLAIN = TopologySnapshot()


@dataclass(frozen=True, slots=True, kw_only=True)
class _PlanInput:
    """A job, its pods and the resources they request, for one call of `plan`."""

    cache: Cache
    #: nodes, free chips and requests that the plan reads
    view: ClusterView
    gang: Gang
    topology: TopologySnapshot
    #: all pods that have not ended, by rank
    pods: Sequence[NpuPod]
    #: {name of a bound pod: its node and chips}
    places: dict[str, Placement]
    #: pods without a node, and in the same order their requests
    unbound: Sequence[NpuPod]
    requests: Sequence[Resources]
    #: {UID: member without a pod} of those in `unbound` whose pods do not exist
    followers: Mapping[str, Follower]
    #: whether the job is a single pod that asks for leaf switches
    is_one: bool
    #: {UID of each of its pods: member}
    members: Mapping[str, GangMember]
    #: nodes that any of its pods may have
    names: Sequence[str]
    #: which nodes its pods may have and share; None is all of `names`
    siblings: Siblings | None


def plan(  # noqa: PLR0913  # what a plan depends on
    cache: Cache,
    gang: Gang,
    names: Sequence[str],
    now_ns: int,
    topology: TopologySnapshot = PLAIN,
    view: ClusterView | None = None,
    *,
    until_s: float = 0.0,
    lists: Mapping[str, frozenset[str]] | None = None,
    learnt: Learnt = NOTHING_LEARNT,
    may_be_smaller: bool = True,
    most: int | None = None,
) -> tuple[Reservation, ...] | Refusal:
    """Return a reservation for each unbound pod of a job, or why not all pods fit.

    An elastic job gets reservations for as many pods as fit, and is refused if the pods
    that it needs do not fit. Members that their controller makes later, when others are
    ready, get reservations as well.

    Args:
        gang: The job. The pods that it needs exist.
        now_ns: Present time in nanoseconds since the epoch. The `predicate_time` of a
            reservation is this time or later.
        view: An overlay on `cache`, to plan as if pods were gone; None is the cache.
        until_s: End of the reservations, in seconds since the epoch.
        lists: {kind of its members: nodes that are offered to it}; None is all of
            `names`. Members of a kind without an entry are left out.
        learnt: Demands of its pods that they do not say.
        may_be_smaller: Whether an elastic job may get a plan of fewer pods.
        most: Number of existing pods that a plan of an elastic job has at most.

    Returns:
        Reservations ordered by the rank of their pods; or why not all pods fit.
    """
    followers = followers_of(gang)
    offered = OfferedNodes(names=names, lists=lists or {}, learnt=learnt)
    without = offered.leave_out(gang)
    if followers:
        offered = offered.with_followers([f.member for f in followers.values()])

    def plan_without(left_out: Collection[str]) -> tuple[Reservation, ...] | Refusal:
        job = _read_job(
            cache,
            gang,
            topology,
            view,
            offered=offered,
            left_out=without.union(left_out),
            followers={u: f for u, f in followers.items() if u not in left_out},
        )
        return job if isinstance(job, Refusal) else _plan(job, now_ns, until_s)

    return elastic.plan_most(
        gang,
        cache.pods,
        followers,
        plan_without,
        without=without,
        may_be_smaller=may_be_smaller,
        most=most,
    )


def _read_job(  # noqa: PLR0913  # what a plan depends on
    cache: Cache,
    gang: Gang,
    topology: TopologySnapshot,
    view: ClusterView | None,
    *,
    offered: OfferedNodes,
    left_out: Collection[str],
    followers: Mapping[str, Follower],
) -> _PlanInput | Refusal:
    """Return a job with its pods, or why such pods are never planned together.

    Args:
        left_out: UIDs of unbound pods that the plan does not have.
        followers: {UID: member without a pod} that it has.
    """
    without = gang.absent.union(left_out)
    uids = [uid for uid in gang.members if uid not in without]
    existing = map(cache.pods.get, sorted(uids, key=gang.rank_key))
    pods = [pod for pod in existing if pod is not None and not pod.terminal]
    members: Mapping[str, GangMember] = gang.members
    if followers:
        pods += [follower.pod for follower in followers.values()]
        members = gang.members | {u: f.member for u, f in followers.items()}
    unbound = [pod for pod in pods if pod.uid not in gang.bound]
    resources = sorted({pod.shape.resource for pod in pods})
    if len(resources) > 1:
        named = " and ".join(resources)
        return refuse_for_job(f"a job gets NPUs of one kind, its pods ask for {named}")
    places = {
        pod.name: _present_place(cache, pod) for pod in pods if pod.uid in gang.bound
    }
    kinds = kinds_of(gang, pods, members)
    return _PlanInput(
        cache=cache,
        view=cache if view is None else view,
        gang=gang,
        topology=topology,
        pods=pods,
        places=places,
        unbound=unbound,
        requests=[
            followers[pod.uid].ask
            if pod.uid in followers
            else cache.requests.ask(pod.uid)
            for pod in unbound
        ],
        followers=followers,
        is_one=gang.is_one and len(pods) == 1,
        members=members,
        names=offered.names_of(kinds),
        siblings=offered.group(
            pods,
            kinds,
            members,
            places,
            reserved_siblings(gang) if gang.plan.followers else (),
        ),
    )


def _plan(
    job: _PlanInput, now_ns: int, until_s: float
) -> tuple[Reservation, ...] | Refusal:
    first: Refusal | None = None
    for row in _product_rows(job):
        placement = _place_by_row(job, row)
        if not isinstance(placement, Refusal):
            return _reservations(job, placement, now_ns, until_s)
        first = first or placement
    return first or refuse_for_job(
        "no kind of server that is offered serves such a job"
    )


def _present_place(cache: Cache, pod: NpuPod) -> Placement:
    """Return node and chips of a bound pod, which the watch may not show yet."""
    reservation = None if pod.node else cache.reservation(pod.uid)
    if reservation is not None:
        chip_ids = chips.ids_of(reservation.chips)
        return Placement(node=reservation.node, chips=chip_ids, reason="")
    resource_state = cache.resource_state(pod.node, pod.shape.resource)
    tenant = resource_state.tenants.get(pod.uid) if resource_state is not None else None
    mask = tenant.chips if tenant else 0
    return Placement(node=pod.node, chips=chips.ids_of(mask), reason="")


def _product_rows(job: _PlanInput) -> list[Product]:
    """Return the product rows by which to plan a job, in the order to try them.

    A job that decides its row (`lookup.resolve_job`) gets only this row, or no row if
    none can serve it. Any other job gets the rows of its nodes, sorted by key.
    """
    first_pod = job.pods[0]
    traits = job.gang.members[first_pod.uid].traits
    product = lookup.resolve_job(first_pod.shape.resource, traits)
    if not isinstance(product, str):
        return [] if product is None else [product]
    nodes_by_name = job.view.index.nodes(product)
    rows = {nodes_by_name[name].product for name in job.names if name in nodes_by_name}
    return sorted(rows, key=lambda row: row.key)


def _place_by_row(job: _PlanInput, row: Product) -> tuple[Placement, ...] | Refusal:
    """Return node and chips for each unbound pod of a job, or why the pods do not fit.

    The result may also have the bound pods, with the nodes that they have. Uses only
    nodes that can serve the product row `row`. A node may be unable to take all pods
    planned on it. Then the job is planned again, with fewer free chips on that node.
    The job is planned at most `_TRIES` times.
    """
    distinct_pods = {pod.shape: pod for pod in job.unbound}.values()
    avoid = frozenset().union(*(job.cache.conflicts(pod) for pod in distinct_pods))
    size = min(pod.total for pod in distinct_pods)
    survey = job.view.index.survey(
        row, size, job.names, avoid=avoid, in_network=not job.is_one
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
            return unlike or refuse_for_job(placement.job or placement.text)
        overfull = _overfull_nodes(job, row, placement)
        if not overfull:
            return placement.pods
        limited |= overfull
    return _place_unlike(job, row, usable_names) or refuse_for_job(
        "its pods do not fit their nodes together: CPU, memory, or unlike pods"
    )


def _place_unlike(
    job: _PlanInput, row: Product, names: Sequence[str]
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
        for rank, pod in _number_pods(job)
        if pod.name in asks
    ]
    return unlike_pods.place(job.view, distributed(row), names, pods)


def _place_in_core(
    job: _PlanInput, row: Product, names: Sequence[str], index: NodeIndex
) -> JobPlacement | Rejection:
    traits = job.gang.members[job.pods[0].uid].traits
    labels, annotations = traits.labels, traits.annotations
    try:
        schema = leaves.schema_of(labels.get(TOR_AFFINITY, ""))
    except ValueError as error:
        return Rejection(job=str(error), reasons=())
    block = annotations.get(SP_BLOCK, "")
    if block and not (block.isascii() and block.isdigit()):
        text = f"annotation {SP_BLOCK}: expected a whole number, found {block!r}"
        return Rejection(job=text, reasons=())
    core_job = job_rules.Job(
        row=row,
        pods=tuple(job_rules.Pod(name=pod.name, chips=pod.total) for pod in job.pods),
        sp_block=int(block) if block else None,
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
    job: _PlanInput,
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
        for rank, pod in _number_pods(job)
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


def _number_pods(job: _PlanInput) -> Iterator[tuple[int, NpuPod]]:
    """Yield each pod of a job with its rank.

    A pod that states its rank keeps it. The others get the smallest ranks that no pod
    states, in the order of `job.pods`.
    """
    ranks = {pod.uid: job.members[pod.uid].membership.rank for pod in job.pods}
    stated = set(ranks.values())
    others = (number for number in count() if number not in stated)
    for pod in job.pods:
        rank = ranks[pod.uid]
        yield next(others) if rank is None else rank, pod


def resource_of(cache: Cache, gang: Gang) -> str:
    """Return the resource that a job's pods ask for, such as `huawei.com/Ascend910`.

    Returns "" if the cache has no pod of the job.
    """
    pods = (cache.pods.get(uid) for uid in gang.members)
    return next((pod.shape.resource for pod in pods if pod is not None), "")


def _overfull_nodes(
    job: _PlanInput, row: Product, placement: JobPlacement
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


def _reservations(
    job: _PlanInput, places: Sequence[Placement], now_ns: int, until_s: float
) -> tuple[Reservation, ...]:
    unbound = {pod.name: pod for pod in job.unbound}
    masks = {
        chip_ids: chips.mask_of(chip_ids)
        for chip_ids in {place.chips for place in places}
    }
    reasons = {
        reason: f"{reason}, as its job was planned"
        for reason in {place.reason for place in places}
    }
    texts: dict[object, Mapping[str, str]] = {}
    is_of_one_leaf = len({place.leaf for place in places}) == 1 and not job.places
    has_leaves = job.topology.network is not None
    times: dict[str, int] = {}
    #: mostly one: pods of a job differ in nothing but node and chips
    claims: dict[tuple[int, Shape, int], Claim] = {}
    reservations = []
    for place in places:
        pod = unbound.get(place.pod)
        if pod is None:
            continue
        node, leaf = place.node, None
        if has_leaves:
            leaf = _leaf_mark(job, place, is_of_one_leaf=is_of_one_leaf)
        follower = job.followers.get(pod.uid)
        resource_state = _resource_state(job.cache, node, pod.shape.resource)
        times[node] = max(resource_state.next_time(now_ns), times.get(node, 0))
        annotations = _annotations(job, pod, place, leaf, texts)
        key = times[node], pod.shape, id(annotations)
        pod_claim = claims.get(key)
        if pod_claim is None:
            pod_claim = claims[key] = Claim(times[node], pod.shape, annotations)
        reservations.append(
            Reservation(
                kept_for=pod.uid if follower is None else follower.absent,
                owner=Owner.PLAN,
                node=node,
                resource=pod.shape.resource,
                chips=masks[place.chips],
                until_s=until_s,
                claim=pod_claim,
                text=reasons[place.reason],
                ask=NOTHING if follower is None else follower.ask,
            )
        )
        times[node] += 1
    return tuple(reservations)


def _resource_state(cache: Cache, node: str, resource: str) -> ResourceState:
    resource_state = cache.resource_state(node, resource)
    if resource_state is None:
        raise LookupError(f"{node!r} is planned and has no {resource} in the cache")
    return resource_state


def _annotations(
    job: _PlanInput,
    pod: NpuPod,
    place: Placement,
    leaf: LeafMark | None,
    texts: dict[object, Mapping[str, str]],
) -> Mapping[str, str]:
    """Return the annotations that bind writes for a pod's place in its job.

    Pods with equal annotations share one mapping, which is stored in `texts`.

    Args:
        leaf: How the job uses the pod's leaf switch. If None, no annotation is about
            leaf switches.
        texts: {rank, SuperPoD and leaf of a pod: its annotations}. New ones are added.
    """
    if job.is_one:
        resource_state = _resource_state(job.cache, place.node, pod.shape.resource)
        return claim.alone(resource_state, pod) | job_annotations.render(
            Marks(leaf=leaf)
        )
    member = job.members[pod.uid]
    rank = job_rules.choose_rank_annotation(
        place.rank,
        annotation=member.traits.annotations.get(job_annotations.RANK_INDEX, ""),
        owner_kind=member.owner_kind,
        of_minimum=member.membership.job.startswith("Minimum/"),
    )
    key = rank, place.superpod_rank, place.superpod, leaf
    text = texts.get(key)
    if text is None:
        text = texts[key] = job_annotations.render(
            Marks(
                is_distributed=True,
                rank=rank or "",
                superpod_rank=place.superpod_rank,
                superpod=place.superpod,
                leaf=leaf,
            )
        )
    return text


def _leaf_mark(
    job: _PlanInput, place: Placement, *, is_of_one_leaf: bool
) -> LeafMark | None:
    """Return how a job uses the leaf switch above the node planned for a pod.

    None if the pod was planned without leaf switches, or if the cluster does not use
    switch affinity 2.0 (`Rules.switches`).
    """
    network = job.topology.network
    if not place.leaf or network is None or network.version is not Version.TWO:
        return None
    if is_of_one_leaf:
        return LeafMark()
    addresses = (leaf.address for leaf in network.leaves if leaf.name == place.leaf)
    return LeafMark(
        use=place.leaf_use,
        is_healthy=place.leaf_healthy,
        address=next(addresses, "") if place.leaf_use is LeafUse.SHARED else "",
    )
