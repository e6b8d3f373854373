"""Whom to evict for a pod, and for a whole job."""

from collections.abc import Iterable
from dataclasses import replace

from extender.cache import events
from extender.cache.cache import Cache
from extender.cache.requests import Resources
from extender.cache.reservations import Owner
from extender.planning.plan_input import TopologySnapshot
from extender.preemption import victims
from extender.preemption.attempt import AttemptStarted
from scheduler_core.node import chips
from scheduler_core.placement.job_rules import Profile
from tests.support.caches import apply, cluster, free, kept, known_pod
from tests.support.watched import HIGH, claim, high, low, member, pod_update
from tests.support.watched import node as node_seen


def for_pod(
    cache: Cache, *names: str, protected: Iterable[str] = ()
) -> AttemptStarted | None:
    wanting = known_pod(cache, "high")
    return victims.for_pod(cache, wanting, names or ("n1", "n2"), set(protected))


def gone(attempt: AttemptStarted | None) -> list[str]:
    return (
        [] if attempt is None else [victim.name for victim in attempt.attempt.victims]
    )


def nominated(attempt: AttemptStarted | None) -> dict[str, tuple[int, ...]]:
    if attempt is None:
        return {}
    return {node: chips.ids_of(mask) for node, mask in attempt.chips.items()}


def test_the_ring_with_the_least_to_lose_is_freed() -> None:
    cache = cluster(
        low("a", "n1", (0,), priority=1),
        low("b", "n1", (4, 5)),
        low("c", "n2", (0, 1, 2, 3, 4, 5, 6, 7), priority=5),
        high(4),
        nodes=("n1", "n2"),
    )

    attempt = for_pod(cache)

    assert (gone(attempt), nominated(attempt)) == (["b"], {"n1": (4, 5, 6, 7)})


def test_nobody_goes_for_a_pod_without_a_higher_priority() -> None:
    cache = cluster(low("a", "n1", (0,)), low("b", "n1", (4,)), high(4, priority=0))

    assert for_pod(cache) is None


def test_nobody_goes_where_there_is_room_or_never_any() -> None:
    fits = cluster(low("a", "n1", (0,)), high(4))
    too_many = cluster(low("a", "n1", (0,)), low("b", "n1", (4,)), high(3))

    assert for_pod(fits) is None
    assert for_pod(too_many) is None


def test_nobody_goes_from_a_node_that_has_not_been_offered() -> None:
    cache = cluster(
        low("a", "n1", range(8), priority=5),
        low("b", "n2", range(8)),
        high(8),
        nodes=("n1", "n2"),
    )

    assert gone(for_pod(cache, "n1")) == ["a"]


def test_who_may_not_go_stays_and_others_go() -> None:
    cache = cluster(low("a", "n1", (0,)), low("b", "n1", (4,), priority=5), high(4))

    assert gone(for_pod(cache)) == ["a"]
    assert gone(for_pod(cache, protected=["uid-a"])) == ["b"]
    assert for_pod(cache, protected=["uid-a", "uid-b"]) is None


def test_a_pod_whose_chips_are_not_confirmed_is_no_victim() -> None:
    waits = pod_update("a", node="n1", annotations=claim(range(8)), count=8)
    cache = cluster(waits, high(8))

    assert for_pod(cache) is None


def test_who_is_ending_is_counted_on_and_not_evicted() -> None:
    a, b = low("a", "n1", (0,)), low("b", "n1", (4,))
    ending = replace(b, pod=replace(b.pod, deleting=True))
    cache = cluster(a, ending, high(4))

    attempt = for_pod(cache)

    assert attempt is not None
    assert (attempt.attempt.victims, nominated(attempt)) == ((), {"n1": (4, 5, 6, 7)})


def test_a_job_of_several_goes_as_a_whole_or_not_at_all() -> None:
    cache = cluster(
        low("a", "n1", range(8), job="j"),
        low("b", "n2", range(8), job="j"),
        high(8),
        nodes=("n1", "n2"),
    )

    assert gone(for_pod(cache, "n1")) == ["a", "b"]
    assert for_pod(cache, "n1", protected=["uid-b"]) is None
    apply(cache, low("b", "n2", range(8), job="j", priority=HIGH))
    assert for_pod(cache, "n1") is None


def test_chips_that_are_kept_for_another_are_freed_for_nobody_else() -> None:
    cache = cluster(low("a", "n1", range(8)), high(8))
    attempt = for_pod(cache)
    assert attempt is not None
    mine = kept("uid-other", "n1", attempt.chips["n1"], owner=Owner.PREEMPTION)

    apply(cache, mine)

    assert for_pod(cache) is None
    apply(cache, events.Released(kept_for="uid-other", owner=Owner.PREEMPTION))
    assert for_pod(cache) == attempt


def test_cpu_that_nobody_would_free_is_no_room() -> None:
    busy = replace(low("a", "n1", range(8)), ask=Resources(1000, 0))
    other = events.OtherPodUpdated(uid="uid-o", node="n1", ask=Resources(8000, 0))
    wants = replace(high(8), ask=Resources(4000, 0))
    cache = cluster(busy, other, wants)
    apply(
        cache,
        replace(node_seen("n1"), allocatable_resources=Resources(10_000, 1 << 40, 110)),
    )

    assert for_pod(cache) is None

    apply(cache, replace(other, ask=Resources(6000, 0)))
    assert gone(for_pod(cache)) == ["a"]
    assert cache.requests.of("n1") == Resources(7000, 0, 2)  # as before


def job(
    cache: Cache,
    *names: str,
    protected: Iterable[str] = (),
    profile: Profile = Profile.SEED,
) -> AttemptStarted | None:
    (gang,) = (each for each in cache.gangs.values() if each.unbound)
    offered = names or ("n1", "n2", "n3")
    topology = TopologySnapshot(profile=profile)
    return victims.for_job(cache, gang, offered, set(protected), topology)


def wanting(*priorities: int) -> list[events.PodUpdated]:
    some = enumerate(priorities or (HIGH, HIGH))
    return [member(f"w{n}", job="want", count=8, priority=each) for n, each in some]


NODES = ("n1", "n2", "n3")


def test_for_a_job_the_fewest_nodes_are_freed() -> None:
    cache = cluster(
        low("a", "n1", (0,)),
        low("b", "n2", (0, 1), priority=5),
        *wanting(),
        nodes=NODES,
    )

    attempt = job(cache)

    assert gone(attempt) == ["a"]
    assert nominated(attempt) == {"n1": tuple(range(8)), "n3": tuple(range(8))}
    assert [free(cache, name) for name in NODES] == [
        (1, 2, 3, 4, 5, 6, 7),
        (2, 3, 4, 5, 6, 7),
        tuple(range(8)),
    ]


def test_for_a_job_that_would_not_fit_all_the_same_nobody_goes() -> None:
    cache = cluster(
        low("a", "n1", (0,)),
        low("b", "n2", (0,), priority=HIGH),
        *wanting(),
        nodes=("n1", "n2"),
    )

    assert job(cache, "n1", "n2") is None


def test_for_a_job_with_room_nobody_goes() -> None:
    cache = cluster(low("a", "n1", (0,)), *wanting(), nodes=NODES)

    assert job(cache) is None


def test_the_least_of_a_jobs_pods_must_have_the_higher_priority() -> None:
    tenants = [low("a", "n1", (0,), priority=10), low("b", "n2", (0,), priority=10)]
    cache = cluster(*tenants, *wanting(HIGH, 10), nodes=("n1", "n2"))

    assert job(cache, "n1", "n2") is None


def test_a_victims_whole_job_goes_for_a_job_too() -> None:
    cache = cluster(
        low("a", "n1", range(8), job="j"),
        low("b", "n4", range(8), job="j"),
        *wanting(),
        nodes=("n1", "n2", "n4"),
    )

    attempt = job(cache, "n1", "n2")

    assert gone(attempt) == ["a", "b"]
    assert sorted(nominated(attempt)) == ["n1", "n2"]


def allow_cpu(cache: Cache, cpu: int, *names: str) -> None:
    """Let nodes have this many millicores."""
    for name in names:
        offered = Resources(cpu, 1 << 40, 110)
        apply(cache, replace(node_seen(name), allocatable_resources=offered))


def asks_cpu(seen: events.PodUpdated, cpu: int) -> events.PodUpdated:
    return replace(seen, ask=Resources(cpu, 0))


def test_nobody_goes_for_a_pod_of_its_job_that_is_ending() -> None:
    b = low("b", "n2", range(8), job="j", priority=HIGH)
    a = low("a", "n1", range(8), job="j")
    ending = replace(a, pod=replace(a.pod, deleting=True))
    cache = cluster(ending, b, high(8), nodes=("n1", "n2"))

    attempt = for_pod(cache, "n1")

    assert (gone(attempt), nominated(attempt)) == ([], {"n1": tuple(range(8))})
    apply(cache, low("b", "n2", range(8), job="j"))
    assert gone(for_pod(cache, "n1")) == []
    assert gone(for_pod(cache, "n1", protected=["uid-b"])) == []


def test_a_pod_goes_for_its_cpu_where_chips_are_free() -> None:
    cache = cluster(
        asks_cpu(low("a", "n1", (0,)), 6000),
        asks_cpu(low("b", "n1", (1,), priority=5), 1000),
        asks_cpu(high(4), 5000),
    )
    allow_cpu(cache, 10_000, "n1")

    assert gone(for_pod(cache)) == ["a"]


def test_a_node_with_chips_and_too_little_cpu_hides_no_other() -> None:
    cache = cluster(
        asks_cpu(low("a", "n1", (0,)), 100),
        events.OtherPodUpdated(uid="uid-o", node="n1", ask=Resources(9000, 0)),
        asks_cpu(low("b", "n2", range(8), priority=5), 6000),
        asks_cpu(high(4), 5000),
        nodes=("n1", "n2"),
    )
    allow_cpu(cache, 10_000, "n1", "n2")

    assert gone(for_pod(cache)) == ["b"]


def test_more_go_for_cpu_than_for_chips_alone() -> None:
    cache = cluster(
        asks_cpu(low("a", "n1", range(4)), 1000),
        asks_cpu(low("b", "n1", (4,), priority=5), 6000),
        asks_cpu(high(4), 5000),
    )
    allow_cpu(cache, 10_000, "n1")

    assert gone(for_pod(cache)) == ["b"]
    apply(cache, asks_cpu(high(8), 5000))
    assert gone(for_pod(cache)) == ["b", "a"]


def test_for_a_job_pods_go_for_their_cpu_too() -> None:
    cache = cluster(
        asks_cpu(low("a", "n1", (0,)), 6000),
        asks_cpu(low("b", "n1", (4, 5, 6, 7), priority=5), 3000),
        *(
            asks_cpu(member(f"w{n}", job="want", count=2, priority=HIGH), 5000)
            for n in range(2)
        ),
    )
    allow_cpu(cache, 10_000, "n1")

    assert gone(job(cache, "n1", profile=Profile.PER_POD)) == ["b", "a"]


def test_no_pod_of_the_job_itself_goes_for_a_job() -> None:
    own = low("w1", "n1", range(8), job="want", priority=0)
    cache = cluster(own, wanting()[0], nodes=("n1",))

    assert job(cache, "n1") is None
