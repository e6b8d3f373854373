"""What an agent reports of its node: chips that are free, and signs of life."""

import dataclasses

import pytest

from extender.cache import events
from scheduler_core.node.reasons import Reason
from scheduler_core.products.table import ATLAS_800_TRAINING
from scheduler_core.wire import deviceinfo
from scheduler_core.wire.deviceinfo import Affinity, DeviceInfo
from tests.support.caches import (
    apply,
    barred,
    cluster,
    empty,
    free,
    improved,
    take_improved,
)
from tests.support.clock import NOW_S
from tests.support.watched import RESOURCE, claim, node, report, running, tenant


def test_the_report_may_come_before_the_node() -> None:
    cache = empty()

    apply(cache, report("n1"), node("n1"))

    assert barred(cache) is None
    assert len(free(cache, "n1")) == 8


@pytest.mark.seed("004-13")
def test_unhealthy_recovering_held_and_releasing_chips_are_not_free() -> None:
    found = report("n1", unhealthy=(0,), recovering=(1,), held=(2,), releasing=(3,))

    cache = cluster(found)

    assert free(cache, "n1") == (4, 5, 6, 7)


@pytest.mark.seed("000-06")
def test_in_the_agents_mode_its_list_bounds_what_is_free() -> None:
    cache = empty(self_maintain=False)

    apply(cache, node("n1"), report("n1", there=(4, 5, 6, 7)))

    assert free(cache, "n1") == (4, 5, 6, 7)


@pytest.mark.seed("000-08")
def test_in_our_own_mode_the_agents_list_takes_no_effect() -> None:
    cache = cluster(report("n1", there=()))

    assert len(free(cache, "n1")) == 8


def test_in_the_agents_mode_a_claim_newer_than_the_list_is_subtracted() -> None:
    cache = empty(self_maintain=False)
    apply(cache, node("n1"), report("n1"), running("a", claim((0, 1))))

    assert free(cache, "n1") == (2, 3, 4, 5, 6, 7)


def test_in_the_agents_mode_what_its_list_has_not_dropped_yet_is_not_free() -> None:
    cache = empty(self_maintain=False)

    apply(cache, node("n1"), report("n1", held=(0,), releasing=(5,)))

    assert free(cache, "n1") == (1, 2, 3, 4, 6, 7)


def test_a_node_whose_kubelet_lost_ids_is_barred_until_that_is_settled() -> None:
    cache = cluster(report("n1", lost=(3,)))
    assert barred(cache) is Reason.IDS_LOST

    apply(cache, report("n1"))

    assert barred(cache) is None


def test_a_node_without_a_report_is_silent() -> None:
    cache = empty()
    apply(cache, node("n1"))

    assert barred(cache) is Reason.AGENT_SILENT


def test_a_deleted_report_silences_the_node_until_it_is_written_again() -> None:
    cache = cluster(events.ReportUpdated(node="n1"))
    assert barred(cache) is Reason.AGENT_SILENT

    apply(cache, report("n1"))

    assert barred(cache) is None


def test_an_agent_is_silent_after_fifteen_minutes_without_a_new_report() -> None:
    cache = cluster()

    apply(cache, events.Ticked(), now_s=NOW_S + 900)
    assert barred(cache) is None

    apply(cache, events.Ticked(), now_s=NOW_S + 901)
    assert barred(cache) is Reason.AGENT_SILENT


def test_the_same_report_again_is_no_sign_of_life() -> None:
    cache = cluster()

    apply(cache, report("n1"), now_s=NOW_S + 800)
    apply(cache, events.Ticked(), now_s=NOW_S + 901)

    assert barred(cache) is Reason.AGENT_SILENT


def test_a_new_report_is_a_sign_of_life_however_wrong_the_agents_clock_is() -> None:
    cache = cluster(report("n1", update_time=NOW_S - 5000))
    apply(cache, events.Ticked(), now_s=NOW_S + 901)
    assert barred(cache) is Reason.AGENT_SILENT

    apply(cache, report("n1", update_time=NOW_S - 4700), now_s=NOW_S + 1000)

    assert barred(cache) is None


def test_a_clock_that_runs_ahead_does_not_keep_a_dead_agent_alive() -> None:
    cache = empty()
    apply(cache, node("n1"), report("n1", update_time=NOW_S + 10_000))

    apply(cache, events.Ticked(), now_s=NOW_S + 901)

    assert barred(cache) is Reason.AGENT_SILENT


def test_a_report_spoilt_by_hand_bars_the_node_until_the_agent_repairs_it() -> None:
    spoilt = dataclasses.replace(report("n1"), device_info="{")
    cache = cluster(spoilt)
    assert barred(cache) is Reason.BAD_NODE_REPORT

    apply(cache, report("n1"))

    assert barred(cache) is None


def test_an_unreadable_inventory_bars_the_node() -> None:
    spoilt = dataclasses.replace(node("n1"), inventory="[]")

    assert barred(cluster(spoilt)) is Reason.BAD_NODE_REPORT


def test_a_report_of_another_make_of_agent_has_no_holds() -> None:
    cache = empty()

    apply(cache, node("n1"), dataclasses.replace(report("n1"), affinity=""))

    assert barred(cache) is None
    assert len(free(cache, "n1")) == 8


def test_a_node_that_has_not_said_which_chips_it_has_is_silent() -> None:
    cache = cluster(dataclasses.replace(node("n1"), inventory=""))

    assert barred(cache) is Reason.AGENT_SILENT


def test_an_edit_by_hand_is_no_sign_of_life() -> None:
    cache = cluster()

    apply(cache, report("n1", held=(0,)), now_s=NOW_S + 800)
    apply(cache, events.Ticked(), now_s=NOW_S + 901)

    assert barred(cache) is Reason.AGENT_SILENT


def with_faulty_network(*ids: int) -> events.ReportUpdated:
    info = DeviceInfo(
        available=tuple(range(8)), network_unhealthy=ids, update_time=int(NOW_S)
    )
    texts = deviceinfo.render(info, Affinity(held=(1,), sequence=1), ATLAS_800_TRAINING)
    return events.ReportUpdated(
        node="n1",
        device_info=texts[deviceinfo.DEVICE_INFO_KEY],
        affinity=texts[deviceinfo.AFFINITY_KEY],
    )


def test_a_network_that_recovers_wakes_the_jobs_that_wait() -> None:
    cache = cluster(with_faulty_network(2, 3))
    take_improved(cache)

    apply(cache, with_faulty_network(2, 3, 4))
    assert improved(cache) == set()
    apply(cache, with_faulty_network(3, 4))
    assert improved(cache) == {"n1"}


def test_chips_with_a_faulty_network_are_known_as_such() -> None:
    seen = with_faulty_network(2)

    state = cluster(tenant("a", "n1", (0,)), seen).index.nodes(RESOURCE)["n1"]

    assert (state.network_unhealthy, state.taken) == (0b100, 0b11)


def test_a_report_that_comes_while_we_follow_is_new_whatever_its_time() -> None:
    cache = empty()

    apply(cache, node("n2"), report("n2", update_time=NOW_S - 5_000))
    assert barred(cache, "n2") is None

    apply(cache, events.Ticked(), now_s=NOW_S + 901)
    assert barred(cache, "n2") is Reason.AGENT_SILENT


def test_a_node_that_is_seen_long_after_its_report_has_that_ones_age() -> None:
    cache = empty()
    apply(cache, report("n2", update_time=NOW_S - 5_000))

    apply(cache, node("n2"), now_s=NOW_S + 800)
    assert barred(cache, "n2") is None

    apply(cache, events.Ticked(), now_s=NOW_S + 901)
    assert barred(cache, "n2") is Reason.AGENT_SILENT
