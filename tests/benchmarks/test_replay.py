from collections import Counter
from hashlib import sha256
from html.parser import HTMLParser

import pytest

from benchmarks import replay, trace
from benchmarks.fleet import Fleet, legal_sets, ways
from benchmarks.plot import Panel, Point, svg
from benchmarks.replay import PRODUCT, Interval, Outcome, interval
from benchmarks.trace import TraceJob
from scheduler_core.node.chip_mask import mask_of


def job(arrival_s: int, chips: int, duration_s: int, pods: int = 1) -> TraceJob:
    return TraceJob(arrival_s=arrival_s, pods=pods, chips=chips, duration_s=duration_s)


@pytest.mark.parametrize("seed", trace.SEEDS)
def test_the_generator_gives_the_traces_of_the_committed_checksums(seed: int) -> None:
    text = trace.render(trace.make(seed))

    assert sha256(text.encode()).hexdigest() == trace.CHECKSUMS[seed]


def test_a_trace_asks_for_as_many_chips_as_there_are() -> None:
    for seed in trace.SEEDS:
        jobs = trace.make(seed)
        asked = sum(each.size * each.duration_s for each in jobs)
        there = trace.CLUSTER_CHIPS * jobs[-1].arrival_s
        assert 0.9 < asked / there < 1.1


@pytest.mark.parametrize("name", ways(0))
def test_every_way_keeps_the_rules(name: str) -> None:
    """One node, jobs that do not end: whatever fits is placed, nothing else."""
    fleet, way = Fleet(PRODUCT, 1), ways(0)[name]

    for pods, count in ((1, 2), (1, 4), (1, 2), (1, 1), (2, 8)):
        places = way(fleet, pods, count) or ()
        assert len(places) == (count > 1 and pods == 1)
        for node, mask in places:
            assert mask in legal_sets(PRODUCT, fleet.free[node], count)
            fleet.take(node, mask)

    assert fleet.free == {"node-000": 0}


@pytest.mark.parametrize("name", ways(0))
def test_a_job_of_several_pods_is_placed_whole_or_not_at_all(name: str) -> None:
    fleet, way = Fleet(PRODUCT, 2), ways(0)[name]

    places = way(fleet, 2, 8) or ()

    assert sorted(places) == [("node-000", 0xFF), ("node-001", 0xFF)]
    fleet.take("node-001", 1)
    assert way(fleet, 2, 8) is None
    assert fleet.free == {"node-000": 0xFF, "node-001": 0xFE}


def test_a_fleet_keeps_the_sums_of_its_nodes() -> None:
    """A ring with one chip left cannot serve 2 or 4, and the node is in use."""
    fleet = Fleet(PRODUCT, 2)

    fleet.take("node-000", mask_of((0, 1, 2)))

    assert (fleet.fragmentation, fleet.stranded) == (3, 5)
    fleet.give_back("node-000", mask_of((0, 1, 2)))
    assert (fleet.fragmentation, fleet.stranded) == (0, 0)
    with pytest.raises(ValueError, match="expected free chips, found"):
        fleet.take("node-000", 1 << 8)


def test_a_run_is_measured_after_its_warm_up() -> None:
    """Of 32 nodes one is used by halves from 0 to 500 s, then 33 want whole ones."""
    jobs = [
        job(0, 4, 500),
        *(job(900, 8, 1000) for _ in range(33)),
        job(1000, 1, 10),
    ]

    outcome = replay.replay(jobs, 1.0, ways(0)["ours"])

    # Measured from 100 s to 1000 s: a node in use for 400 of 900 s, 4 chips stranded.
    asked = 33 * 8 * 1000 + 10
    assert outcome == Outcome(
        fragmentation=400 / 900,
        stranded=4 * 400 / 900,
        placed=32 * 8 * 1000 / asked,
        rejected={1: 1.0, 8: 1 / 33},
    )


def test_a_load_makes_jobs_come_closer_together() -> None:
    jobs = [job(0, 8, 50), *(job(100, 8, 1) for _ in range(32)), job(200, 1, 1)]

    assert replay.replay(jobs, 1.0, ways(0)["ours"]).rejected == {1: 0.0, 8: 0.0}
    assert replay.replay(jobs, 4.0, ways(0)["ours"]).rejected == {1: 0.0, 8: 1 / 32}


def test_an_interval_is_that_of_student() -> None:
    found = interval([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0])

    assert found.mean == 5.5
    assert round(found.half, 3) == 2.166
    assert Interval(mean=1, half=1).is_below(Interval(mean=4, half=1))
    assert not Interval(mean=1, half=1).is_below(Interval(mean=3, half=1))


class Tags(HTMLParser):
    """Which tags and texts a document has."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_a_plot_is_an_image_with_every_point() -> None:
    points = [Point(mean=1.0, half=0.5), Point(mean=3.0, half=0.0)]
    panel = Panel(title="a < b", groups=[("x", points), ("y", points)])

    reader = Tags()
    reader.feed(svg([panel, panel], ["one", "two"]))

    assert Counter(reader.seen)["circle"] == 2 * 4 + 2
    assert "a < b" in reader.texts
