"""Plan an elastic job with as many of its pods as fit, and at least those it needs.

The members that the job needs come first, then the others by rank. A plan has the first
so many of them. A job of logical SuperPoDs, or of replicas of several hosts, gets whole
ones only.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import accumulate

from extender.cache.reservations import Reservation
from extender.gang.gang import Gang
from extender.gang.needed_members import Needed
from extender.planning.followers import Follower
from extender.planning.units import Unit, WaitingUnits
from extender.refusals import Refusal, describe_parts, refuse_for_job
from scheduler_core.products.lookup import SP_BLOCK
from scheduler_core.wire.annotations import parse_count
from scheduler_core.wire.pods import NpuPod

Outcome = tuple[Reservation, ...] | Refusal

#: Numbers of pods that are tried one by one, from the largest. Among more of them, the
#: largest is searched for as if each smaller number fitted as well.
_TRIED_EACH = 8


def plan_most(  # noqa: PLR0913  # what a plan depends on
    gang: Gang,
    pods: Mapping[str, NpuPod],
    followers: Mapping[str, Follower],
    plan_without: Callable[[Collection[str]], Outcome],
    *,
    without: Collection[str] = (),
    units: Sequence[Unit] = (),
    may_be_smaller: bool = True,
    most: int | None = None,
) -> Outcome:
    """Return the plan of a job with as many pods as fit; or why too few fit.

    Args:
        gang: The job. The pods that it needs exist.
        pods: {UID: pod}.
        followers: {UID: member without a pod}, which the plan is to have as well.
        plan_without: Plans all unbound members but those with the given UIDs.
        without: UIDs of unbound members that it never plans.
        units: Members of which it plans all of a unit or none.
        may_be_smaller: Whether a plan of fewer pods is wanted. It is not if there may
            be other nodes.
        most: Number of existing pods that a plan has at most. The job needs no more.

    Returns:
        The refusal is that of the fewest pods that the job may have.

    Cost:
        One plan if all members fit or all are needed. Otherwise two more if too few
        fit, else up to `_TRIED_EACH`, or the logarithm of the number of members.
        As many for each kind if the job runs and too few fit.
    """
    has_too_many = most is not None and gang.unbound_count > most
    outcome = None if has_too_many else plan_without(())
    if outcome is not None and (
        not isinstance(outcome, Refusal) or not gang.has_optional
    ):
        return outcome
    need = _order_by_need(gang, followers)
    chips = {uid: follower.pod.total for uid, follower in followers.items()}
    chips |= {uid: pods[uid].total for uid in gang.members if uid in pods}
    uids = [uid for uid in need.uids if uid not in without]
    if outcome is None:
        outcome, uids = _plan_at_most(gang, chips, uids, units, most or 0, plan_without)
        if not isinstance(outcome, Refusal):
            return outcome

    def plan_some(some: Sequence[str], least: int) -> Outcome | None:
        """Plan as many of these as fit, the first; None if no number is legal."""
        others = set(need.uids).difference(some)
        counts = [
            count
            for count in _legal_counts(gang, chips, some, units)
            if least <= count < len(uids)
        ]
        return _most(counts, lambda count: plan_without({*some[count:], *others}))

    fewer = plan_some(uids, need.least) or outcome
    if not may_be_smaller:
        return fewer if isinstance(fewer, Refusal) else outcome
    if isinstance(fewer, Refusal) and not gang.lacks_successors:
        # it runs: a kind without room keeps no other kind away
        of_kinds = (plan_some(some, 1) for some in _by_kind(gang, uids))
        return next((one for one in of_kinds if isinstance(one, tuple)), fewer)
    return fewer


def refuse_parts(
    gang: Gang,
    followers: Mapping[str, Follower],
    units: Sequence[Unit],
    without: Collection[str],
) -> Refusal | None:
    """Return that too few pods are there with all of their unit; None if enough are.

    Args:
        followers: {UID: member without a pod} that a plan is to have.
        without: UIDs of unbound members that no plan has.
    """
    need = _order_by_need(gang, followers)
    count = len({*need.uids}.difference(without))
    least = 1 if gang.is_running else need.least
    if count >= least:
        return None
    return refuse_for_job(describe_parts(count, least, units[0].division.name))


def _order_by_need(gang: Gang, followers: Mapping[str, Follower]) -> Needed:
    return gang.order_by_need([(uid, f.absent.role) for uid, f in followers.items()])


def _plan_at_most(
    gang: Gang,
    chips: Mapping[str, int],
    uids: Sequence[str],
    units: Sequence[Unit],
    most: int,
    plan_without: Callable[[Collection[str]], Outcome],
) -> tuple[Outcome, list[str]]:
    """Return the plan of the first so many members, and the UIDs that it has.

    Args:
        chips: {UID of a member: number of its chips}.
        uids: Unbound members, those that the job needs first.
        most: Number of existing pods that it has at most.
    """
    existing = accumulate(uid in gang.members for uid in uids)
    few = [uid for uid, count in zip(uids, existing, strict=True) if count <= most]
    counts = _legal_counts(gang, chips, few, units)
    first = few[: counts[-1]] if counts else few
    return plan_without(set(uids).difference(first)), first


def _by_kind(gang: Gang, uids: Sequence[str]) -> list[list[str]]:
    """Return these members in a list for each kind; none if they are of one kind."""
    by_kind: dict[str, list[str]] = {}
    for uid in uids:
        if uid in gang.members:
            by_kind.setdefault(gang.kind_of(uid), []).append(uid)
    return list(by_kind.values()) if len(by_kind) > 1 else []


def _most(
    counts: Sequence[int], plan_first: Callable[[int], Outcome]
) -> Outcome | None:
    """Return the plan of the largest of these numbers of pods that fits.

    Args:
        counts: Numbers in ascending order.

    Returns:
        If none fits, the refusal of the first. None if there is none.
    """
    if not counts:
        return None
    tried: dict[int, Outcome] = {}

    def fails(count: int) -> bool:
        tried[count] = plan_first(count)
        return isinstance(tried[count], Refusal)

    least, *more = counts
    if fails(least):
        return tried[least]
    return tried[_largest(more, fails, least)]


def _largest(counts: Sequence[int], fails: Callable[[int], bool], default: int) -> int:
    """Return the largest number of pods that does not fail; `default` if each fails.

    Args:
        counts: Numbers in ascending order.
    """
    if len(counts) <= _TRIED_EACH:
        fitting = (count for count in reversed(counts) if not fails(count))
        return next(fitting, default)
    at = bisect_left(counts, x=True, key=fails)
    return counts[at - 1] if at else default


def _legal_counts(
    gang: Gang,
    chips: Mapping[str, int],
    uids: Sequence[str],
    units: Sequence[Unit],
) -> list[int]:
    """Return how many of these unbound members make whole logical SuperPoDs and units.

    Any number does for a job without either.

    Args:
        chips: {UID of a member: number of its chips}.
    """
    split = _split_counts(uids, units) if units else ()
    traits = next(iter(gang.members.values())).traits
    block = parse_count(traits.annotations.get(SP_BLOCK, "")) or 1
    placed = sum(chips.get(uid, 0) for uid in gang.placed)
    totals = accumulate(chips.get(uid, 0) for uid in uids)
    return [
        count
        for count, total in enumerate(totals, start=1)
        if count not in split and not (placed + total) % block
    ]


def _split_counts(uids: Sequence[str], units: Sequence[Unit]) -> set[int]:
    """Return how many of these members, the first, have some of a unit but not all."""
    position = {uid: at for at, uid in enumerate(uids, start=1)}
    split: set[int] = set()
    for unit in units:
        positions = [position[uid] for uid in unit.uids if uid in position]
        if positions:
            is_cut = len(positions) < len(unit.uids)  # the others are not among these
            last = len(uids) + 1 if is_cut else max(positions)
            split.update(range(min(positions), last))
    return split


def why_unplanned(gang: Gang, uid: str, units: WaitingUnits) -> str:
    """Return why a pod of a job has no planned node, as a sentence for people."""
    if lacking := units.why_lacking(uid):
        return lacking
    if not gang.lacks_members:
        return f"its job runs with {gang.part_text}: no room for more"
    if gang.plan.places:
        return "its job starts with fewer pods: this one joins as room comes"
    if gang.plan.text:
        return f"its job does not fit: {gang.plan.text}"
    return "its job waits"
