"""The choice of pods that go, against all choices there are in small clusters."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_core.rescheduling import ladder
from scheduler_core.rescheduling.ladder import (
    FaultJob,
    Loss,
    Move,
    NoSpare,
    Place,
    Rung,
)
from tests.support.examples import examples

NODES = ("n0", "n1", "n2")
CHIPS = 3
ALLOWED = ((Rung.PODS,), (Rung.JOB,), (Rung.PODS, Rung.JOB))


@dataclass(frozen=True, kw_only=True)
class World:
    """A job in a small cluster: each pod has chips of one node."""

    homes: Mapping[str, Place]
    #: {node: mask of the chips that nobody has}
    free: Mapping[str, int]
    #: {node: mask of broken chips}
    broken: Mapping[str, int]
    rungs: tuple[Rung, ...]
    can_lose: bool

    @property
    def faulty(self) -> frozenset[str]:
        return frozenset(
            pod
            for pod, home in self.homes.items()
            if home.chips & self.broken.get(home.node, 0)
        )

    @property
    def job(self) -> FaultJob:
        return FaultJob(
            homes=self.homes,
            faulty=self.faulty,
            rungs=self.rungs,
            can_lose=self.can_lose,
        )

    def left(self, gone: Iterable[str]) -> dict[str, int]:
        """The chips that are free once these pods have gone."""
        masks = dict(self.free)
        for pod in gone:
            home = self.homes[pod]
            masks[home.node] |= home.chips
        return {node: masks[node] & ~self.broken.get(node, 0) for node in NODES}

    def ways(self, pods: frozenset[str], avoids: bool) -> bool:
        """Whether there is a node for each of these pods, tried one by one."""
        avoided = {self.homes[pod].node for pod in self.faulty} if avoids else set()
        left = self.left(pods)
        for nodes in product(NODES, repeat=len(pods)):
            need = dict.fromkeys(NODES, 0)
            for pod, node in zip(sorted(pods), nodes, strict=True):
                need[node] += self.homes[pod].chips.bit_count()
            if avoided.isdisjoint(nodes) and all(
                need[node] <= left[node].bit_count() for node in NODES
            ):
                return True
        return False

    def fit(self, avoids: bool, pods: frozenset[str]) -> Mapping[str, Place] | str:
        """Places by search, the largest pods first."""
        avoided = {self.homes[pod].node for pod in self.faulty} if avoids else set()
        order = sorted(pods, key=lambda pod: (-self.homes[pod].chips.bit_count(), pod))
        places = self._search(order, self.left(pods), avoided)
        return f"no place for {len(pods)}" if places is None else places

    def _search(
        self, order: list[str], left: dict[str, int], avoided: set[str]
    ) -> dict[str, Place] | None:
        if not order:
            return {}
        pod, *others = order
        count = self.homes[pod].chips.bit_count()
        for node in NODES:
            chips = [1 << chip for chip in range(CHIPS) if left[node] >> chip & 1]
            if node in avoided or len(chips) < count:
                continue
            mask = sum(chips[:count])
            rest = self._search(others, left | {node: left[node] & ~mask}, avoided)
            if rest is not None:
                return rest | {pod: Place(node, mask)}
        return None


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """A job of up to five pods, at least one of which has a broken chip."""
    left = dict.fromkeys(NODES, (1 << CHIPS) - 1)
    homes: dict[str, Place] = {}
    for number in range(draw(st.integers(1, 5))):
        node = draw(st.sampled_from(NODES))
        chips = [1 << chip for chip in range(CHIPS) if left[node] >> chip & 1]
        if not chips:
            continue
        mask = sum(chips[: draw(st.integers(1, 2))])
        homes[f"p{number}"] = Place(node, mask)
        left[node] &= ~mask
    broken = dict.fromkeys(NODES, 0)
    for pod in draw(st.lists(st.sampled_from(sorted(homes)), min_size=1, unique=True)):
        home = homes[pod]
        broken[home.node] |= home.chips & -home.chips
    taken = {node: draw(st.integers(0, (1 << CHIPS) - 1)) for node in NODES}
    return World(
        homes=homes,
        free={node: left[node] & ~taken[node] for node in NODES},
        broken=broken,
        rungs=draw(st.sampled_from(ALLOWED)),
        can_lose=draw(st.booleans()),
    )


@examples(300, pytest.param(2000, marks=pytest.mark.long))
def test_the_smallest_rung_with_places_is_taken_and_keeps_homes(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(worlds())
    def check(world: World) -> None:
        choice = ladder.choose(world.job, world.fit)

        rung = smallest(world)
        if isinstance(choice, Move):
            assert set(choice.leaving) == pods_of(world, rung)
            check_places(world, choice)
            check_homes(world, choice)
        elif isinstance(choice, Loss):
            assert rung is None
            assert world.can_lose
            assert set(choice.leaving) == world.faulty
        else:
            assert rung is None
            assert not world.can_lose

    check()


def pods_of(world: World, rung: Rung | None) -> set[str]:
    assert rung is not None
    return set(world.homes if rung is Rung.JOB else world.faulty)


def smallest(world: World) -> Rung | None:
    """The first rung that the job allows, and that has places in any way."""
    rungs = (Rung.PODS,) if world.can_lose else world.rungs
    for rung in rungs:
        pods = frozenset(pods_of(world, rung))
        if any(world.ways(pods, avoids) for avoids in (True, False)):
            return rung
        # all may go and all but the fault pods return
        if any(world.ways(world.faulty, avoids) for avoids in (True, False)):
            return rung
    return None


def check_places(world: World, move: Move) -> None:
    assert move.places.keys() == set(move.leaving)
    left = world.left(move.leaving)
    for pod, place in move.places.items():
        assert place.chips.bit_count() == world.homes[pod].chips.bit_count()
        assert not place.chips & ~left[place.node], "taken, broken, or twice"
        left[place.node] &= ~place.chips
    healthy = [pod for pod in move.leaving if pod not in world.faulty]
    broken = [pod for pod in move.leaving if pod in world.faulty]
    descending = list(reversed(list(world.homes)))
    assert list(move.leaving) == [*broken, *healthy]
    assert healthy == [pod for pod in descending if pod in healthy]
    assert broken == [pod for pod in descending if pod in broken]


def check_homes(world: World, move: Move) -> None:
    """Those that return are at home, and no other healthy pod could be as well."""
    assert not move.returning & world.faulty
    assert all(move.places[pod] == world.homes[pod] for pod in move.returning)
    away = frozenset(move.leaving) - move.returning
    avoids = world.ways(world.faulty, avoids=True) or world.ways(
        frozenset(world.homes), avoids=True
    )
    for pod in away - world.faulty:
        assert not world.ways(away - {pod}, avoids), f"{pod} could return"


def job(faulty: str, *rungs: Rung, can_lose: bool = False) -> FaultJob:
    homes = {name: Place(f"home-{name}", 1) for name in "abcd"}
    return FaultJob(
        homes=homes, faulty=frozenset(faulty), rungs=rungs, can_lose=can_lose
    )


def test_pods_that_end_with_the_fault_pod_go_on_the_lowest_rung_and_return() -> None:
    def fit(_avoids: bool, pods: frozenset[str]) -> Mapping[str, Place] | str:
        return {pod: Place("spare", 2) for pod in pods}

    group = replace(job("b", Rung.PODS, Rung.JOB), followers=frozenset("bc"))
    found = ladder.choose(group, fit)

    assert found == Move(
        rung=Rung.PODS,
        leaving=("b", "c"),
        places={"b": Place("spare", 2), "c": Place("home-c", 1)},
        returning=frozenset("c"),
    )


def test_pods_that_end_with_the_fault_pod_make_room_for_it() -> None:
    asked = []

    def fit(_avoids: bool, pods: frozenset[str]) -> Mapping[str, Place] | str:
        asked.append(pods)
        return {pod: Place("spare", 2) for pod in pods} if len(pods) > 1 else "none"

    group = replace(job("b", Rung.PODS), followers=frozenset("c"))
    found = ladder.choose(group, fit)

    assert isinstance(found, Move)
    assert (found.leaving, found.returning) == (("b", "c"), frozenset())
    assert asked == [frozenset("b"), frozenset("bc"), frozenset("b")]


def test_a_whole_job_goes_and_its_healthy_pods_return() -> None:
    asked = []

    def fit(avoids: bool, pods: frozenset[str]) -> Mapping[str, Place] | str:
        asked.append((avoids, pods))
        return {pod: Place("spare", 2) for pod in pods}

    found = ladder.choose(job("b", Rung.JOB), fit)

    assert found == Move(
        rung=Rung.JOB,
        leaving=("b", "d", "c", "a"),
        places={
            "a": Place("home-a", 1),
            "b": Place("spare", 2),
            "c": Place("home-c", 1),
            "d": Place("home-d", 1),
        },
        returning=frozenset("acd"),
    )
    assert asked == [(True, frozenset("b"))]


def test_the_node_of_the_fault_serves_where_no_other_does() -> None:
    def fit(avoids: bool, pods: frozenset[str]) -> Mapping[str, Place] | str:
        return "none" if avoids else {pod: Place("home-b", 4) for pod in pods}

    found = ladder.choose(job("b", Rung.PODS, Rung.JOB), fit)

    assert isinstance(found, Move)
    assert (found.rung, found.places) == (Rung.PODS, {"b": Place("home-b", 4)})


def test_all_pods_are_one_rung_whatever_the_job_allows() -> None:
    def fit(_avoids: bool, _pods: frozenset[str]) -> Mapping[str, Place] | str:
        return {pod: Place("spare", 1) for pod in "abcd"}

    found = ladder.choose(job("abcd", Rung.JOB), fit)

    assert isinstance(found, Move)
    assert (found.rung, found.leaving) == (Rung.PODS, ("d", "c", "b", "a"))


def test_what_is_missing_is_what_the_fault_pods_lack() -> None:
    def fit(avoids: bool, pods: frozenset[str]) -> Mapping[str, Place] | str:
        return f"{avoids}, {len(pods)} pods"

    assert ladder.choose(job("b", Rung.JOB), fit) == NoSpare(missing="True, 1 pods")
    assert ladder.choose(job("bc", Rung.JOB, can_lose=True), fit) == Loss(
        leaving=("c", "b"), missing="True, 2 pods"
    )


def test_a_large_job_is_tried_at_home_in_halves_and_not_pod_by_pod() -> None:
    homes = {f"p{number:04}": Place(f"n{number}", 1) for number in range(1000)}
    large = FaultJob(homes=homes, faulty=frozenset({"p0500"}), rungs=(Rung.JOB,))
    asked = []

    def fit(_avoids: bool, pods: frozenset[str]) -> Mapping[str, Place] | str:
        asked.append(pods)
        # the fault pod fits only where p0007 is
        if "p0007" not in pods:
            return "no place"
        return {pod: Place("elsewhere", 1) for pod in pods}

    found = ladder.choose(large, fit)

    assert isinstance(found, Move)
    assert set(homes) - found.returning == {"p0007", "p0500"}
    assert len(asked) < 25
