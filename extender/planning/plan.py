"""Plan a job: a reservation for each unbound pod, or why not all these pods fit.

`plan_input` reads the job, `placing` chooses nodes and chips. `plan` is pure.
"""

from collections.abc import Collection, Mapping, Sequence

from extender.cache.cache import Cache
from extender.cache.node_state import ResourceState
from extender.cache.overlay import ClusterView
from extender.cache.reservations import Claim, Owner, Reservation
from extender.gang.gang import Gang
from extender.planning import elastic, placing
from extender.planning.followers import followers_of
from extender.planning.offered_nodes import OfferedNodes
from extender.planning.plan_input import PLAIN, PlanInput, TopologySnapshot, read_job
from extender.planning.units import Unit, find_incomplete, read_units
from extender.refusals import Refusal, refuse_for_job
from extender.scheduling import claim
from scheduler_core.node import chips
from scheduler_core.node.decision import LeafUse, Placement, Rejection
from scheduler_core.placement import job_rules
from scheduler_core.placement.siblings import NOTHING_LEARNT, Learnt
from scheduler_core.topology.leaves import Version
from scheduler_core.wire import job_annotations
from scheduler_core.wire.job_annotations import LeafMark, Marks
from scheduler_core.wire.pods import NpuPod
from scheduler_core.wire.shapes import Shape


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
    units: Sequence[Unit] = ()
    if gang.size is not None and gang.size.divisions:
        units = read_units(gang, {uid: f.absent for uid, f in followers.items()})
    if units:
        without |= find_incomplete(units, without)
        followers = {u: f for u, f in followers.items() if u not in without}
        refusal = elastic.refuse_parts(gang, followers, units, without)
        if refusal is not None:
            return refusal
    if followers:
        offered = offered.with_followers([f.member for f in followers.values()])

    def plan_without(left_out: Collection[str]) -> tuple[Reservation, ...] | Refusal:
        job = read_job(
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
        units=units,
        may_be_smaller=may_be_smaller,
        most=most,
    )


def _plan(
    job: PlanInput, now_ns: int, until_s: float
) -> tuple[Reservation, ...] | Refusal:
    places = placing.place(job)
    if isinstance(places, Rejection):
        return refuse_for_job(places.job or places.text)
    return _reservations(job, places, now_ns, until_s)


def _reservations(
    job: PlanInput, places: Sequence[Placement], now_ns: int, until_s: float
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
        node, shape, leaf = place.node, pod.shape, None
        if has_leaves:
            leaf = _leaf_mark(job, place, is_of_one_leaf=is_of_one_leaf)
        time = times.get(node)
        if time is None:
            time = _resource_state(job.cache, node, shape.resource).next_time(now_ns)
        times[node] = time + 1
        annotations = _annotations(job, pod, place, leaf, texts)
        key = time, shape, id(annotations)
        pod_claim = claims.get(key)
        if pod_claim is None:
            pod_claim = claims[key] = Claim(time, shape, annotations)
        made = Reservation(
            pod.uid,
            Owner.PLAN,
            node,
            shape.resource,
            masks[place.chips],
            until_s,
            pod_claim,
            reasons[place.reason],
        )
        follower = job.followers.get(pod.uid) if job.followers else None
        if follower is not None:
            made = made._replace(kept_for=follower.absent, ask=follower.ask)
        reservations.append(made)
    return tuple(reservations)


def _resource_state(cache: Cache, node: str, resource: str) -> ResourceState:
    resource_state = cache.resource_state(node, resource)
    if resource_state is None:
        raise LookupError(f"{node!r} is planned and has no {resource} in the cache")
    return resource_state


def _annotations(
    job: PlanInput,
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
    job: PlanInput, place: Placement, *, is_of_one_leaf: bool
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
