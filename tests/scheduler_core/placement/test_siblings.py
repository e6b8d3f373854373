"""Which pods of a job may be on one node, by what they demand."""

import pytest

from scheduler_core.placement.siblings import (
    Cap,
    CohortSpread,
    Demands,
    HostPort,
    Learnt,
    Requirement,
    Selector,
    Sibling,
    Siblings,
    Spread,
    group_siblings,
)

EVERY: Selector = ()
LEADS: Selector = (Requirement("role", "In", frozenset({"lead"})),)
LEAD, WORK = {"role": "lead"}, {"role": "work"}


def grouped(*pods: Sibling, learnt: Learnt | None = None) -> Siblings:
    found = group_siblings(pods, learnt=learnt or Learnt())
    assert found is not None
    return found


def apart(siblings: Siblings) -> list[set[int]]:
    return [set(cohort.apart) for cohort in siblings.cohorts]


@pytest.mark.parametrize(
    ("one", "other", "do_conflict"),
    [
        (HostPort(80), HostPort(80), True),
        (HostPort(80), HostPort(81), False),
        (HostPort(80), HostPort(80, "UDP"), False),
        (HostPort(80, "TCP", "10.0.0.1"), HostPort(80, "TCP", "10.0.0.2"), False),
        (HostPort(80, "TCP", "10.0.0.1"), HostPort(80), True),
    ],
)
def test_two_ports_conflict_as_on_a_host(
    one: HostPort, other: HostPort, *, do_conflict: bool
) -> None:
    assert one.conflicts(other) is do_conflict
    assert other.conflicts(one) is do_conflict


@pytest.mark.parametrize(
    ("operator", "matching"),
    [
        ("In", [True, False, False]),
        ("NotIn", [False, True, True]),
        ("Exists", [True, True, False]),
        ("DoesNotExist", [False, False, True]),
    ],
)
def test_a_requirement_matches_labels_as_kubernetes_does(
    operator: str, matching: list[bool]
) -> None:
    requirement = Requirement("role", operator, frozenset({"lead"}))

    assert [requirement.matches(labels) for labels in (LEAD, WORK, {})] == matching


def test_pods_without_demands_are_not_set_apart() -> None:
    assert group_siblings([Sibling("a"), Sibling("b", labels=WORK)]) is None


def test_pods_of_one_port_are_apart() -> None:
    demands = Demands(kind="port", ports=(HostPort(80),))

    siblings = grouped(Sibling("a", demands), Sibling("b", demands), Sibling("c"))

    assert siblings.cohort_of == {"a": 0, "b": 0, "c": 1}
    assert apart(siblings) == [{0}, set()]


def test_anti_affinity_holds_for_both_sides() -> None:
    picky = Demands(kind="picky", apart=(LEADS,))

    siblings = grouped(Sibling("a", picky, WORK), Sibling("b", labels=LEAD))

    assert apart(siblings) == [{1}, {0}]


def test_pods_of_one_kind_that_a_selector_tells_apart_are_two_cohorts() -> None:
    picky = Demands(kind="picky", apart=(LEADS,))

    siblings = grouped(
        Sibling("a", picky, LEAD), Sibling("b", picky, WORK), Sibling("c", picky, WORK)
    )

    assert siblings.cohort_of == {"a": 0, "b": 1, "c": 1}
    assert apart(siblings) == [{0, 1}, {0}]


def test_affinity_and_spread_name_the_cohorts_that_count() -> None:
    demands = Demands(
        kind="close", together=(LEADS, EVERY), spreads=(Spread(2, EVERY, 3),)
    )

    siblings = grouped(Sibling("a", demands, LEAD), Sibling("b", demands, WORK))

    assert [set(cohort.together or ()) for cohort in siblings.cohorts] == [{0}, {0}]
    assert siblings.cohorts[0].spreads == (CohortSpread(2, 3, frozenset({0, 1})),)


def test_affinity_to_pods_of_others_names_no_cohort() -> None:
    """kube-scheduler offers the nodes that have such a pod, and no others."""
    demands = Demands(kind="fed", together=(LEADS,))

    siblings = grouped(Sibling("a", demands, WORK), Sibling("b", demands, WORK))

    assert [cohort.together for cohort in siblings.cohorts] == [None]


def test_what_was_learnt_holds_for_all_pods_of_a_kind() -> None:
    one, other = Demands(kind="one"), Demands(kind="other")
    learnt = Learnt(
        apart=[("one", "other")],
        caps=[Cap("one", frozenset({"n1", "n2"}), 1)],
        refused={"other": frozenset({"n3"})},
    )

    siblings = grouped(Sibling("a", one), Sibling("b", other, node="n2"), learnt=learnt)

    assert apart(siblings) == [{1}, {0}]
    assert siblings.caps == ((frozenset({"n1", "n2"}), 1, frozenset({0})),)
    assert siblings.common_names(["n1", "n2", "n3"]) == ("n1", "n2")
    assert siblings.bound == {"n2": [1]}


def test_each_kind_has_its_own_nodes() -> None:
    one, other = Demands(kind="one"), Demands(kind="other")
    names = {"one": frozenset({"n1", "n2"}), "other": frozenset({"n2", "n3"})}

    siblings = group_siblings([Sibling("a", one), Sibling("b", other)], names)

    assert siblings is not None
    assert [cohort.names for cohort in siblings.cohorts] == list(names.values())
    assert siblings.common_names(["n1", "n2", "n3"]) == ("n2",)
