"""What `/v1/explain` tells of a job, by the real endpoint: a table of states."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.cache import events
from extender.planning import plan, plan_input
from extender.planning.topology import Rules
from extender.queries.job_fit import find_fits
from extender.refusals import READING, Refusal
from extender.scheduling.decisions import LastDecision
from scheduler_core.placement.job_rules import Profile
from scheduler_core.placement.siblings import Demands
from service.clock import rfc3339
from tests.extender.gang.test_gangs import with_sidecar
from tests.extender.queries.asked import SINCE, Asked, asked, made, text_of
from tests.extender.test_app import World as Programs
from tests.extender.test_gangs_over_http import add_member, scheduled, until_bound
from tests.support.caches import apply, cluster, gang
from tests.support.clock import NOW_NS, NOW_S
from tests.support.fake_api import Fate
from tests.support.until import until
from tests.support.watched import ALL, member, node, task, tenant

PAGE = Path(__file__).parents[3] / "docs" / "asking.md"


# -- how the world of each case comes about --------------------------------------------


async def run_both(it: Asked) -> None:
    it.world.add(made("a"), made("b"))
    await it.filter("a", "b")
    assert await it.world.bind_both() == ["", ""]
    for name in ("a", "b"):  # as the announcer does
        at_s = NOW_S + (name == "b")
        it.world.notes.put(f"uid-{name}", LastDecision(at_s=at_s, text="whole node"))
        node = it.world.api.node_of(name)
        it.world.learn(made(name, node=node, phase="Running"))


async def start(it: Asked) -> None:
    it.world.add(made("a"), made("b"), fates=[Fate.WAIT] * 2)
    await it.filter("a", "b")
    it.calls.extend([await it.world.come("a", "n1"), it.world.bind("b", "n2")])
    await until(lambda: it.world.api.unanswered == 2)


async def plan_both(it: Asked) -> None:
    it.world.add(made("a"), made("b"))
    await it.filter("a")


async def lack_one_node(it: Asked) -> None:
    it.world.learn(tenant("t", "n3", (0,)))
    it.world.add(*(made(name, size=3) for name in "abc"))
    await it.filter("a")


async def wait_behind(it: Asked) -> None:
    it.world.learn(*(tenant(f"t-{name}", name, (0,)) for name in ("n2", "n3")))
    it.world.add(*(made(name, 40) for name in "xy"))
    it.world.add(*(made(name, job="k") for name in "ab"))
    await it.filter("x", "a")


async def back_off(it: Asked) -> None:
    await plan_both(it)
    await it.world.tick(31)
    await it.filter("a")


async def read_size(it: Asked) -> None:
    it.world.calls.until = asyncio.Event()
    it.world.learn(task(0, name="a"))
    await it.filter("a")


async def hold_by_gate(it: Asked) -> None:
    it.world.add(made("a"), made("b", is_gated=True))
    await it.filter("a")


async def break_rule(it: Asked) -> None:
    it.world.add(made("a", count=4), made("b", count=4))
    await it.filter("a")


async def ask_too_much(it: Asked) -> None:
    it.world.add(*(made(name, size=4) for name in "abcd"))
    await it.filter("a")


async def ask_wrong_count(it: Asked) -> None:
    it.world.add(made("a", count=3), made("b", count=3))
    await it.filter("a")


async def spoil_pod(it: Asked) -> None:
    it.world.add(with_sidecar("a", "void"), with_sidecar("b", "0"))
    await it.filter("a")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A world, and what is told of its pod `a`."""

    arrange: Callable[[Asked], Awaitable[None]]
    lines: tuple[str, ...]


def job(state: str, pods: str, *more: str, since: str = "") -> tuple[str, ...]:
    told = (f"job_since: {since}",) if since else ()
    first = ("job: Job of pods default/j", f"job_state: {state}")
    return (*first, *told, f"job_pods: {pods}", *more)


LAST = "2027-01-15T08:00:01Z"
MADE = "2027-01-15T07:50:00Z"
SPOILT = "container logs sets ASCEND_VISIBLE_DEVICES: leave it out or set it to void"
UNFIT = f"waits for 1 of the 2 pods of its job; b fits no node: {SPOILT}"
WHOLE = "chips: 0,1,2,3,4,5,6,7"
CASES = {
    "running": Case(
        arrange=run_both,
        lines=(
            "default/a: bound",
            *job("running", "2 of 2 pods exist, 2 have a node", since=LAST),
            "node: n1",
            WHOLE,
            "reason: whole node",
            f"at: {SINCE}",
        ),
    ),
    "starting": Case(
        arrange=start,
        lines=(
            "default/a: being bound",
            *job("starting", "2 of 2 pods exist, 0 have a node", since=SINCE),
            "node: n1",
            WHOLE,
            "now, by reason:",
            "  2 nodes: an earlier bind of this pod has no known outcome yet (n2, n3)",
            "  1 node: fits (n1)",
        ),
    ),
    "planned": Case(
        arrange=plan_both,
        lines=(
            "default/a: planned",
            *job("planned", "2 of 2 pods exist, 0 have a node", since=SINCE),
            "node: n1",
            WHOLE,
            "now, by reason:",
            "  2 nodes: the job's plan has the pod on another node (n2, n3)",
            "  1 node: fits (n1)",
        ),
    ),
    "short by one node": Case(
        arrange=lack_one_node,
        lines=(
            "default/a: pending",
            *job(
                "waits",
                "3 of 3 pods exist, 0 have a node",
                "why: its job does not fit: 2 of 3 pods fit",
                "needs: 3 whole nodes, 3 exist, 2 are free (atlas-800-training)",
                since=MADE,
            ),
            (
                "reason: 0/3 nodes are available: 2 its job does not fit: 2 of 3 pods "
                "fit, 1 without 8 free chips"
            ),
            f"at: {SINCE}",
            "now, by reason:",
            "  2 nodes: its job does not fit: 2 of 3 pods fit (n1, n2)",
            "  1 node: without 8 free chips (n3)",
        ),
    ),
    "behind another job": Case(
        arrange=wait_behind,
        lines=(
            "default/a: pending",
            "job: Job of pods default/k",
            "job_state: waits",
            f"job_since: {MADE}",
            "job_pods: 2 of 2 pods exist, 0 have a node",
            "why: its job does not fit: 1 of 2 pods fit",
            "needs: 2 whole nodes, 3 exist, 1 is free (atlas-800-training)",
            "ahead: Job of pods default/j",
            (
                "reason: 0/3 nodes are available: 2 without 8 free chips, 1 its job "
                "does not fit: 1 of 2 pods fit"
            ),
            f"at: {SINCE}",
            "now, by reason:",
            "  2 nodes: without 8 free chips (n2, n3)",
            "  1 node: its job does not fit: 1 of 2 pods fit (n1)",
        ),
    ),
    "back-off": Case(
        arrange=back_off,
        lines=(
            "default/a: pending",
            *job(
                "waits",
                "2 of 2 pods exist, 0 have a node",
                "why: no pod of the job was to be bound within 30 s",
                "needs: 2 whole nodes, 3 exist, 3 are free (atlas-800-training)",
                since=MADE,
            ),
            (
                "reason: 0/3 nodes are available: 3 no pod of the job was to be bound "
                "within 30 s"
            ),
            "at: 2027-01-15T08:00:31Z",
            "advice: nothing to do: it is planned again by itself at …",
            "now, by reason:",
            "  3 nodes: no pod of the job was to be bound within 30 s (n1, n2, n3)",
        ),
    ),
    "size unknown": Case(
        arrange=read_size,
        lines=(
            "default/a: pending",
            "job: Volcano Job default/j",
            "job_state: waits",
            "job_pods: 1 of an unknown number of pods exist, 0 have a node",
            f"why: {READING}",
            f"reason: 0/3 nodes are available: 3 {READING}",
            f"at: {SINCE}",
            "now, by reason:",
            f"  3 nodes: {READING} (n1, n2, n3)",
        ),
    ),
    "gate": Case(
        arrange=hold_by_gate,
        lines=(
            "default/a: pending",
            *job(
                "waits",
                "2 of 2 pods exist, 0 have a node, 1 behind a scheduling gate",
                "why: waits for 1 of the 2 pods of its job; 1 behind a scheduling gate",
                since=MADE,
            ),
            (
                "reason: 0/3 nodes are available: 3 waits for 1 of the 2 pods of its "
                "job; 1 behind a scheduling gate"
            ),
            f"at: {SINCE}",
            "now, by reason:",
            (
                "  3 nodes: waits for 1 of the 2 pods of its job; 1 behind a "
                "scheduling gate (n1, n2, n3)"
            ),
        ),
    ),
    "never: against the rules": Case(
        arrange=break_rule,
        lines=(
            "default/a: pending",
            *job(
                "never",
                "2 of 2 pods exist, 0 have a node",
                "why: its job does not fit: up to 8 chips must be one pod, found 2 "
                "pods",
                "needs: 2 times 4 chips, 6 exist, 6 are free (atlas-800-training)",
                since=MADE,
            ),
            (
                "reason: 0/3 nodes are available: 3 its job does not fit: up to 8 "
                "chips must be one pod, found 2 pods"
            ),
            f"at: {SINCE}",
            "advice: ask for 1 pod of 8 chips",
            "advice: or have job-rules: per-pod in the settings of the extender",
            "now, by reason:",
            (
                "  3 nodes: its job does not fit: up to 8 chips must be one pod, found "
                "2 pods (n1, n2, n3)"
            ),
        ),
    ),
    "never: too few nodes": Case(
        arrange=ask_too_much,
        lines=(
            "default/a: pending",
            *job(
                "never",
                "4 of 4 pods exist, 0 have a node",
                "why: its job does not fit: 3 of 4 pods fit",
                "needs: 4 whole nodes, 3 exist, 3 are free (atlas-800-training)",
                since=MADE,
            ),
            "reason: 0/3 nodes are available: 3 its job does not fit: 3 of 4 pods fit",
            f"at: {SINCE}",
            "advice: ask for fewer pods, by 1",
            "advice: add nodes (atlas-800-training): 1",
            "now, by reason:",
            "  3 nodes: its job does not fit: 3 of 4 pods fit (n1, n2, n3)",
        ),
    ),
    "never: wrong count": Case(
        arrange=ask_wrong_count,
        lines=(
            "default/a: pending",
            *job(
                "never",
                "2 of 2 pods exist, 0 have a node",
                "why: a pod cannot have 3 chips of an Atlas 800 training server: a, b",
                "needs: 2 times 3 chips, 0 exist, 0 are free (atlas-800-training)",
                since=MADE,
            ),
            (
                "reason: 0/3 nodes are available: 3 cannot give a pod 3 chips, only 1, "
                "2, 4 or 8"
            ),
            f"at: {SINCE}",
            "advice: ask for 1 pod of 8 chips",
            "now, by reason:",
            "  3 nodes: cannot give a pod 3 chips, only 1, 2, 4 or 8 (n1, n2, n3)",
        ),
    ),
    "never: a pod fits no node": Case(
        arrange=spoil_pod,
        lines=(
            "default/a: pending",
            *job(
                "never",
                "2 of 2 pods exist, 0 have a node",
                f"why: {UNFIT}",
            ),
            f"reason: 0/3 nodes are available: 3 {UNFIT}",
            f"at: {SINCE}",
            f"advice: correct pod b: {SPOILT}",
            "now, by reason:",
            f"  3 nodes: {UNFIT} (n1, n2, n3)",
        ),
    ),
}


@pytest.mark.parametrize("name", CASES)
async def test_p3_p4_a_pod_of_a_job_is_explained_as_its_job(name: str) -> None:
    case = CASES[name]
    async with asked() as it:
        await case.arrange(it)

        found = await it.explain("a")

        again_s = [each.plan.again_s for each in it.world.cache.gangs.values()]
        text = found["text"].replace(rfc3339(max(again_s)), "…")
    assert text == text_of(case.lines)
    if "counts" in found:  # what the pod's event says
        assert found["reasons"][0]["text"] == found["counts"][0]["text"]


# -- numbers, page and programs ----------------------------------------------------


async def test_nodes_that_a_selector_leaves_out_do_not_exist_for_the_job() -> None:
    marks = [replace(node(name), labels={"pool": name[-1]}) for name in ("n2", "n3")]
    wanted = '{"node_selector":{"pool":"2"}}'
    async with asked(*marks) as it:
        for name in "ab":
            found = made(name)
            assert found.member is not None
            demands = Demands(kind=wanted, on_nodes=wanted)
            it.world.add(replace(found, member=replace(found.member, demands=demands)))
        await it.filter("a", nodes=["n2"])

        told = await it.explain("a")

    assert (told["job_state"], told["needs"]) == (
        "never",
        ["2 whole nodes, 1 exists, 1 is free (atlas-800-training)"],
    )


@given(
    taken=st.lists(st.integers(0, 255), min_size=1, max_size=4),
    pods=st.integers(2, 5),
    count=st.sampled_from((1, 2, 4, 8)),
)
def test_as_many_pods_fit_as_the_plan_places(
    taken: list[int], pods: int, count: int
) -> None:
    """A job fits if enough is free, and once all nodes are empty if enough exists."""
    names = [f"n{number}" for number in range(len(taken))]
    per_pod = plan_input.TopologySnapshot(profile=Profile.PER_POD)

    def plans(*tenants: events.Change) -> tuple[bool, tuple[int, int]]:
        cache = cluster(*tenants, nodes=names)
        apply(cache, *(member(f"p{n}", size=pods, count=count) for n in range(pods)))
        found = gang(cache)
        (fit,) = find_fits(cache, found, names, Rules())
        made = plan.plan(cache, found, names, NOW_NS, per_pod)
        return not isinstance(made, Refusal), (fit.free, fit.exist)

    full = [
        tenant(f"t-{name}", name, [chip for chip in ALL if mask >> chip & 1])
        for name, mask in zip(names, taken, strict=True)
        if mask
    ]
    fits, (free, exist) = plans(*full)
    would_fit, (all_free, _) = plans()

    assert (fits, would_fit) == (free >= pods, exist >= pods)
    assert all_free == exist


async def test_the_example_of_the_page_is_what_is_told() -> None:
    nodes = [f"node-{number}" for number in range(1, 5)]
    seen = [tenant("eval-7", "node-3", (0, 1)), tenant("eval-8", "node-4", (4,))]
    async with asked(*seen, nodes=nodes) as it:
        for name, minute in (("big", 40), ("train", 50)):
            pods = [f"{name}-{number}" for number in range(4)]
            it.world.add(*(made(pod, minute, job=name, size=4) for pod in pods))
            await it.filter(f"{name}-0")

        found = await it.explain("train-3")

    assert f"```\n{found['text']}```" in PAGE.read_text()


async def test_the_first_reason_is_that_of_the_pods_event(tmp_path: Path) -> None:
    async with scheduled(tmp_path) as programs:
        for number in range(1, 4):
            await programs.add_node(f"n{number}")
        for name in "ab":
            await add_member(programs, name, size=2, job="runs")
        await until_bound(programs, 2)
        running = await until(
            lambda: told_by(programs, "a"), lambda found: "job_since" in found
        )
        for name in "wxyz":
            await add_member(programs, name, size=4)
        # its events say other things until the scheduler has asked about all its pods
        found = await until(
            programs.events,
            lambda found: any(
                n == "w" and "does not fit" in said for _, n, said in found
            ),
        )
        never = await told_by(programs, "w")

    first = f"{never['reasons'][0]['nodes']} {never['reasons'][0]['text']}"
    assert any(name == "w" and first in said for _, name, said in found)
    assert never["job_state"] == "never"
    assert running["job_state"] == "running"
    assert never["needs"] == ["4 whole nodes, 3 exist, 1 is free (atlas-800-training)"]


async def told_by(programs: Programs, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        (await programs.get(f"/v1/explain/default/{name}"))[1]
    )
    return found
