"""Where do all pods of a job go, with the chips, the CPU and the memory there are?

Which nodes suit a job, `scheduler_core.placement.job` says; it knows chips and
networks. Here is added what a scheduler's own filters ask for (`capacity`).

Pure: the index is changed while a plan is being made, and is as before afterwards.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from extender.cache.cache import Cache
from extender.cache.events import Assumed
from extender.cache.requests import Ask
from extender.gang.gangs import Gang
from extender.planning.candidates import Question
from extender.scheduling import capacity, claim
from scheduler_core.index.cluster import NodeState
from scheduler_core.node import chips
from scheduler_core.node.decision import JobPlacement, LeafUse, Placement, Rejection
from scheduler_core.placement import gang as gang_placement
from scheduler_core.placement import job as core
from scheduler_core.placement import job_rules
from scheduler_core.placement.gang_on_superpods import SuperPods
from scheduler_core.placement.job import Terms
from scheduler_core.placement.job_rules import Profile
from scheduler_core.products import lookup
from scheduler_core.products.columns import JobRule, Product, distributed
from scheduler_core.products.lookup import SP_BLOCK
from scheduler_core.topology import leaves
from scheduler_core.topology.leaves import TOR_AFFINITY, Network, Version
from scheduler_core.wire import job_kind_marks
from scheduler_core.wire.job_kind_marks import LeafMark, Marks
from scheduler_core.wire.pods import NpuPod

#: Plans that are made anew because several pods do not fit one node together.
_TRIES = 8

_SUPERPOD_AFFINITY = "super-pod-affinity"


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What plans depend on besides the cluster."""

    profile: Profile = Profile.SEED
    #: nodes of a physical SuperPoD
    superpod_size: int = 48
    network: Network | None = None
    joined: SuperPods | None = None


#: Nothing is known of networks.
PLAIN = World()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Try:
    """One job that is being planned."""

    cache: Cache
    gang: Gang
    world: World
    #: all its pods that count, by rank
    pods: Sequence[NpuPod]
    #: where its pods are that have a node
    places: dict[str, Placement]
    #: those without a node, and what each of them asks for
    new: Sequence[NpuPod]
    asks: Sequence[Ask]
    #: whether the job is one pod, which asks for a place in the network
    is_one: bool


def plan(
    cache: Cache, gang: Gang, names: Sequence[str], now_ns: int, world: World = PLAIN
) -> tuple[Assumed, ...] | str:
    """Plan the pods of a job that have no node.

    Args:
        cache: What is known; as before afterwards.
        gang: All its pods exist.
        names: The nodes that the scheduler offers.
        now_ns: For predicate-times.
        world: What is known of networks, and settings.

    Returns:
        A promise for each of them, by rank; or why there is no room for all.
    """
    known = (cache.pods.get(uid) for uid in _in_order(gang))
    pods = [pod for pod in known if pod is not None and not pod.terminal]
    new = [pod for pod in pods if pod.uid not in gang.seated]
    kinds = sorted({pod.shape.resource for pod in pods})
    if len(kinds) > 1:
        return f"a job gets NPUs of one kind, its pods ask for {' and '.join(kinds)}"
    job = _Try(
        cache=cache,
        gang=gang,
        world=world,
        pods=pods,
        places={pod.name: _there(cache, pod) for pod in pods if pod.node},
        new=new,
        asks=[cache.loads.ask(pod.uid) for pod in new],
        is_one=gang.is_one and len(pods) == 1,
    )
    said = ""
    for row in _rows(job, names):
        found = _by_row(job, row, names)
        if not isinstance(found, str):
            return _promises(job, found, now_ns)
        said = said or found
    return said or "no kind of server that is offered serves such a job"


def question(cache: Cache, gang: Gang, names: Sequence[str]) -> Question | None:
    """What is asked for a pod that is a job by itself; None for any other job.

    Pods whose questions are equal have the same answer, if they are told the same of
    the cluster; but for what says their names.
    """
    uid = next(iter(gang.seats), "")
    pod = cache.pods.get(uid)
    if pod is None or len(gang.seats) > 1 or not gang.is_one or gang.seated:
        return None
    traits = gang.seats[uid].traits
    return Question(
        names=names,
        shape=pod.shape,
        ask=cache.loads.ask(uid),
        wanted=lookup.wanted(pod.shape.resource, traits),
        said=(
            traits.labels.get(TOR_AFFINITY, ""),
            traits.labels.get(_SUPERPOD_AFFINITY, ""),
            traits.annotations.get(SP_BLOCK, ""),
        ),
    )


def _in_order(gang: Gang) -> list[str]:
    some = [uid for uid in gang.seats if uid not in gang.ending]
    return sorted(some, key=gang.place_in_order)


def _there(cache: Cache, pod: NpuPod) -> Placement:
    record = cache.line(pod.node, pod.shape.resource)
    tenant = record.tenants.get(pod.uid) if record is not None else None
    mask = tenant.chips if tenant else 0
    return Placement(node=pod.node, chips=chips.ids_of(mask), reason="")


def _rows(job: _Try, names: Sequence[str]) -> list[Product]:
    """The rows by which the job may be served: its own, else those of the nodes."""
    first = job.pods[0]
    traits = job.gang.seats[first.uid].traits
    wanted = lookup.wanted(first.shape.resource, traits)
    if not isinstance(wanted, str):
        return [] if wanted is None else [wanted]
    line = job.cache.cluster.line(wanted)
    there = {line[name].product for name in names if name in line}
    return sorted(there, key=lambda row: row.key)


def _by_row(
    job: _Try, row: Product, names: Sequence[str]
) -> tuple[Placement, ...] | str:
    """Places for all pods by that row, or why not."""
    kinds = _kinds(job.new)
    avoid = frozenset().union(*(job.cache.conflicts(pod) for pod in kinds))
    size = min(pod.total for pod in kinds)
    survey = job.cache.cluster.survey(
        row, size, names, avoid=avoid, in_network=not job.is_one
    )
    able = [*survey.best, *survey.worse]
    largest = max(pod.total for pod in kinds)
    capped, offered = capacity.with_room(job.cache, row, able, job.asks, largest)
    for _ in range(_TRIES):
        with laid_over(job.cache, capped.values()):
            found = _ask_core(job, row, offered)
        if isinstance(found, Rejection):
            return found.job or found.text
        over = _overfull(job, row, found)
        if not over:
            return found.pods
        capped |= over
    return "its pods do not fit their nodes together: CPU, memory, or unlike pods"


def _kinds(pods: Sequence[NpuPod]) -> list[NpuPod]:
    """One pod of each shape."""
    return list({pod.shape: pod for pod in pods}.values())


def _ask_core(
    job: _Try, row: Product, names: Sequence[str]
) -> JobPlacement | Rejection:
    traits = job.gang.seats[job.pods[0].uid].traits
    labels, said = traits.labels, traits.annotations
    try:
        schema = leaves.schema_of(labels.get(TOR_AFFINITY, ""))
    except ValueError as error:
        return Rejection(job=str(error), reasons=())
    block = said.get(SP_BLOCK, "")
    if block and not (block.isascii() and block.isdigit()):
        text = f"annotation {SP_BLOCK}: expected a whole number, found {block!r}"
        return Rejection(job=text, reasons=())
    asked = job_rules.Job(
        row=row,
        pods=tuple(job_rules.Pod(name=pod.name, chips=pod.total) for pod in job.pods),
        sp_block=int(block) if block else None,
        superpod_size=job.world.superpod_size,
        soft_superpods=labels.get(_SUPERPOD_AFFINITY) == "soft",
    )
    if job.places and row.job_rule is not JobRule.SUPERPOD:
        return _beside(job, row, names)
    found = core.place_job(
        asked,
        job.cache.cluster,
        terms=Terms(
            schema=schema,
            network=job.world.network,
            joined=job.world.joined,
            profile=job.world.profile,
        ),
        names=names,
        places=job.places | _lost(job) if job.places else None,
    )
    if isinstance(found, JobPlacement) and any(
        place.pod in job.places and place.node != job.places[place.pod].node
        for place in found.pods
    ):
        return Rejection(job="no room beside its pods that run", reasons=())
    return found


def _beside(job: _Try, row: Product, names: Sequence[str]) -> JobPlacement | Rejection:
    """Places for pods that join others which run: those stay, whatever they have."""
    members = [
        gang_placement.Member(name=pod.name, chips=pod.total, rank=rank)
        for rank, pod in enumerate(job.pods)
        if pod.uid not in job.gang.seated
    ]
    return gang_placement.plan(
        distributed(row), members, job.cache.cluster, names=names
    )


def _lost(job: _Try) -> dict[str, Placement]:
    """For pods that take the places of others: somewhere that is no good any more."""
    return {pod.name: Placement(node="", chips=(), reason="") for pod in job.new}


def resource_of(cache: Cache, gang: Gang) -> str:
    """What the pods of a job ask for; "" when none of them is known."""
    pods = (cache.pods.get(uid) for uid in gang.seats)
    return next((pod.shape.resource for pod in pods if pod is not None), "")


@contextmanager
def laid_over(cache: Cache, states: Collection[NodeState]) -> Iterator[None]:
    """Let the index show these nodes so for a while."""
    cluster = cache.cluster
    before = [cluster.line(state.product)[state.name] for state in states]
    try:
        for state in states:
            cluster.put(state)
        yield
    finally:
        for state in before:
            cluster.put(state)


def _overfull(job: _Try, row: Product, found: JobPlacement) -> dict[str, NodeState]:
    """Nodes that got pods which cannot be there together, with what some may have."""
    by_name = {pod.name: pod for pod in job.new}
    on: defaultdict[str, list[Placement]] = defaultdict(list)
    for place in found.pods:
        if place.pod in by_name:
            on[place.node].append(place)
    over: dict[str, NodeState] = {}
    is_uniform = len(set(job.asks)) == 1  # then one pod fits: that has been seen to
    for node, places in on.items():
        if is_uniform and len(places) == 1:
            continue
        kept = capacity.together(job.cache, node, [(by_name[p.pod], p) for p in places])
        if len(kept) < len(places):
            mask = sum(chips.mask_of(place.chips) for place in kept)
            state = job.cache.cluster.line(row)[node]
            over[node] = replace(state, free=mask)
    return over


def _promises(
    job: _Try, places: Sequence[Placement], now_ns: int
) -> tuple[Assumed, ...]:
    new = {pod.name: pod for pod in job.new}
    masks = {each: chips.mask_of(each) for each in {place.chips for place in places}}
    known: dict[object, Mapping[str, str]] = {}
    is_of_one_leaf = len({place.leaf for place in places}) == 1
    times: dict[str, int] = {}
    found = []
    for place in places:
        pod = new.get(place.pod)
        if pod is None:
            continue
        node, leaf = place.node, _leaf(job, place, is_of_one_leaf=is_of_one_leaf)
        record = job.cache.record(node, pod.shape.resource)
        times[node] = max(record.next_time(now_ns), times.get(node, 0))
        found.append(
            Assumed(
                uid=pod.uid,
                node=node,
                chips=masks[place.chips],
                predicate_time=times[node],
                shape=pod.shape,
                planned=True,
                extra=_extra(job, pod, place, leaf, known),
                reason=f"{place.reason}, as its job was planned",
            )
        )
        times[node] += 1
    return tuple(found)


def _extra(
    job: _Try,
    pod: NpuPod,
    place: Placement,
    leaf: LeafMark | None,
    known: dict[object, Mapping[str, str]],
) -> Mapping[str, str]:
    """What is written on a pod of a job besides its chips; on many it is the same."""
    if job.is_one:
        record = job.cache.record(place.node, pod.shape.resource)
        by_itself = claim.alone(record, pod)
        return by_itself | job_kind_marks.render(Marks(leaf=leaf))
    seat = job.gang.seats[pod.uid]
    rank = job_rules.rank_to_write(
        place.rank,
        written=seat.traits.annotations.get(job_kind_marks.RANK_INDEX, ""),
        owner_kind=seat.owner_kind,
        of_minimum=seat.membership.job.startswith("Minimum/"),
    )
    key = rank, place.superpod_rank, place.superpod, leaf
    said = known.get(key)
    if said is None:
        said = known[key] = job_kind_marks.render(
            Marks(
                is_distributed=True,
                rank=rank or "",
                superpod_rank=place.superpod_rank,
                superpod=place.superpod,
                leaf=leaf,
            )
        )
    return said


def _leaf(job: _Try, place: Placement, *, is_of_one_leaf: bool) -> LeafMark | None:
    """What the job makes of the leaf of one of its pods; only 2.0 says that."""
    network = job.world.network
    if not place.leaf or network is None or network.version is not Version.TWO:
        return None
    if is_of_one_leaf:
        return LeafMark()
    if place.leaf_use is not LeafUse.SHARED:
        return LeafMark(use=place.leaf_use, is_healthy=place.leaf_healthy)
    shared = (leaf for leaf in network.leaves if leaf.name == place.leaf)
    return LeafMark(
        use=place.leaf_use,
        is_healthy=place.leaf_healthy,
        address=next((leaf.address for leaf in shared), ""),
    )
