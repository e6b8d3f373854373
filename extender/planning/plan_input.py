"""Read a job with its pods, requests and nodes for one plan, or why it has none."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from extender.cache.cache import Cache
from extender.cache.overlay import ClusterView
from extender.cache.requests import Resources
from extender.gang.gang import Gang
from extender.gang.membership import Member as GangMember
from extender.planning.followers import Follower, reserved_siblings
from extender.planning.offered_nodes import OfferedNodes, kinds_of
from extender.refusals import Refusal, describe_predecessor, refuse_for_job
from scheduler_core.node import chips
from scheduler_core.node.decision import LeafUse, Placement
from scheduler_core.placement.gang_on_superpods import SuperPods
from scheduler_core.placement.job_rules import Profile
from scheduler_core.placement.siblings import Siblings
from scheduler_core.topology.leaves import Network
from scheduler_core.wire.pods import NpuPod


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
class PlanInput:
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
    #: {rank that a terminating pod got at bind and has: its UID}
    leaving: Mapping[int, str]


def read_job(  # noqa: PLR0913  # what a plan depends on
    cache: Cache,
    gang: Gang,
    topology: TopologySnapshot,
    view: ClusterView | None,
    *,
    offered: OfferedNodes,
    left_out: Collection[str],
    followers: Mapping[str, Follower],
) -> PlanInput | Refusal:
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
    leaving = _leaving_ranks(gang) if gang.ending else {}
    if leaving and (waiting := _find_waiting(gang, pods, members, leaving)):
        pods = [pod for pod in pods if pod.uid not in waiting]
        if not gang.is_running or gang.bound.issuperset(pod.uid for pod in pods):
            return _refuse_rank(gang, leaving, waiting)
    unbound = [pod for pod in pods if pod.uid not in gang.bound]
    resources = sorted({pod.shape.resource for pod in pods})
    if len(resources) > 1:
        named = " and ".join(resources)
        return refuse_for_job(f"a job gets NPUs of one kind, its pods ask for {named}")
    places = {
        pod.name: _present_place(cache, pod) for pod in pods if pod.uid in gang.bound
    }
    kinds = kinds_of(gang, pods, members)
    return PlanInput(
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
        leaving=leaving,
    )


def _leaving_ranks(gang: Gang) -> dict[int, str]:
    """Return {rank: UID} of terminating pods whose rank was chosen at bind."""
    uids = (gang.ending & gang.nodes.keys()) - gang.outdated
    memberships = {
        uid: gang.members[uid].membership
        for uid in uids
        if gang.members[uid].owner_kind == "ReplicaSet"
        or gang.members[uid].membership.job.startswith("Minimum/")
    }
    return {m.rank: uid for uid, m in memberships.items() if m.rank is not None}


def _find_waiting(
    gang: Gang,
    pods: Sequence[NpuPod],
    members: Mapping[str, GangMember],
    leaving: Mapping[int, str],
) -> dict[str, int]:
    """Return {UID: rank} of unbound pods that wait until a rank is free.

    The pods that a job needs have its first ranks, also those that terminating pods
    still have. If it has fewer, those that it can do without wait as well: with them it
    would run without its first ranks.

    Args:
        pods: All pods of the job that may be planned, by rank.
        leaving: {rank of a terminating pod: its UID}.
    """
    is_short = gang.lacks_members
    ranks = {
        pod.uid: rank
        for rank, pod in _number(pods, members, () if is_short else leaving)
        if pod.uid not in gang.bound
    }
    if leaving.keys().isdisjoint(ranks.values()):
        return {}
    need = gang.order_by_need()
    optional = frozenset(need.uids[need.least :] if is_short else ())
    return {
        uid: rank for uid, rank in ranks.items() if rank in leaving or uid in optional
    }


def _refuse_rank(
    gang: Gang, leaving: Mapping[int, str], waiting: Mapping[str, int]
) -> Refusal:
    """Return that a pod waits for the one whose rank it is to get."""
    rank = next(rank for rank in waiting.values() if rank in leaving)
    uid = leaving[rank]
    name, node = gang.members[uid].name, gang.nodes[uid]
    return refuse_for_job(describe_predecessor(name, str(rank), node))


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


def resource_of(cache: Cache, gang: Gang) -> str:
    """Return the resource that a job's pods ask for, such as `huawei.com/Ascend910`.

    Returns "" if the cache has no pod of the job.
    """
    pods = (cache.pods.get(uid) for uid in gang.members)
    return next((pod.shape.resource for pod in pods if pod is not None), "")


def number_pods(job: PlanInput) -> Iterator[tuple[int, NpuPod]]:
    """Yield each pod of a job with its rank.

    A pod that states its rank keeps it; if several state one rank, the first of them.
    The others get the smallest ranks that no pod states, in the order of `job.pods`,
    and none that a terminating pod has.
    """
    return _number(job.pods, job.members, job.leaving)


def _number(
    pods: Sequence[NpuPod],
    members: Mapping[str, GangMember],
    used: Collection[int],
) -> Iterator[tuple[int, NpuPod]]:
    """Yield pods with their ranks as `number_pods` does.

    Args:
        used: Ranks that no pod gets unless it states them.
    """
    ranks = {pod.uid: members[pod.uid].membership.rank for pod in pods}
    stated = {*ranks.values(), *used}
    others = (number for number in count() if number not in stated)
    taken: set[int | None] = {None}
    for pod in pods:
        rank = ranks[pod.uid]
        yield next(others) if rank in taken or rank is None else rank, pod
        taken.add(rank)
