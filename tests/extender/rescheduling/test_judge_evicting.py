"""With evictions: which pods are evicted, and node, chips and number of each place."""

from collections.abc import Mapping
from dataclasses import replace

from extender.cache import events
from extender.cache.cache import Cache
from extender.cache.reservations import Owner
from extender.gang.fault_policy import Switch
from extender.planning.plan_input import TopologySnapshot
from extender.rescheduling.assessment import Assessment, Word
from extender.rescheduling.ends import End, Reach, Replacement
from extender.rescheduling.judge import Question, judge
from extender.rescheduling.moves import KeptPlace, MoveFacts
from scheduler_core.placement.job_rules import Profile
from scheduler_core.products.lookup import Traits
from scheduler_core.rescheduling.ladder import Rung
from tests.extender.rescheduling.jobs import BY_POD, JOB, broken, lone, of_job
from tests.support.caches import apply, cluster, kept
from tests.support.watched import RESOURCE, tenant

ALL = range(8)
PER_POD = TopologySnapshot(profile=Profile.PER_POD)
NAMES = ("n1", "n2", "n3")
POD, WHOLE = End(), End(reach=Reach.JOB)
NEVER = End(replacement=Replacement.NO, reason="the Job would end; write more")


def facts(*names: str, end: End = POD, **parts: object) -> MoveFacts:
    """What was read of the evictions of pods."""
    ends = {f"uid-{name}": end for name in names}
    return MoveFacts(ends=ends, **parts)  # type: ignore[arg-type]  # parts by name


def asked(
    cache: Cache, known: MoveFacts, faulty: Mapping[str, int] | None = None
) -> Assessment:
    """The assessment; unless said otherwise chip 0 of `a` is broken."""
    question = Question(job=JOB, faulty=faulty or {"uid-a": 1}, facts=known)
    return judge(cache, question, lambda _gang: PER_POD)


def pair(**parts: object) -> tuple[events.PodUpdated, events.PodUpdated]:
    """A job of two: `a` has all of n1, `b` all of n2."""
    return (
        of_job("a", "n1", ALL, **parts),  # type: ignore[arg-type]  # parts by name
        of_job("b", "n2", ALL, **parts),  # type: ignore[arg-type]  # parts by name
    )


def place(name: str, home: str, node: str, **parts: object) -> KeptPlace:
    """All chips of a node, for the successor of a pod of the job."""
    kept = KeptPlace(
        uid=f"uid-{name}",
        name=name,
        namespace="default",
        slot=("", (0, 0)),
        resource=RESOURCE,
        node=node,
        chips=255 if node else 0,
        home=home,
        annotations={"distributed-job": "true"} if node else {},
    )
    return replace(kept, **parts)  # type: ignore[arg-type]  # parts by name


def test_what_an_eviction_does_is_read_first_of_the_fault_pods_then_of_all() -> None:
    cache = cluster(*pair(), broken("n1", 0), nodes=NAMES)

    first = asked(cache, facts())
    second = asked(cache, facts("a"))
    third = asked(cache, facts("a", "b"))

    assert (first.word, set(first.unread)) == (Word.MOVES, {"uid-a"})
    assert set(second.unread) == {"uid-a", "uid-b"}
    assert [*first.kept_places, *second.kept_places, *third.unread] == []
    assert third.kept_places == (place("a", "n1", "n3"), place("b", "n2", "n2"))


def test_a_controller_that_makes_pods_again_late_is_a_remark() -> None:
    cache = cluster(*pair(), broken("n1", 0), nodes=NAMES)

    found = asked(cache, facts("a", "b", end=End(remark="after 600 s")))

    assert found.remarks == ("after 600 s",)
    assert found.text.endswith(". after 600 s")


def test_a_pod_that_takes_the_others_with_it_is_evicted_alone() -> None:
    cache = cluster(*pair(), broken("n1", 0), nodes=NAMES)

    found = asked(cache, facts("a", end=WHOLE))

    assert found.kept_places == (
        place("a", "n1", "n3"),
        place("b", "n2", "n2", is_evicted=False),
    )


def test_a_pod_that_takes_the_others_with_it_leaves_no_rung_but_the_job() -> None:
    cache = cluster(*pair(says=BY_POD), broken("n1", 0), nodes=NAMES)

    assert asked(cache, facts("a")).rung is Rung.PODS
    assert asked(cache, facts("a", end=WHOLE)).rung is Rung.JOB


def test_nobody_goes_if_that_would_end_the_job_and_the_reason_is_told() -> None:
    cache = cluster(*pair(), broken("n1", 0), nodes=NAMES)

    found = asked(cache, facts("a", end=NEVER))

    assert (found.word, found.kept_places) == (Word.STAYS, ())
    assert found.text.startswith("No pod goes: the Job would end; write more. If ")


def test_nobody_goes_if_all_evictions_together_would_end_the_job() -> None:
    cache = cluster(*pair(), broken("n1", 0), nodes=NAMES)

    assert asked(cache, facts("a", "b", end=NEVER)).word is Word.STAYS


def test_numbers_slots_and_annotations_are_those_of_the_pods_that_go() -> None:
    """The scheduler has numbered pods of a Deployment; others number theirs."""
    pods = [
        replace(
            one,
            pod=replace(
                one.pod, annotations={**one.pod.annotations, "hccl/rankIndex": rank}
            ),
            member=replace(one.member, owner_kind=kind),
        )
        for one, rank, kind in zip(
            (of_job("a", "n1", ALL, rank=1), of_job("b", "n2", ALL, rank=0)),
            ("1", "0"),
            ("ReplicaSet", "Job"),
            strict=True,
        )
        if one.member is not None
    ]
    cache = cluster(*pods, broken("n1", 0), nodes=NAMES)

    found = asked(cache, facts("a", end=WHOLE))

    assert [(each.name, each.slot, each.annotations) for each in found.kept_places] == [
        ("a", ("", (1, 0)), {"distributed-job": "true", "hccl/rankIndex": "1"}),
        ("b", ("", (0, 0)), {"distributed-job": "true"}),
    ]


def test_pods_that_were_asked_to_go_count_as_gone_and_keep_their_places() -> None:
    """`a` goes to n3, and leaves n1 to `b`, but for the broken chip."""
    pods = pair(says=BY_POD)
    its_place = kept(JOB, "n3", 0xFF, owner=Owner.PREEMPTION)
    cache = cluster(
        *pods, broken("n1", 0), broken("n2", 1), its_place, nodes=(*NAMES, "n4")
    )
    going = facts("b", asked=frozenset({"uid-a"}))

    found = asked(cache, going, {"uid-b": 2})

    assert found.kept_places == (place("b", "n2", "n4"),)
    assert asked(cache, going, {"uid-a": 1}).word is Word.UNASKED


def test_chips_of_a_pod_that_was_asked_to_go_are_room_for_others() -> None:
    pods = of_job("a", "n1", ALL, says=BY_POD), of_job("b", "n2", ALL, says=BY_POD)
    cache = cluster(*pods, broken("n2", 1), nodes=("n1", "n2"))

    alone = asked(cache, facts("b"), {"uid-b": 2})
    with_room = asked(cache, facts("b", asked=frozenset({"uid-a"})), {"uid-b": 2})

    assert alone.word is Word.NO_SPARE
    assert with_room.kept_places == (place("b", "n2", "n1"),)


def test_what_is_kept_for_pods_that_still_stay_counts_as_free() -> None:
    its_place = kept(JOB, "n3", 0xFF, owner=Owner.PREEMPTION)
    cache = cluster(*pair(says=BY_POD), broken("n1", 0), its_place, nodes=NAMES)
    before = place("a", "n1", "n3")

    assert asked(cache, facts("a")).word is Word.NO_SPARE
    assert asked(cache, facts("a", kept_places=(before,))).kept_places == (before,)


def test_home_chips_that_are_kept_for_a_pod_that_stays_count_as_free() -> None:
    """Healthy pods move where only that makes room: `b` gives n2 to `a`."""
    pods = (
        of_job("a", "n1", ALL),
        of_job("b", "n2", (0, 1, 2, 3)),
        tenant("x", "n3", (4, 5, 6, 7)),
    )
    at_home = kept(JOB, "n2", 0x0F, owner=Owner.PREEMPTION)
    cache = cluster(*pods, broken("n1", 0), at_home, nodes=NAMES)
    before = place("b", "n2", "n2", chips=0x0F)

    found = asked(cache, facts("a", end=WHOLE, kept_places=(before,)))

    assert [(each.name, each.node, each.chips) for each in found.kept_places] == [
        ("a", "n2", 0xFF),
        ("b", "n3", 0x0F),
    ]
    assert asked(cache, facts("a", end=WHOLE)).word is Word.NO_SPARE


def test_a_node_whose_fault_sent_pods_away_is_the_last_choice() -> None:
    cache = cluster(*pair(says=BY_POD), broken("n1", 0), nodes=(*NAMES, "n4"))

    assert asked(cache, facts("a")).kept_places == (place("a", "n1", "n3"),)
    avoiding = facts("a", avoid=frozenset({"n3"}))
    assert asked(cache, avoiding).kept_places == (place("a", "n1", "n4"),)
    apply(cache, tenant("x", "n4", (1,)))
    assert asked(cache, avoiding).kept_places == (place("a", "n1", "n3"),)


def elastic() -> list[events.PodUpdated]:
    """Three pods of a job that goes on with two."""
    places = ("a", "n1"), ("b", "n2"), ("c", "n3")
    return [of_job(name, on, ALL, least=2) for name, on in places]


def test_an_elastic_job_loses_its_fault_pod_and_no_place_is_kept() -> None:
    cache = cluster(*elastic(), broken("n2", 0), nodes=NAMES)

    first = asked(cache, facts(), {"uid-b": 1})
    found = asked(cache, facts("b"), {"uid-b": 1})

    assert (first.word, set(first.unread)) == (Word.SHRINKS, {"uid-b"})
    assert (found.word, found.kept_places) == (Word.SHRINKS, (place("b", "n2", ""),))


def test_an_elastic_job_does_not_shrink_if_all_its_pods_end_with_one() -> None:
    cache = cluster(*elastic(), broken("n2", 0), nodes=NAMES)

    assert asked(cache, facts("b", end=WHOLE), {"uid-b": 1}).word is Word.NO_SPARE


def test_pods_return_only_to_places_without_marks_of_the_network() -> None:
    traits = Traits(labels={"tor-affinity": "normal-schema"})
    pods = [
        replace(one, member=replace(one.member, traits=traits))
        for one in pair()
        if one.member is not None
    ]
    cache = cluster(*pods, broken("n1", 0), nodes=NAMES)

    found = asked(cache, facts("a", end=WHOLE))

    assert (found.word, found.why) == (
        Word.STAYS,
        "jobs in SuperPoDs or under leaf switches do not go as a whole yet",
    )


def test_a_pod_by_itself_says_how_it_ends_and_whose_it_is() -> None:
    alone = lone("a", "n1", (0, 1), **{"fault-scheduling": "force"})
    owned = replace(alone, pod=replace(alone.pod, owner="ReplicaSet/default/r"))
    cache = cluster(owned, broken("n1", 0), nodes=("n1", "n2"))
    question = Question(job="uid-a", faulty={"uid-a": 1}, facts=facts("a"))

    found = judge(cache, question, lambda _gang: PER_POD)

    assert (found.switch, found.owner) == (Switch.FORCE, "ReplicaSet/default/r")
    assert [
        (each.node, each.chips, each.annotations) for each in found.kept_places
    ] == [("n2", 3, {"distributed-job": "false", "hccl/rankIndex": "0"})]
    assert found.text == (
        "By evictions the fault pods of its job go (a). Places: a on n2 (chips 0,1)"
    )


def test_what_is_done_is_told_as_such() -> None:
    cache = cluster(*pair(), broken("n1", 0), nodes=NAMES)
    full = cluster(*pair(), broken("n1", 0), nodes=("n1", "n2"))

    assert asked(cache, facts("a", end=WHOLE)).text == (
        "By evictions all pods of its job go (a, b). Places: a on n3 (chips "
        "0,1,2,3,4,5,6,7); 1 return to their nodes and chips"
    )
    assert asked(full, facts("a", end=WHOLE)).text.startswith(
        "No pod goes, for lack of a place: "
    )
