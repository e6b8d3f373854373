"""Evicting pods by count, and whether a ring would be free then."""

import json
from typing import Any

import pytest

from extender.cache import events
from extender.cache.reservations import Owner
from extender.preemption import victims
from scheduler_core.wire.pods import NpuPod
from tests.extender.kube_scheduler.test_verbs import served
from tests.support import objects
from tests.support.caches import apply, cluster, kept, set_aside
from tests.support.rows import rows
from tests.support.watched import member, pod, report, tenant

#: Of each ring one pod with two chips, and one with one.
TENANTS = (
    tenant("a", "n1", (0, 1)),
    tenant("b", "n1", (4, 5)),
    tenant("c", "n1", (2,)),
    tenant("d", "n1", (6,)),
)


def wanting(count: int) -> NpuPod:
    return pod("high", count=count)


@pytest.mark.parametrize(
    ("count", "names", "is_helped"),
    [
        (4, "ac", True),
        (4, "bd", True),
        (4, "ab", False),
        (4, "abc", True),
        (8, "abc", False),
        (8, "abcd", True),
        (2, "c", True),
        (2, "", False),
        (3, "abcd", False),
    ],
)
def test_pods_that_go_help_when_their_chips_are_together(
    count: int, names: str, is_helped: bool
) -> None:
    cache = cluster(*TENANTS)
    gone = [f"uid-{name}" for name in names]

    assert victims.do_help(cache, wanting(count), "n1", gone) is is_helped


def test_pods_do_not_help_where_their_chips_are_no_good_or_not_known() -> None:
    broken = cluster(*TENANTS, report("n1", unhealthy=(0,)))
    closed = cluster(*TENANTS, events.NodeUpdated(name="n1"))

    assert not victims.do_help(broken, wanting(4), "n1", ["uid-a", "uid-c"])
    assert not victims.do_help(closed, wanting(4), "n1", ["uid-a", "uid-c"])
    assert not victims.do_help(closed, wanting(4), "elsewhere", ["uid-a"])


def test_nodes_that_are_kept_for_a_job_are_no_place_for_others() -> None:
    cache = cluster(*TENANTS)
    set_aside(cache, "n1", "Job/default/large")

    assert not victims.do_help(cache, wanting(4), "n1", ["uid-a", "uid-c"])


def test_chips_that_are_freed_for_another_are_nobody_elses() -> None:
    cache = cluster(*TENANTS)
    attempt = kept("uid-first", "n1", 0b0111, owner=Owner.PREEMPTION)
    apply(cache, attempt)
    first = pod("first", count=4)

    assert victims.do_help(cache, first, "n1", ["uid-a", "uid-c"])
    assert not victims.do_help(cache, wanting(4), "n1", ["uid-a", "uid-c"])
    assert victims.do_help(cache, wanting(4), "n1", ["uid-b", "uid-d"])


def asked(count: int, *names: str) -> bytes:
    """What preempt is asked for a pod that wants so many chips."""
    wanted = objects.pod("high", count, meta={"uid": "uid-high"})
    return json.dumps({"Pod": wanted} | answer(*names)).encode()


def answer(*names: str) -> dict[str, Any]:
    pods = [{"UID": f"uid-{name}"} for name in names]
    nodes = {"n1": {"Pods": pods, "NumPDBViolations": 1}} if names else {}
    return {"NodeNameToMetaVictims": nodes}


@rows(
    ("uids", "left", "seen", "waits"),
    {
        "a ring is free then": (("a", "c"), ("a", "c"), (), None),
        "no ring is free then": (("a", "b"), (), (), None),
        "the pod is one of a job": (("a", "c"), (), (member("high", count=4),), None),
        "the cluster is not known": (("a", "c"), (), (), "waiting for pods"),
    },
)
async def test_the_scheduler_is_left_the_victims_whose_going_helps(
    uids: tuple[str, ...],
    left: tuple[str, ...],
    seen: tuple[events.Change, ...],
    waits: str | None,
) -> None:
    async with served(cluster(*TENANTS, *seen), waits=waits) as (extender, _):
        assert await extender.post("preempt", asked(4, *uids)) == answer(*left)


async def test_victims_of_pods_that_are_not_ours_are_the_schedulers_own_affair() -> (
    None
):
    async with served(cluster(*TENANTS)) as (extender, _):
        assert await extender.post("preempt", asked(0, "a")) == answer("a")
