"""A node with chips of two product lines: each is decided about as if it were alone."""

from collections.abc import Mapping
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.cache import events
from extender.cache.cache import Cache
from extender.cache.node_state import UNSHOWN_S
from extender.cache.requests import Resources
from extender.cache.reservations import Owner, Reservation
from extender.cache.verify import find_drift
from extender.preemption import victims
from extender.scheduling.capacity import free_on
from extender.scheduling.reserve import Choice
from extender.volcano import victims as volcano_victims
from extender.volcano.protocol import Evictee, Task
from scheduler_core.node import chips
from scheduler_core.node.reasons import Reason
from tests.support.caches import (
    apply,
    barred,
    bind,
    choose,
    conflicts,
    empty,
    free,
    kept,
    lined,
    masks_on,
    node_states,
    set_aside,
    state_of,
    time_of,
)
from tests.support.clock import NOW_S
from tests.support.watched import (
    BOTH,
    CARD,
    CARDS,
    INFERENCE,
    RESOURCE,
    TRAINING,
    Line,
    asking,
    living,
    node,
    report,
)

EIGHT = tuple(range(8))


def test_each_line_has_its_own_free_chips() -> None:
    cache = lined(living("a", TRAINING, (0, 1)), living("b", INFERENCE, (8,)))

    assert free(cache, "n1") == (2, 3, 4, 5, 6, 7)
    assert free(cache, "n1", CARD) == (9,)
    assert (len(cache.index), len(cache.pods)) == (1, 2)


def test_what_is_held_or_broken_of_one_line_is_free_of_the_other() -> None:
    training = replace(TRAINING, held=(0,), releasing=(1,), unhealthy=(7,))
    cache = lined(report("n1", training, INFERENCE))

    assert (free(cache, "n1"), free(cache, "n1", CARD)) == ((2, 3, 4, 5, 6), (8, 9))


def test_lost_ids_bar_their_own_line_only() -> None:
    cache = lined(report("n1", TRAINING, replace(INFERENCE, lost=(8,))))

    assert (barred(cache), barred(cache, resource=CARD)) == (None, Reason.IDS_LOST)


def test_a_line_that_the_kubelet_does_not_offer_is_barred_alone() -> None:
    none = replace(
        node("n1", *BOTH),
        offers=(TRAINING.offer, events.Offer(resource=CARDS.resource, product=CARDS)),
    )
    cache = lined(none)

    assert barred(cache) is None
    assert barred(cache, resource=CARD) is Reason.NO_ALLOCATABLE


def test_an_agent_that_is_silent_is_silent_for_all_its_lines() -> None:
    cache = lined()
    apply(cache, events.Ticked(), now_s=NOW_S + 901)

    assert [barred(cache, resource=of) for of in (RESOURCE, CARD)] == [
        Reason.AGENT_SILENT,
        Reason.AGENT_SILENT,
    ]

    told = report("n1", *BOTH, update_time=NOW_S + 902)
    apply(cache, told, now_s=NOW_S + 902)

    assert [barred(cache, resource=of) for of in (RESOURCE, CARD)] == [None, None]


def test_a_line_that_goes_and_comes_leaves_the_other_as_it_is() -> None:
    cache = lined(living("a", TRAINING, (0,)), living("b", INFERENCE, (8,)))
    before = node_states(cache, RESOURCE)["n1"]

    apply(cache, node("n1", TRAINING))
    assert "n1" not in node_states(cache, CARD)
    assert find_drift(cache, node("n1", TRAINING)) == ""
    apply(cache, node("n1", *BOTH))

    assert free(cache, "n1", CARD) == (9,)
    assert node_states(cache, RESOURCE)["n1"] == before


def test_a_deleted_node_of_two_lines_leaves_nothing_behind() -> None:
    cache = lined(living("a", INFERENCE, (8,)))

    apply(cache, events.PodDeleted(uid="uid-a"), now_s=NOW_S)
    apply(cache, events.NodeUpdated(name="n1"), events.ReportUpdated(node="n1"))
    apply(cache, events.Ticked(), now_s=NOW_S + 10)

    assert (list(cache.nodes), list(cache.index)) == ([], [])


def test_predicate_times_grow_on_each_line() -> None:
    cache = lined(living("a", INFERENCE, (8,)))
    first = bind(cache, asking("b", TRAINING), "n1").reservation
    second = bind(cache, asking("c", TRAINING), "n1").reservation
    other = bind(cache, asking("d", INFERENCE), "n1").reservation

    assert time_of(first) < time_of(second)
    assert (first.chips | second.chips) & other.chips == 0
    assert other.chips == 1 << 9
    assert free(cache, "n1", CARD) == ()
    assert len(free(cache, "n1")) == 6


def test_pods_of_different_lines_are_never_taken_for_each_other() -> None:
    cache = lined()
    bind(cache, asking("a", TRAINING), "n1")

    assert cache.conflicts(asking("b", INFERENCE)) == frozenset()


def test_room_besides_chips_is_one_for_all_lines() -> None:
    attempt = Resources(10_000, 1 << 30, 110)
    cache = lined(replace(node("n1", *BOTH), allocatable_resources=attempt))
    ask = Resources(3_000, 1 << 20)
    for name, line in (("a", TRAINING), ("b", INFERENCE)):
        apply(cache, events.PodUpdated(pod=asking(name, line), ask=ask))
        bind(cache, asking(name, line), "n1")
    runs = living("c", INFERENCE, (9,))
    apply(cache, replace(runs, ask=ask))

    assert free_on(cache, "n1") == attempt.minus(ask.plus(ask).plus(ask))


def test_nodes_that_are_kept_for_a_job_are_kept_in_its_line() -> None:
    cache = lined()
    for name, line in (("a", TRAINING), ("b", INFERENCE)):
        apply(cache, events.PodUpdated(pod=asking(name, line)))
    set_aside(cache, "n1", "Job/default/large")

    assert cache.closed_nodes("uid-a") == {"n1"}
    assert cache.closed_nodes("uid-b") == frozenset()
    assert cache.closed_nodes("uid-never-seen") == {"n1"}


def test_nobody_goes_for_chips_of_another_line() -> None:
    cache = lined(living("a", TRAINING, EIGHT), living("b", INFERENCE, (8, 9)))
    wanting = asking("c", INFERENCE, 2)
    apply(cache, events.PodUpdated(pod=wanting, priority=5))

    attempt = victims.for_pod(cache, wanting, ["n1"])

    assert attempt is not None
    assert [victim.name for victim in attempt.attempt.victims] == ["b"]
    assert (attempt.resource, attempt.chips) == (CARD, {"n1": 0b11 << 8})
    assert not victims.do_help(cache, wanting, "n1", ["uid-a"])
    ((freed_on, mask),) = attempt.chips.items()
    nominated = kept(
        attempt.attempt.beneficiary,
        freed_on,
        mask,
        owner=Owner.PREEMPTION,
        resource=attempt.resource,
    )
    apply(cache, nominated, events.PodDeleted(uid="uid-b"))
    apply(cache, events.Ticked(), now_s=NOW_S + UNSHOWN_S)
    assert free(cache, "n1", CARD) == ()
    assert cache.is_cleared(nominated)
    assert masks_on(cache, state_of(cache, "n1", RESOURCE), freed=True) == {}
    released = events.Released(
        kept_for=attempt.attempt.beneficiary, owner=Owner.PREEMPTION
    )
    apply(cache, released)
    assert free(cache, "n1", CARD) == (8, 9)


@pytest.mark.parametrize(
    ("there", "gone"), [((8, 9), ["uid-card-0"]), ((8,), ["uid-none"])]
)
def test_volcano_is_told_of_those_in_the_way_on_that_line(
    there: tuple[int, ...], gone: list[str]
) -> None:
    """With a free chip something else is wanting: then of those without NPUs."""
    cards = [living(f"card-{at}", INFERENCE, (at + 8,)) for at in range(len(there))]
    cache = lined(living("train", TRAINING, EIGHT), *cards)
    names = ["train", "none", *(each.pod.name for each in cards)]
    evictees = [
        Evictee(
            task=Task(uid=f"uid-{name}", node="n1", priority=name == "card-1"),
            sent=msgspec.Raw(b"{}"),
        )
        for name in names
    ]

    found = volcano_victims.choose(cache, asking("new", INFERENCE), evictees)

    assert [each.task.uid for each in found] == gone


def test_bare_chips_of_each_line_are_there_if_as_many_are_offered() -> None:
    whole = replace(INFERENCE, there=tuple(range(CARDS.chip_count)))
    cache = empty(bare_nodes=True)
    apply(cache, replace(node("n1", TRAINING, whole), inventory=""))
    apply(cache, replace(node("n2", *BOTH), inventory=""), node("n3", *BOTH))

    assert (free(cache, "n1"), free(cache, "n1", CARD)) == (EIGHT, whole.there)
    assert (free(cache, "n2"), barred(cache, "n2", CARD)) == (
        EIGHT,
        Reason.BAD_NODE_REPORT,
    )
    assert (free(cache, "n3"), free(cache, "n3", CARD)) == (EIGHT, (8, 9))


#: What can happen to a line, by the fields of what it says, or by pods.
_STEPS = st.one_of(
    st.tuples(
        st.sampled_from(["held", "releasing", "unhealthy", "lost"]),
        st.sets(st.integers(0, 7), max_size=3),
    ),
    st.tuples(
        st.sampled_from(
            ["claims", "claims", "runs", "ends", "gone", "promised", "off"]
        ),
        st.sets(st.integers(0, 7), min_size=1, max_size=3),
    ),
    st.just(("node", set[int]())),
)


def happened(
    kind: str, name: str, line: Line, ids: tuple[int, ...]
) -> list[events.Change]:
    """What happens to a pod of a line."""
    match kind:
        case "claims" | "runs":
            time = 7 if kind == "claims" else 2**64 - 1
            pod = asking(name, line, node="n1", ids=ids, time=time)
            return [events.PodUpdated(pod=pod)]
        case "ends":
            pod = asking(name, line, node="n1", ids=ids)
            return [events.PodUpdated(pod=replace(pod, phase="Succeeded"))]
        case "gone":
            return [events.PodDeleted(uid=f"uid-{name}")]
        case "promised":
            return [
                kept(
                    f"uid-{name}",
                    "n1",
                    sum(1 << chip for chip in ids),
                    predicate_time=9,
                    shape=asking(name, line).shape,
                    resource=line.product.resource,
                )
            ]
        case _:
            return [events.BindVoided(uid=f"uid-{name}")]


def shift(line: Line, some: set[int]) -> tuple[int, ...]:
    """Of these positions the chips that the line has."""
    return tuple(line.there[at] for at in sorted(some) if at < len(line.there))


@pytest.mark.property
@settings(max_examples=50)
@given(
    st.lists(st.tuples(st.integers(0, 1), st.sampled_from("ab"), _STEPS), max_size=12)
)
def test_each_line_of_two_is_as_if_it_were_alone(
    some: list[tuple[int, str, tuple[str, set[int]]]],
) -> None:
    lines, alone = list(BOTH), [empty(), empty()]
    both = empty()
    for which, letter, (kind, positions) in some:
        line, name = lines[which], f"{letter}{which}"
        ids = shift(line, positions)
        if kind == "node":
            apply(both, node("n1", *lines))
            for cache, one in zip(alone, lines, strict=True):
                apply(cache, node("n1", one))
        elif kind in {"held", "releasing", "unhealthy", "lost"}:
            text: Mapping[str, tuple[int, ...]] = {kind: ids}
            lines[which] = replace(line, **text)  # type: ignore[arg-type]  # masks only
            apply(both, report("n1", *lines))
            for cache, one in zip(alone, lines, strict=True):
                apply(cache, report("n1", one))
        elif ids:
            found = happened(kind, name, line, ids)
            apply(both, *found, may_conflict=True)
            apply(alone[which], *found, may_conflict=True)

    for cache, line in zip(alone, BOTH, strict=True):
        resource = line.product.resource
        assert node_states(both, resource) == node_states(cache, resource)
        here, there = (
            state_of(cache, "n1", resource),
            state_of(both, "n1", resource),
        )
        assert there.tenants == here.tenants
        assert there.last_time == here.last_time
        shape = asking("other", line).shape
        assert conflicts(both, shape) == conflicts(cache, shape)


@pytest.mark.property
@settings(max_examples=50)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["bind", "bind", "seen", "refused", "ends"]),
            st.integers(0, 1),
            st.sampled_from([1, 2]),
            st.sampled_from(["n1", "n2"]),
        ),
        max_size=10,
    )
)
def test_what_one_line_is_chosen_for_changes_nothing_of_the_other(
    some: list[tuple[str, int, int, str]],
) -> None:
    cache = lined(names=("n1", "n2"))
    open_binds: list[tuple[Line, Choice]] = []
    bound: list[events.PodUpdated] = []
    for number, (what, which, count, where) in enumerate(some):
        line, other = BOTH[which], BOTH[1 - which]
        before = dict(node_states(cache, other.product))
        mine = [each for each in open_binds if each[0] is line]
        if what == "bind":
            wanted = asking(f"p{number}", line, count)
            made = choose(cache, wanted, where, now_ns=number)
            if isinstance(made, Choice):
                apply(cache, events.PodUpdated(pod=wanted), made.reservation)
                open_binds.append((line, made))
        elif what in {"seen", "refused"} and mine:
            open_binds.remove(mine[0])
            reservation = mine[0][1].reservation
            apply(cache, *_outcome(cache, reservation, bound, is_bound=what == "seen"))
        elif what == "ends" and bound:
            last = bound.pop().pod
            line, other = (
                BOTH if last.shape.resource == RESOURCE else tuple(reversed(BOTH))
            )
            before = dict(node_states(cache, other.product))
            apply(cache, events.PodUpdated(pod=replace(last, phase="Succeeded")))

        assert node_states(cache, other.product) == before
        for name in ("n1", "n2"):
            state = state_of(cache, name, line.product.resource)
            masks = [tenant.chips for tenant in state.tenants.values()]
            masks += [left for left, _ in state.unshown.values()]
            reserved = masks_on(cache, state, freed=False).values()
            taken = state.claimed() | sum(reserved)
            assert sum(masks) + sum(reserved) == taken  # no chip twice
            assert not taken & ~sum(1 << chip for chip in line.there)


def _outcome(
    cache: Cache,
    reservation: Reservation,
    bound: list[events.PodUpdated],
    *,
    is_bound: bool,
) -> list[events.Change]:
    """What is learnt of a bind: that the pod is on its node, or that it is not."""
    if not is_bound:
        return [events.BindVoided(uid=str(reservation.kept_for))]
    pod = cache.pods[str(reservation.kept_for)]
    line = TRAINING if pod.shape.resource == RESOURCE else INFERENCE
    ids = chips.ids_of(reservation.chips)
    bound.append(living(pod.name, line, ids, reservation.node))
    return [bound[-1]]
