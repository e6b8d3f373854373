"""What is said of a node whose NPU report cannot be read."""

import json
import logging
from dataclasses import replace

import pytest

from extender.announcer import Announcer
from extender.cache import events
from extender.cache.cache import Cache
from extender.cache.events import NodeUpdated, ReportJudged, ReportUpdated
from extender.scheduling import node_filter
from extender.scheduling.decisions import LastDecisions
from kube.client import Client
from kube.credentials import from_url
from kube.events import Recorder
from scheduler_core.node.reasons import Reason
from scheduler_core.products.table import by_key
from tests.support.caches import apply, barred, cluster, empty
from tests.support.clock import NOW_S, Time
from tests.support.extender import World, clock_of
from tests.support.watched import (
    RESOURCE,
    Line,
    node,
    pod,
    pod_update,
    report,
)

BOX = Line(product=by_key("atlas-a2-box16"), there=tuple(range(16)))
GOOD = report("n1")
AFFINITY = json.loads(GOOD.affinity)


def affinity(**parts: object) -> ReportUpdated:
    """A report in which these parts of `AscendAffinity` are others."""
    return replace(GOOD, affinity=json.dumps(AFFINITY | parts))


def inventory(text: str) -> NodeUpdated:
    return replace(node("n1"), inventory=text)


OTHER = "expected a chip from Ascend910-0 to Ascend910-7, found 'Ascend910"

#: What has been seen, the few words about it, and where it is wrong.
KINDS = [
    (
        replace(GOOD, device_info="[]"),
        "DeviceInfoCfg",
        "DeviceInfoCfg: expected an object, found []",
    ),
    (
        affinity(held="none"),
        "AscendAffinity",
        "AscendAffinity.held: expected a list, found 'none'",
    ),
    (
        affinity(version=2),
        "AscendAffinity of another version",
        "AscendAffinity.version: expected 1, found 2",
    ),
    (
        inventory("[]"),
        "baseDeviceInfos",
        "metadata.annotations['baseDeviceInfos']: expected an object, found []",
    ),
    (
        replace(report("n1", BOX), affinity=""),
        "chips that atlas-800-training lacks",
        f"DeviceInfoCfg.DeviceInfo.DeviceList[{RESOURCE!r}][2]: {OTHER}-10'",
    ),
    (
        inventory('{"Ascend910-12":{}}'),
        "chips that atlas-800-training lacks",
        f"metadata.annotations['baseDeviceInfos'][0]: {OTHER}-12'",
    ),
]


def refusals(cache: Cache, *names: str) -> tuple[tuple[str, int], ...]:
    return node_filter.filter_nodes(cache, pod("p"), names or ("n1",), NOW_S).counts


def explained(cache: Cache) -> dict[str, str]:
    apply(cache, pod_update("p"))
    nodes: dict[str, str] = World(cache).explain("p")["nodes"]
    return nodes


@pytest.mark.parametrize(("change", "few", "where"), KINDS)
def test_d1_a_refusal_says_what_cannot_be_read_and_explain_says_where(
    change: events.Shown, few: str, where: str
) -> None:
    cache = cluster(change)

    assert refusals(cache) == ((f"unreadable NPU report: {few}", 1),)
    assert explained(cache) == {"n1": f"unreadable NPU report: {few} ({where})"}


def test_d1_nodes_with_unlike_mistakes_of_one_kind_are_counted_together() -> None:
    spoilt = [
        replace(affinity(held=held), node=name)
        for name, held in (("n1", "none"), ("n2", [1]), ("n3", {}))
    ]
    cache = cluster(*spoilt, nodes=("n1", "n2", "n3"))

    counts = refusals(cache, "n1", "n2", "n3")

    assert counts == (("unreadable NPU report: AscendAffinity", 3),)


def test_d1_a_bare_node_without_some_chips_is_told_by_its_numbers() -> None:
    cache = empty(bare_nodes=True)
    apply(cache, replace(node("n1", allocatable=7), inventory=""))

    few = "another number of chips than allocatable"
    where = f"allocatable[{RESOURCE!r}]: expected 8, found 7"
    assert refusals(cache) == ((f"unreadable NPU report: {few}", 1),)
    assert explained(cache) == {"n1": f"unreadable NPU report: {few} ({where})"}


def test_d1_a_report_that_was_never_readable_is_not_a_silent_agent() -> None:
    """The extender has just started, and is older than the agents."""
    cache = empty()
    apply(cache, node("n1"), affinity(version=2))

    assert barred(cache) is Reason.BAD_NODE_REPORT

    apply(cache, GOOD)
    assert barred(cache) is None


def test_d1_a_text_of_any_length_is_told_in_few_words() -> None:
    cache = cluster(replace(GOOD, device_info="[" * 100_000))

    assert all(len(text) < 400 for text in explained(cache).values())


def test_d1_each_change_of_it_is_told_once() -> None:
    cache = cluster()

    def judged(change: events.Shown) -> list[str]:
        return [
            effect.problem
            for effect in apply(cache, change)
            if isinstance(effect, ReportJudged)
        ]

    version, held = affinity(version=2), affinity(held="none")
    found = [judged(change) for change in (version, version, held, GOOD, GOOD)]

    assert found == [
        [f"unreadable NPU report: {KINDS[2][1]} ({KINDS[2][2]})"],
        [],
        [f"unreadable NPU report: {KINDS[1][1]} ({KINDS[1][2]})"],
        [""],
        [],
    ]


def test_d1_the_log_has_the_node_and_what_cannot_be_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    recorder = Recorder(Client(from_url("http://127.0.0.1:1")), component="x")
    clock = clock_of(Time())
    announcer = Announcer(recorder, LastDecisions(), clock, is_mute=False)
    with caplog.at_level(logging.INFO):
        for problem in ("AscendAffinity", ""):
            announcer.carry_out(
                ReportJudged(node="n1", resource=RESOURCE, problem=problem)
            )

    assert [
        (record.message, record.levelname, record.__dict__.get("why"))
        for record in caplog.records
    ] == [
        ("NPU report not read", "WARNING", "AscendAffinity"),
        ("NPU report is read again", "INFO", None),
    ]


def test_d1_a_job_is_told_of_such_nodes_in_the_same_words() -> None:
    cache = cluster(affinity(version=2), pod_update("p"))

    result = node_filter.refuse_unplanned(cache, pod("p"), ["n1"], "its job waits")

    text = "unreadable NPU report: AscendAffinity of another version"
    assert result.counts == ((text, 1),)
