"""Which pods are evicted so that all go that have to, by what each eviction does."""

import pytest

from extender.rescheduling.ends import End, Reach, Replacement
from extender.rescheduling.judge import Evicted, Reached, evicted_of, reach_of
from extender.rescheduling.moves import MoveFacts
from scheduler_core.rescheduling.ladder import Rung

ALL = frozenset("abcd")
POD, JOB = End(), End(reach=Reach.JOB)
GROUP = End(reach=Reach.GROUP, group=("label",))
NEVER = End(replacement=Replacement.NO, reason="it would end")
BOTH = (Rung.PODS, Rung.JOB)


def facts(ends: dict[str, End], **groups: str) -> MoveFacts:
    return MoveFacts(
        ends=ends, groups={uid: frozenset(group) for uid, group in groups.items()}
    )


@pytest.mark.parametrize(
    ("known", "rungs", "found"),
    [
        (facts({}), BOTH, Reached(rungs=BOTH)),
        (facts({"a": POD}), BOTH, Reached(rungs=BOTH)),
        (
            facts({"a": GROUP}, a="ab"),
            BOTH,
            Reached(rungs=BOTH, followers=frozenset("b"), is_of_pods=False),
        ),
        (facts({"a": JOB}), BOTH, Reached(rungs=(Rung.JOB,), is_of_pods=False)),
        (
            facts({"a": JOB}),
            (Rung.PODS,),
            "an eviction ends all pods of the job, which allows its fault pods only",
        ),
        (facts({"a": NEVER}), BOTH, "it would end"),
    ],
)
def test_what_ends_with_the_fault_pods_is_what_was_read(
    known: MoveFacts, rungs: tuple[Rung, ...], found: Reached | str
) -> None:
    assert reach_of(known, "a", rungs) == found


@pytest.mark.parametrize(
    ("known", "leaving", "found"),
    [
        # nothing is read: first the fault pods, if need be all then
        (facts({}), "a", Evicted(unread=frozenset("a"))),
        (facts({"b": POD}), "abcd", Evicted(unread=frozenset("a"))),
        (facts({"a": POD}), "a", Evicted(uids=frozenset("a"))),
        (facts({"a": POD}), "abcd", Evicted(unread=ALL)),
        (facts(dict.fromkeys("abcd", POD)), "abcd", Evicted(uids=ALL)),
        # one takes all with it
        (facts({"a": JOB}), "abcd", Evicted(uids=frozenset("a"))),
        (facts({"a": GROUP}, a="ab"), "ab", Evicted(uids=frozenset("a"))),
        (facts({"a": GROUP}, a="ab"), "abcd", Evicted(unread=ALL)),
        # what all evictions together do does not say what one does
        (facts(dict.fromkeys("abcd", JOB)), "abcd", Evicted(uids=ALL)),
        (facts(dict.fromkeys("abc", POD)), "abcd", Evicted(unread=ALL)),
        (facts(dict.fromkeys("abc", POD) | {"d": NEVER}), "abcd", "it would end"),
    ],
)
def test_the_fault_pods_go_alone_if_they_take_the_others_with_them(
    known: MoveFacts, leaving: str, found: Evicted | str
) -> None:
    assert evicted_of(known, "a", leaving) == found
