"""Faults of the chips that a pod claims, from its node's report."""

import json
from dataclasses import replace

from extender.cache import events
from extender.cache.cache import Cache
from extender.cache.node_report import Report
from scheduler_core.node.reasons import Reason
from scheduler_core.wire import deviceinfo
from scheduler_core.wire.chip_faults import ChipFault, Effect
from scheduler_core.wire.deviceinfo import Fault
from tests.support.caches import apply, barred, cluster, empty
from tests.support.clock import NOW_S
from tests.support.watched import (
    CARD,
    INFERENCE,
    RESOURCE,
    TRAINING,
    claim,
    gone,
    living,
    node,
    report,
    running,
    served,
    tenant,
)

SINCE_MS = 1_800_000_000_000
FAULT = Fault(chip=3, code="80E01801", level="SeparateNPU", time_ms=SINCE_MS)
BROKEN = report("n1", unhealthy=(3,), faults=(FAULT,))
OUT = ChipFault(
    chip=3,
    effect=Effect.OUT_OF_SERVICE,
    level="SeparateNPU",
    codes=("80E01801",),
    since_ms=SINCE_MS,
)


def faults(cache: Cache, resource: str = RESOURCE) -> dict[str, tuple[ChipFault, ...]]:
    """{name of each pod on n1: its faults}."""
    found = cache.resource_state("n1", resource)
    assert found is not None
    tenants = found.tenants.values()
    return {tenant.pod.name: found.faults_of(tenant) for tenant in tenants}


def test_the_pod_with_the_chip_has_the_fault_and_its_neighbour_has_not() -> None:
    cache = cluster(tenant("a", "n1", (2, 3)), tenant("b", "n1", (4, 5)), BROKEN)

    assert faults(cache) == {"a": (OUT,), "b": ()}


def test_a_fault_comes_and_goes_with_the_reports() -> None:
    cache = cluster(tenant("a", "n1", (2, 3)))
    assert faults(cache) == {"a": ()}

    apply(cache, BROKEN)
    assert faults(cache) == {"a": (OUT,)}

    apply(cache, report("n1", recovering=(3,)))
    recovering = ChipFault(chip=3, effect=Effect.RECOVERING, level=None)
    assert faults(cache) == {"a": (recovering,)}

    apply(cache, report("n1"))
    assert faults(cache) == {"a": ()}


def test_a_pod_on_two_bad_chips_has_both_faults_the_worst_first() -> None:
    mild = Fault(chip=2, code="A1", level="SubHealthFault")
    bad = report("n1", unhealthy=(3,), faults=(mild, FAULT))

    cache = cluster(tenant("a", "n1", (2, 3)), bad)

    sub_health = ChipFault(
        chip=2, effect=Effect.NONE, level="SubHealthFault", codes=("A1",)
    )
    assert faults(cache) == {"a": (OUT, sub_health)}


def test_a_chip_that_is_separated_once_it_is_free_stays_in_service_meanwhile() -> None:
    waits = Fault(chip=3, code="A1", level="PreSeparateNPU")

    cache = cluster(tenant("a", "n1", (3,)), report("n1", faults=(waits,)))

    assert faults(cache) == {
        "a": (
            ChipFault(
                chip=3, effect=Effect.NONE, level="PreSeparateNPU", codes=("A1",)
            ),
        )
    }


def test_a_claim_that_is_not_confirmed_has_the_fault_too() -> None:
    cache = cluster(running("a", claim((3,))), BROKEN)

    found = cache.resource_state("n1", RESOURCE)
    assert found is not None
    (only,) = found.tenants.values()
    assert (only.is_unconfirmed, found.faults_of(only)) == (True, (OUT,))


def test_a_chip_that_the_pod_no_longer_has_is_not_its_fault() -> None:
    cache = cluster(tenant("a", "n1", (2, 3)), BROKEN)

    apply(cache, running("a", served((2, 4)), count=2))

    assert faults(cache) == {"a": ()}


def test_a_pod_that_is_gone_has_no_faults() -> None:
    cache = cluster(tenant("a", "n1", (3,)), BROKEN)

    apply(cache, *gone("a"))

    assert faults(cache) == {}


def test_chips_of_init_containers_are_chips_of_the_pod() -> None:
    """The agent writes the chips of all containers: 2 of the first, 3 of the other."""
    cache = cluster(running("a", served((2, 3))), BROKEN)

    assert faults(cache) == {"a": (OUT,)}


def test_a_pod_of_another_product_line_has_the_faults_of_its_own_chips() -> None:
    card = Fault(chip=9, code="80E18402", level="SeparateNPU")
    bad = report(
        "n1",
        replace(TRAINING, unhealthy=(3,), faults=(FAULT,)),
        replace(INFERENCE, unhealthy=(9,), faults=(card,)),
    )
    lines = (TRAINING, INFERENCE)
    pods = (living("train", TRAINING, (3,)), living("serve", INFERENCE, (9,)))

    cache = cluster(*pods, bad, lines=lines)

    assert faults(cache) == {"train": (OUT,)}
    assert faults(cache, CARD) == {
        "serve": (replace(OUT, chip=9, codes=("80E18402",), since_ms=None),)
    }


def test_a_bare_node_has_no_faults() -> None:
    cache = empty(bare_nodes=True)

    apply(cache, node("n1"), tenant("a", "n1", (3,)))

    assert faults(cache) == {"a": ()}


def test_a_silent_agent_is_no_fault_and_its_last_report_counts() -> None:
    well = cluster(tenant("a", "n1", (3,)))
    bad = cluster(tenant("a", "n1", (3,)), BROKEN)

    for cache in (well, bad):
        apply(cache, events.Ticked(), now_s=NOW_S + 901)
        assert barred(cache) is Reason.AGENT_SILENT

    assert (faults(well), faults(bad)) == ({"a": ()}, {"a": (OUT,)})


def test_a_report_that_is_deleted_leaves_no_faults() -> None:
    cache = cluster(tenant("a", "n1", (3,)), BROKEN)

    apply(cache, events.ReportUpdated(node="n1"))

    assert faults(cache) == {"a": ()}


def edited(**device_list: str) -> events.ReportUpdated:
    """`BROKEN` with other lists."""
    document = json.loads(BROKEN.device_info)
    listed = document["DeviceInfo"]["DeviceList"]
    listed |= {f"{RESOURCE}-{key}": text for key, text in device_list.items()}
    return replace(BROKEN, device_info=json.dumps(document))


def test_malformed_faults_leave_the_chips_that_are_out_at_an_unknown_level() -> None:
    cache = cluster(tenant("a", "n1", (3,)), tenant("b", "n1", (4,)), BROKEN)

    apply(cache, edited(Fault="{", Unhealthy="Ascend910-4"))

    assert barred(cache) is Reason.BAD_NODE_REPORT
    assert faults(cache) == {
        "a": (),
        "b": (ChipFault(chip=4, effect=Effect.OUT_OF_SERVICE, level=None),),
    }


def test_while_lists_of_chips_are_malformed_the_report_before_counts() -> None:
    cache = cluster(tenant("a", "n1", (3,)), BROKEN)

    apply(cache, edited(Unhealthy="Ascend910-x"))

    assert faults(cache) == {"a": (OUT,)}


def test_malformed_holds_leave_the_faults_readable() -> None:
    cache = cluster(tenant("a", "n1", (3,)))

    apply(cache, replace(BROKEN, affinity="{"))

    assert barred(cache) is Reason.BAD_NODE_REPORT
    assert faults(cache) == {"a": (OUT,)}


def test_a_report_without_faults_keeps_none() -> None:
    """Of 100,000 nodes nearly all are well: they share one empty value."""
    info = deviceinfo.parse_device_info(report("n1").device_info, TRAINING.product)
    cache = cluster()

    found = cache.resource_state("n1", RESOURCE)
    assert found is not None
    assert found.report is not None
    assert info.faults == ()
    assert found.report.faults is Report(available=0, update_time=0).faults


def changes(cache: Cache, *seen: events.Change) -> list[tuple[str, str]]:
    """(node, resource) of each effect that faults of a node have changed."""
    return [
        (effect.node, effect.resource)
        for effect in apply(cache, *seen)
        if isinstance(effect, events.FaultsChanged)
    ]


def test_faults_are_news_once_and_so_is_their_end() -> None:
    cache = cluster(tenant("a", "n1", (2, 3)))

    assert changes(cache, BROKEN) == [("n1", RESOURCE)]
    later = report("n1", unhealthy=(3,), faults=(FAULT,), update_time=NOW_S + 300)
    assert changes(cache, later, node("n1"), tenant("a", "n1", (2, 3))) == []
    assert changes(cache, report("n1", recovering=(3,))) == [("n1", RESOURCE)]
    assert changes(cache, report("n1")) == [("n1", RESOURCE)]
    assert changes(cache, report("n1", held=(1,))) == []


def test_a_report_before_its_node_and_one_that_goes_are_news() -> None:
    cache = empty()

    assert changes(cache, BROKEN) == []
    assert changes(cache, node("n1")) == [("n1", RESOURCE)]
    assert changes(cache, events.ReportUpdated(node="n1")) == [("n1", RESOURCE)]


def test_faults_of_another_product_line_are_news_of_that_line() -> None:
    cache = cluster(lines=(TRAINING, INFERENCE))
    card = Fault(chip=9, code="80E18402", level="SeparateNPU")
    bad = replace(INFERENCE, unhealthy=(9,), faults=(card,))

    assert changes(cache, report("n1", TRAINING, bad)) == [("n1", CARD)]
