"""Which members of a job wait for the pod that their controller numbers alike."""

import pytest

from extender.gang.gang import Gang
from extender.gang.gangs import Gangs
from extender.gang.generations import Generation
from extender.gang.membership import Member, Membership, order_of
from scheduler_core.products.lookup import PLAIN, Traits


class Members:
    """A job of pods, put one by one."""

    def __init__(self) -> None:
        self.gangs = Gangs()

    @property
    def gang(self) -> Gang:
        return self.gangs.jobs["Job/default/train"]

    def put(  # noqa: PLR0913  # the parts of a pod
        self,
        name: str,
        index: str,
        *,
        node: str = "",
        ending: bool = False,
        role: str = "",
        making: str = "",
        traits: Traits = PLAIN,
    ) -> None:
        membership = Membership(
            job="Job/default/train",
            size=3,
            order=order_of(role, (0, 0)),
            index=index,
            generation=Generation(making),
        )
        self.gangs.put(
            name,
            Member(name=name, membership=membership, traits=traits, created=making),
            bound=bool(node),
            succeeded=False,
            ending=ending,
            now_s=0.0,
            node=node,
        )


@pytest.mark.parametrize(
    ("traits", "missing"),
    [
        (PLAIN, 0),
        (Traits(labels={"tor-affinity": "large-model-schema"}), 1),
        (Traits(annotations={"sp-block": "16"}), 1),
    ],
)
def test_where_numbers_decide_the_network_a_plan_has_all_pods(
    traits: Traits, missing: int
) -> None:
    job = Members()
    job.put("a", "0", node="n1", traits=traits)
    job.put("b", "1", node="n2", ending=True, traits=traits)
    job.put("c", "1", traits=traits)
    job.put("d", "2", traits=traits)

    assert (job.gang.unbound, job.gang.missing) == (["d"], missing)


def test_a_member_of_another_role_or_one_that_ends_itself_waits_for_nobody() -> None:
    job = Members()
    job.put("a", "0", node="n1", ending=True, role="worker")
    job.put("b", "0", role="ps")
    job.put("c", "0", role="worker", ending=True)

    assert job.gang.predecessors == {}
    assert job.gang.unbound == ["b"]


def test_a_member_waits_as_long_as_both_are_what_they_are() -> None:
    job = Members()
    for change in ("goes", "is bound", "has another number"):
        job.put("a", "0", node="n1", ending=True)
        job.put("b", "0")
        assert job.gang.predecessors == {"b": "a"}
        if change == "goes":
            job.gangs.drop("b")
        elif change == "is bound":
            job.put("b", "0", node="n2")
            assert "b" in job.gang.placed - job.gang.absent
        else:
            job.put("a", "1", node="n1", ending=True)
            assert job.gang.unbound == ["b"]
        assert job.gang.predecessors == {}
        job.gangs.drop("b")


def test_a_member_waits_again_when_its_generation_is_the_present_one_again() -> None:
    job = Members()
    job.put("a", "0", node="n1", ending=True, making="1")
    job.put("b", "0", making="1")
    job.put("c", "0", making="2")
    assert job.gang.predecessors == {}

    job.gangs.drop("c")

    assert job.gang.predecessors == {"b": "a"}
    assert job.gang.unbound == []
