"""What `/v1/explain` says of a running pod whose chip is bad."""

from dataclasses import replace
from typing import Any

import pytest

from extender.cache import events
from extender.cache.cache import Cache
from extender.queries import explain
from scheduler_core.wire.deviceinfo import Fault
from tests.extender.kube_scheduler.test_verbs import served
from tests.extender.queries.test_routes import is_as_described, reading
from tests.support.caches import apply, cluster
from tests.support.clock import NOW_S
from tests.support.watched import claim, report, running, tenant

FAULT = Fault(
    chip=3, code="80E01801", level="SeparateNPU", time_ms=int(NOW_S * 1000) + 999
)
BROKEN = report("n1", unhealthy=(3,), faults=(FAULT,))


async def explained(cache: Cache) -> dict[str, Any]:
    """What is told of pod `a`; the text is `explain.render_text`'s."""
    async with served(cache) as (extender, _):
        status, found = await extender.explain("a")
    assert is_as_described("/v1/explain/{namespace}/{name}", "get", status, found)
    assert found.pop("text") == explain.render_text(found)
    return found


#: what to do, by the effect of the worst fault
ADVICE = {
    "out of service": "the pod keeps its chips until it ends, and nothing moves it by "
    "itself; delete it, or have its job restart it",
    "recovering": "the chip comes back by itself once its fault stays away; if the pod "
    "does not go on by then, delete it, or have its job restart it",
    "network unhealthy": "the chip works, but a job of several pods may hang or slow "
    "down, and nothing moves it by itself; to get other chips, delete the pod, or have "
    "its job restart it",
    "in service": "the pod can go on; nothing to do now",
}
SINCE = "since 2027-01-15T08:00:00Z"


def text_of(found: dict[str, Any]) -> list[str]:
    return explain.render_text(found).splitlines()


def lines(*faults: str, advice: str = "out of service") -> list[str]:
    shown = [f"  fault: {fault}" for fault in faults]
    return [*shown, f"  advice: {ADVICE[advice]}"]


async def test_a_running_pod_is_told_the_fault_of_its_chip_and_what_to_do() -> None:
    found = await explained(cluster(tenant("a", "n1", (2, 3)), BROKEN))

    assert found == {
        "pod": "default/a",
        "uid": "uid-a",
        "resource": "huawei.com/Ascend910",
        "count": 2,
        "state": "bound",
        "node": "n1",
        "chips": [2, 3],
        "confirmed": True,
        "faults": [
            {
                "chip": 3,
                "network": False,
                "effect": "out of service",
                "level": "SeparateNPU",
                "codes": ["80E01801"],
                "since": "2027-01-15T08:00:00Z",
            }
        ],
        "advice": [ADVICE["out of service"]],
    }
    assert text_of(found) == [
        "default/a: bound",
        "  node: n1",
        "  chips: 2,3",
        *lines(f"chip 3: SeparateNPU 80E01801 {SINCE}; out of service"),
    ]


@pytest.mark.parametrize(
    ("bad", "expected"),
    [
        (
            report("n1", unhealthy=(3,)),
            lines("chip 3: level unknown; out of service"),
        ),
        (
            report("n1", recovering=(3,)),
            lines("chip 3: level unknown; recovering", advice="recovering"),
        ),
        (
            report(
                "n1",
                network_unhealthy=(3,),
                faults=(
                    Fault(chip=2, code="A1", level="SubHealthFault"),
                    Fault(
                        chip=3, code="81078603", level="PreSeparateNPU", network=True
                    ),
                ),
            ),
            lines(
                "chip 3, its network: PreSeparateNPU 81078603; network unhealthy",
                "chip 2: SubHealthFault A1; in service",
                advice="network unhealthy",
            ),
        ),
        (
            report("n1", faults=(Fault(chip=3, code="A1", level="PreSeparateNPU"),)),
            lines("chip 3: PreSeparateNPU A1; in service", advice="in service"),
        ),
        (report("n1", unhealthy=(4,)), []),
    ],
)
async def test_the_advice_follows_the_worst_fault(
    bad: events.ReportUpdated, expected: list[str]
) -> None:
    found = await explained(cluster(tenant("a", "n1", (2, 3)), bad))

    assert text_of(found)[3:] == expected


async def test_a_pod_without_faults_is_told_none() -> None:
    found = await explained(cluster(tenant("a", "n1", (2, 3))))

    assert {"faults", "report_problem"}.isdisjoint(found)


async def test_a_claim_that_is_not_confirmed_is_told_the_fault_and_that_it_is_not() -> (
    None
):
    found = await explained(cluster(running("a", claim((3,))), BROKEN))

    assert (found["confirmed"], len(found["faults"])) == (False, 1)


async def test_a_pod_that_has_ended_keeps_no_chip_and_is_told_no_fault() -> None:
    seen = tenant("a", "n1", (3,))
    cache = cluster(seen, BROKEN)
    apply(cache, events.PodUpdated(pod=replace(seen.pod, phase="Failed")))

    found = await explained(cache)

    assert (found["state"], "faults" in found) == ("ended", False)


async def test_of_a_silent_agent_the_last_faults_are_told_and_that_it_is_silent() -> (
    None
):
    well = cluster(tenant("a", "n1", (3,)))
    bad = cluster(tenant("a", "n1", (3,)), BROKEN)
    for cache in (well, bad):
        apply(cache, events.Ticked(), now_s=NOW_S + 901)

    found = [await explained(cache) for cache in (well, bad)]

    assert [each["report_problem"] for each in found] == ["agent silent"] * 2
    assert ["faults" in each for each in found] == [False, True]
    assert text_of(found[1])[3:] == [
        "  report_problem: agent silent",
        *lines(f"chip 3: SeparateNPU 80E01801 {SINCE}; out of service"),
    ]


async def test_of_a_malformed_report_the_place_that_is_wrong_is_told() -> None:
    spoilt = replace(BROKEN, device_info=BROKEN.device_info.replace("CardU", '"CardU'))

    found = await explained(cluster(tenant("a", "n1", (3,)), spoilt))

    assert found["report_problem"].startswith(
        "unreadable NPU report: DeviceInfoCfg (DeviceInfoCfg: expected JSON"
    )
    assert "faults" not in found


async def test_what_would_be_done_stands_with_the_faults() -> None:
    move = {
        "assessment": "moves",
        "text": "With evictions, a would go",
        "leaving": ["a"],
        "places": {"a": "n2 (chips 0)"},
    }
    cache = cluster(tenant("a", "n1", (2, 3)), BROKEN)

    def describe(uid: str) -> dict[str, Any]:
        return move if uid == "uid-a" else {}

    async with reading(cache, describe_move=describe) as session:
        answer = await session.get("/v1/explain/default/a")
        found = await answer.json()

    path = "/v1/explain/{namespace}/{name}"
    assert is_as_described(path, "get", answer.status, found)
    assert found["rescheduling"] == move
    assert "  rescheduling: With evictions, a would go" in found["text"].splitlines()


async def test_nothing_would_be_done_for_a_pod_without_faults() -> None:
    assert "rescheduling" not in await explained(cluster(tenant("a", "n1", (2, 3))))
