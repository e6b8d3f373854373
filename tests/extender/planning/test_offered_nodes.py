"""The nodes of each kind of member, for one plan."""

from extender.gang.membership import Member, Membership
from extender.planning.offered_nodes import OfferedNodes
from scheduler_core.placement.siblings import Demands, Learnt
from tests.support.watched import pod

NAMES = ("n1", "n2", "n3")
MEMBERS = {
    f"uid-{kind}": Member(
        name=kind, membership=Membership(job="k"), demands=Demands(kind=kind)
    )
    for kind in ("leader", "worker")
}
PODS = [pod(kind) for kind in ("leader", "worker")]
KINDS = {"leader", "worker"}


def test_a_kind_that_nobody_asked_about_has_the_nodes_of_the_others() -> None:
    """Admission adds tolerations, so that most templates are of a kind of their own."""
    offered = OfferedNodes(names=NAMES[:2], lists={"leader": frozenset(NAMES[:2])})

    offered = offered.with_followers([MEMBERS["uid-worker"]])

    assert offered.lists == dict.fromkeys(KINDS, frozenset(NAMES[:2]))
    assert offered.names_of(KINDS) == NAMES[:2]
    assert offered.group(PODS, KINDS, MEMBERS, {}) is None


def test_nodes_of_kinds_that_a_plan_does_not_have_are_left_out() -> None:
    lists = {"leader": frozenset({"n1", "n2"}), "worker": frozenset({"n3"})}
    offered = OfferedNodes(
        names=NAMES,
        lists=lists,
        learnt=Learnt(refused={"leader": frozenset({"n2"})}),
    )

    assert offered.names_of({"leader"}) == ["n1"]
    assert offered.names_of({"worker"}) == ["n3"]
    assert offered.names_of(KINDS) == list(NAMES)
