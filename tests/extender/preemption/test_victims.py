"""Evicting pods by count, and whether a ring would be free then."""

import json
from typing import Any

import pytest

from extender.cache import events
from extender.cache.reservations import Owner
from extender.preemption import victims
from scheduler_core.wire.pods import NpuPod
from tests.extender.kube_scheduler.test_verbs import served
from tests.support.caches import apply, cluster, kept, set_aside
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


def asked(*uids: str, name: str = "high", count: int = 4) -> bytes:
    limits = {"huawei.com/Ascend910": str(count)}
    spec = {"containers": [{"name": "c", "resources": {"limits": limits}}]}
    meta = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    found = {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": 1}
    wanted = {"Pod": {"metadata": meta, "spec": spec}}
    return json.dumps(wanted | {"NodeNameToMetaVictims": {"n1": found}}).encode()


def answer(*uids: str) -> dict[str, Any]:
    pods = [{"UID": uid} for uid in uids]
    nodes = {"n1": {"Pods": pods, "NumPDBViolations": 1}} if uids else {}
    return {"NodeNameToMetaVictims": nodes}


@pytest.mark.parametrize(
    ("uids", "left"),
    [
        (("uid-a", "uid-c"), ("uid-a", "uid-c")),
        (("uid-a", "uid-b"), ()),
    ],
)
async def test_the_scheduler_is_left_the_victims_whose_going_frees_a_ring(
    uids: tuple[str, ...], left: tuple[str, ...]
) -> None:
    async with served(cluster(*TENANTS)) as (extender, _):
        assert await extender.post("preempt", asked(*uids)) == answer(*left)


async def test_for_one_pod_of_a_job_of_several_nobody_is_evicted() -> None:
    cache = cluster(*TENANTS, member("high", count=4))

    async with served(cache) as (extender, _):
        assert await extender.post("preempt", asked("uid-a", "uid-c")) == answer()


async def test_victims_of_pods_that_are_not_ours_are_the_schedulers_own_affair() -> (
    None
):
    body = json.loads(asked("uid-a", count=4))
    body["Pod"]["spec"] = {}

    async with served(cluster(*TENANTS)) as (extender, _):
        found = await extender.post("preempt", json.dumps(body).encode())

    assert found == answer("uid-a")


async def test_while_the_cluster_is_not_known_nobody_is_evicted() -> None:
    async with served(cluster(*TENANTS), waits="waiting for pods") as (extender, _):
        assert await extender.post("preempt", asked("uid-a", "uid-c")) == answer()
