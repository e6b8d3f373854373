import asyncio
import random  # noqa: TID251  # a fixed seed: the test knows the jitter
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from agent.claims import values
from agent.claims.events import AllocateAsked, InUse, PodDeleted
from agent.claims.values import Ledger
from agent.observe.problems import UNANSWERED_S, Subject
from agent.plugin.allocate_activity import AllocateActivity
from agent.pods.reconciler import (
    Containers,
    NotNowError,
    Reconciler,
    ResourcesError,
)
from service.backoff import Backoff
from tests.agent.announcing import Announced
from tests.agent.node import NodeLedger, current, ids, nobody, pod
from tests.support.tasks import in_background


class FakeResources:
    """pod-resources as a mapping; forgets ended pods only when it is listed."""

    def __init__(self, **shown: tuple[str, ...]) -> None:
        self.shown: dict[str, tuple[str, ...]] = dict(shown)
        self.ended: set[str] = set()
        self.is_down = False
        self.is_busy = False
        self.reads: list[str] = []
        self.lists = 0
        #: Another one after the kubelet has restarted.
        self.kubelet: object = "first"
        #: Called in the middle of reading a pod of that name.
        self.meanwhile: dict[str, Callable[[], object]] = {}
        self.activity = AllocateActivity(lambda: 0.0)

    def give_out(self) -> None:
        """The kubelet calls Allocate, and has its answer."""
        with self.activity.allocating():
            pass

    async def read(self, namespace: str, name: str) -> Containers:
        await asyncio.sleep(0)
        self.reads.append(name)
        self.meanwhile.get(name, bool)()
        if self.is_down:
            raise ResourcesError("UNAVAILABLE: the kubelet restarts")
        if self.is_busy:
            raise NotNowError("devices are being given out")
        if name not in self.shown:
            return None
        return {"main": frozenset(self.shown[name])}

    async def forget_ended_pods(self) -> InUse:
        self.lists += 1
        for name in self.ended:
            self.shown.pop(name, None)
        return {
            ("default", name, "main"): frozenset(ids)
            for name, ids in self.shown.items()
        }


def reconciler(
    now: NodeLedger,
    resources: FakeResources,
    backoff: Backoff | None = None,
    on_problem: Callable[[str], None] = lambda _: None,
) -> Reconciler:
    return Reconciler(
        now,
        find_stray_processes=nobody,
        resources=resources,
        activity=resources.activity,
        period_s=5.0,
        look_now=lambda: None,
        backoff=backoff,
        on_problem=on_problem,
    )


def confirmed(**pods: int) -> tuple[NodeLedger, FakeResources]:
    """A node on which these pods have had their chips for long."""
    shown = {name: ids(chip) for name, chip in pods.items()}
    now = current(*(pod(name, [chip], chip) for name, chip in pods.items()))
    for wanted in shown.values():
        now.apply(AllocateAsked(wanted, last_call=True))
    return now, FakeResources(**shown)


def owners(ledger: Ledger) -> dict[tuple[int, ...], str]:
    """{chips: the pod that was found to hold them}."""
    return {
        hold.chips: hold.owner.pod if hold.owner else ""
        for hold in ledger.holds.values()
    }


async def test_the_owner_of_a_hold_is_found_by_its_ids() -> None:
    now = current(pod("first", [0], 1), pod("second", [1], 2))
    now.allocate(0)

    await reconciler(now, FakeResources(second=ids(0), first=())).run_once(
        thorough=False
    )

    assert owners(now.ledger) == {(0,): "second"}


async def test_a_pass_that_is_not_thorough_asks_only_about_what_is_open() -> None:
    now = current(pod("first", [0], 1), pod("second", [1], 2))
    resources = FakeResources(first=(), second=())

    await reconciler(now, resources).run_once(thorough=False)
    nothing_open = list(resources.reads)
    await reconciler(now, resources).run_once(thorough=True)

    assert nothing_open == []
    assert resources.reads == ["first", "second"]


async def test_the_chips_of_a_pod_that_ended_are_released() -> None:
    now, resources = confirmed(train=0)
    passes = reconciler(now, resources)
    await passes.run_once(thorough=False)

    now.update(pod("train", [0], 0, phase="Succeeded"))
    now.looks_again()
    resources.ended.add("train")
    await passes.run_once(thorough=False)

    assert values.held_chips(now.ledger) == 0


async def test_chips_are_not_released_while_pod_resources_shows_them() -> None:
    now, resources = confirmed(train=0)
    passes = reconciler(now, resources)
    await passes.run_once(thorough=False)

    now.update(pod("train", [0], 0, phase="Succeeded"))
    await passes.run_once(thorough=False)

    assert values.held_chips(now.ledger) == 0b1


async def test_nothing_is_released_while_devices_are_given_out() -> None:
    now, resources = confirmed(train=0)
    passes = reconciler(now, resources)
    await passes.run_once(thorough=False)

    now.update(pod("train", [0], 0, phase="Succeeded"))
    now.looks_again()
    del resources.shown["train"]
    with resources.activity.allocating():
        await passes.run_once(thorough=False)
        during = values.held_chips(now.ledger)
    await passes.run_once(thorough=False)

    assert (during, values.held_chips(now.ledger)) == (0b1, 0)


async def test_what_is_not_shown_during_an_allocate_is_not_taken_for_lost() -> None:
    now, resources = confirmed(train=0)
    passes = reconciler(now, resources)
    await passes.run_once(thorough=True)

    resources.shown["train"] = ()
    with resources.activity.allocating():
        await passes.run_once(thorough=True)
        during = now.affinity.lost
    await passes.run_once(thorough=True)

    assert (during, now.affinity.lost) == ((), (0,))


async def test_a_pass_in_which_devices_were_given_out_is_no_proof_of_absence() -> None:
    rejected, train = pod("rejected", [0], 1), pod("train", [1], 2)
    now, resources = current(rejected, train), FakeResources(train=ids(1))
    now.allocate(0)
    now.allocate(1)
    now.update(replace(rejected, phase="Failed"))
    now.looks_again()
    passes = reconciler(now, resources)

    resources.meanwhile["train"] = resources.give_out
    for _ in range(3):
        await passes.run_once(thorough=True)
    during = values.held_chips(now.ledger)
    del resources.meanwhile["train"]
    for _ in range(2):
        await passes.run_once(thorough=True)

    assert (during, values.held_chips(now.ledger)) == (0b11, 0b10)


async def test_all_pods_are_listed_only_to_release_what_nobody_has() -> None:
    now, resources = confirmed(train=0)
    passes = reconciler(now, resources)

    for _ in range(3):
        await passes.run_once(thorough=True)
    while_it_lives = resources.lists
    now.update(pod("train", [0], 0, phase="Succeeded"))
    await passes.run_once(thorough=True)

    assert (while_it_lives, resources.lists) == (0, 1)


async def test_nothing_is_listed_while_devices_are_given_out() -> None:
    now, resources = confirmed(train=0)
    passes = reconciler(now, resources)
    await passes.run_once(thorough=True)

    now.update(pod("train", [0], 0, phase="Succeeded"))
    with resources.activity.allocating():
        put_off_s = await passes.run_once(thorough=True)

    assert (resources.lists, put_off_s) == (0, None)


@pytest.mark.looptime
@pytest.mark.parametrize("seed", range(20))  # with 12 a timer is a hair early
async def test_a_kubelet_that_restarts_is_asked_again_until_it_answers(
    seed: int,
) -> None:
    now = current(pod("train", [0]))
    resources = FakeResources(train=ids(0))
    resources.is_down = True
    now.allocate(0)
    jitter = random.Random(seed)  # noqa: S311  # no secret
    passes = reconciler(now, resources, backoff=Backoff(rng=jitter))
    async with in_background(passes.run()):
        await asyncio.sleep(30)
        unknown = owners(now.ledger)
        resources.is_down = False
        await asyncio.sleep(30)

    assert unknown == {(0,): ""}
    assert owners(now.ledger) == {(0,): "train"}


SILENT = (
    "the kubelet's pod-resources do not say which pod has which chips, so no pod is "
    "annotated and no chip released: UNAVAILABLE: the kubelet restarts"
)


@pytest.mark.looptime
async def test_d27_a_kubelet_that_does_not_answer_is_told_once_and_so_is_its_end() -> (
    None
):
    """Nothing was annotated or released, and nobody was told."""
    now = current(pod("train", [0]))
    resources = FakeResources(train=ids(0))
    resources.is_down = True
    now.allocate(0)
    told = Announced()
    tell = partial(told.problems.tell, Subject.POD_RESOURCES)
    async with in_background(reconciler(now, resources, on_problem=tell).run()):
        await asyncio.sleep(UNANSWERED_S - 0.1)
        before = told.events
        await asyncio.sleep(60)
        during = told.problems.why_not_ready()
        resources.is_down = False
        await asyncio.sleep(6)

    assert (before, during, told.problems.why_not_ready()) == ([], SILENT, None)
    known = "it is known again which pod has which chips"
    assert told.events == [("NpuPodsUnknown", SILENT), ("NpuPodsKnown", known)]
    assert owners(now.ledger) == {(0,): "train"}


@pytest.mark.looptime
@pytest.mark.parametrize("is_held", [False, True])
async def test_d27_a_kubelet_that_does_not_answer_is_told_while_no_hold_is_open(
    *, is_held: bool
) -> None:
    """A pass between two thorough ones asked nothing, and counted as an answer."""
    now, resources = confirmed(train=0)
    if not is_held:  # an agent without a journal does not know which chips it has
        now = current(pod("train", [0], phase="Running"))
    told = Announced()
    tell = partial(told.problems.tell, Subject.POD_RESOURCES)
    async with in_background(reconciler(now, resources, on_problem=tell).run()):
        resources.is_down = not is_held
        await asyncio.sleep(1)
        resources.is_down = True
        await asyncio.sleep(30)
        during = told.problems.why_not_ready()
        resources.is_down = not is_held
        now.apply(PodDeleted("uid-train"))
        await asyncio.sleep(6)

    assert (during, told.problems.why_not_ready()) == (SILENT, None)


@pytest.mark.looptime
async def test_d27_a_kubelet_that_restarts_or_gives_devices_out_is_not_told() -> None:
    now = current(pod("train", [0]))
    resources = FakeResources(train=ids(0))
    now.allocate(0)
    told = Announced()
    tell = partial(told.problems.tell, Subject.POD_RESOURCES)
    async with in_background(reconciler(now, resources, on_problem=tell).run()):
        for _ in range(5):
            resources.is_down = True
            await asyncio.sleep(8)
            resources.is_down = False
            await asyncio.sleep(6)
        resources.is_busy = True
        await asyncio.sleep(100)

    assert told.events == []


@pytest.mark.looptime
async def test_an_allocate_is_followed_by_a_pass_within_a_second() -> None:
    now = current(pod("train", [0]))
    resources = FakeResources(train=ids(0))
    async with in_background(reconciler(now, resources).run()):
        await asyncio.sleep(1)

        now.allocate(0)
        await asyncio.sleep(1)

    assert owners(now.ledger) == {(0,): "train"}


@pytest.mark.looptime
async def test_a_kubelet_that_shows_a_pod_late_is_asked_again_within_a_second() -> None:
    now = current(pod("train", [0]))
    resources = FakeResources()
    async with in_background(reconciler(now, resources).run()):
        await asyncio.sleep(1)

        now.allocate(0)
        await asyncio.sleep(0.6)
        resources.shown["train"] = ids(0)
        await asyncio.sleep(0.4)

    assert owners(now.ledger) == {(0,): "train"}


@pytest.mark.looptime
async def test_a_pod_whose_kubelet_is_slow_to_say_so_is_found_as_soon_as_it_has() -> (
    None
):
    train = pod("train", [0], admitted=False)
    now, resources = current(train), FakeResources(train=ids(0))
    now.allocate(0)
    async with in_background(reconciler(now, resources).run()):
        await asyncio.sleep(30.5)  # long enough for a patient pace
        before = owners(now.ledger)

        now.update(replace(train, admitted=True))
        await asyncio.sleep(0.02)

    assert (before, owners(now.ledger)) == ({(0,): ""}, {(0,): "train"})


@pytest.mark.looptime
async def test_a_hold_that_stays_open_delays_no_other_pod() -> None:
    rejected, train = pod("rejected", [0], 1), pod("train", [1], 2)
    now, resources = current(rejected, train), FakeResources()
    now.allocate(0)
    async with in_background(reconciler(now, resources).run()):
        await asyncio.sleep(30)
        resources.reads.clear()
        while not resources.reads:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)  # the pass is over, the next one is far

        now.allocate(1)
        resources.shown["train"] = ids(1)
        await asyncio.sleep(0.2)

    assert owners(now.ledger) == {(0,): "", (1,): "train"}


@pytest.mark.looptime
async def test_pods_that_have_what_they_had_are_asked_about_once_a_minute() -> None:
    now, resources = confirmed(first=0, second=1)
    async with in_background(reconciler(now, resources).run()):
        await asyncio.sleep(300)
        resources.reads.clear()

        await asyncio.sleep(600)

    assert resources.reads == ["first", "second"] * 10


@pytest.mark.looptime
async def test_a_kubelet_that_has_restarted_is_asked_about_all_pods() -> None:
    now, resources = confirmed(train=0)
    async with in_background(reconciler(now, resources).run()):
        await asyncio.sleep(300)

        resources.kubelet = "second"
        resources.shown["train"] = ()
        await asyncio.sleep(5)

    assert [hold.lost for hold in now.ledger.holds.values()] == [True]


@pytest.mark.looptime
async def test_passes_that_were_disturbed_each_time_have_not_found_all_as_it_was() -> (
    None
):
    now, resources = confirmed(train=0)

    async with in_background(reconciler(now, resources).run()):
        await asyncio.sleep(6)
        resources.meanwhile["train"] = resources.give_out
        resources.kubelet, resources.shown["train"] = "second", ()
        await asyncio.sleep(300)
        resources.meanwhile.clear()
        await asyncio.sleep(5.1)

    assert [hold.lost for hold in now.ledger.holds.values()] == [True]


@pytest.mark.looptime
async def test_a_change_is_followed_by_passes_of_the_usual_pace() -> None:
    now, resources = confirmed(train=0)
    async with in_background(reconciler(now, resources).run()):
        await asyncio.sleep(300)
        resources.reads.clear()

        now.update(pod("more", [1], 1, phase="Succeeded"))
        await asyncio.sleep(15)

    assert resources.reads == ["train"] * 3


@pytest.mark.looptime
async def test_a_pod_that_was_served_by_another_is_found_within_a_period() -> None:
    now, resources = confirmed(train=0)
    now.update(pod("foreign", [1], 1))
    async with in_background(reconciler(now, resources).run()):
        await asyncio.sleep(300)

        resources.shown["foreign"] = ids(1)
        await asyncio.sleep(5.1)

    assert owners(now.ledger) == {(0,): "train", (1,): "foreign"}


@pytest.mark.looptime
async def test_a_pass_leaves_other_callers_their_share_of_pod_resources() -> None:
    now = current(*(pod(f"pod-{n}", [n % 8], n) for n in range(50)))
    resources = FakeResources()
    started = asyncio.get_running_loop().time()

    await reconciler(now, resources).run_once(thorough=True)

    took_s = asyncio.get_running_loop().time() - started
    assert len(resources.reads) / took_s <= 100  # what the kubelet allows


@pytest.mark.looptime
async def test_a_pod_that_ends_is_looked_at_at_once_and_its_chips_come_back() -> None:
    now, resources = confirmed(train=0)
    looked_s = list[float]()

    def look_now() -> None:
        looked_s.append(asyncio.get_running_loop().time())
        asyncio.get_running_loop().call_later(0.05, now.read_chips)

    passes = Reconciler(
        now,
        find_stray_processes=nobody,
        resources=resources,
        activity=resources.activity,
        period_s=5.0,
        look_now=look_now,
    )
    async with in_background(passes.run()):
        await asyncio.sleep(300)
        before = list(looked_s)
        resources.ended.add("train")
        now.update(pod("train", [0], 0, phase="Succeeded"))
        await asyncio.sleep(0.3)

    assert before == []
    assert looked_s[0] == pytest.approx(300, abs=0.01)
    assert values.held_chips(now.ledger) == 0


@pytest.mark.looptime
async def test_a_look_that_comes_late_is_followed_by_a_pass_at_once() -> None:
    now, resources = confirmed(train=0)
    async with in_background(reconciler(now, resources).run()):
        await asyncio.sleep(300)
        resources.ended.add("train")
        now.update(pod("train", [0], 0, phase="Succeeded"))
        await asyncio.sleep(20.5)  # long enough for a patient pace
        before = values.held_chips(now.ledger)

        now.read_chips()
        await asyncio.sleep(0.05)

    assert (before, values.held_chips(now.ledger)) == (0b1, 0)


async def test_a_kubelet_that_restarts_during_a_reading_shows_no_absence() -> None:
    now, resources = confirmed(train=0)
    passes = reconciler(now, resources)
    await passes.run_once(thorough=True)

    def restart() -> None:
        resources.kubelet = "second"

    resources.shown["train"] = ()
    resources.meanwhile["train"] = restart
    await passes.run_once(thorough=True)
    during = now.affinity.lost
    resources.meanwhile.clear()
    await passes.run_once(thorough=True)

    assert (during, now.affinity.lost) == ((), (0,))
