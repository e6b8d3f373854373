"""Sizes of jobs that are edited while their pods wait."""

import asyncio
from dataclasses import replace

from extender.cache import events
from extender.gang.membership import Membership, SizeSource, order_of
from extender.gang.size import Size, Stage, whole
from extender.refusals import READING
from tests.support.caches import cluster, known_pod
from tests.support.extender import NAMES, World
from tests.support.watched import gone, member

PATH = "/apis/batch/v1/namespaces/default/jobs/j"


def sized(name: str, node: str = "", job: str = "j") -> events.PodUpdated:
    """A pod of a job whose object on the API server says its size."""
    source = SizeSource(path=PATH, kind="Job")
    membership = Membership(job=f"Job/default/{job}", size_source=source)
    made = member(name, node=node)
    assert made.member is not None
    return replace(made, member=replace(made.member, membership=membership))


def waiting(*names: str, size: int) -> World:
    w = World(cluster(nodes=("n1", "n2", "n3", "n4")))
    w.calls.sizes[PATH] = whole(size)
    w.learn(*map(sized, names))
    return w


async def test_the_size_is_read_before_anybody_asks() -> None:
    """G8: the first refusal of a job is not that its size is being read."""
    w = waiting("a", "b", size=2)
    await w.settled()

    assert w.filter("a") == ["n1"]
    assert w.calls.sizes_read == 1


async def test_an_object_that_cannot_be_read_is_not_read_at_each_question() -> None:
    w = World(cluster(nodes=("n1", "n2", "n3")))
    w.learn(sized("a"), sized("b"))
    for _ in range(60):
        assert w.why("a")
        assert w.why("b")
        await w.settled()
        w.pass_s(1)

    assert w.calls.sizes_read <= 7

    w.calls.sizes[PATH] = whole(2)
    await w.tick(11)
    assert w.filter("a") == ["n1"]


async def test_of_many_jobs_that_come_at_once_each_is_read_in_its_turn() -> None:
    w = World(cluster())
    w.pass_s(1)
    for number in range(50):
        w.learn(sized(f"p{number}", job=f"j{number}"))
    reads = []
    for _ in range(4):
        await w.settled()
        reads.append(w.calls.sizes_read)
        w.pass_s(1)

    assert reads == [20, 40, 50, 50]


async def test_a_job_that_is_made_smaller_is_bound() -> None:
    w = waiting("a", "b", size=4)
    await w.tick()
    assert w.why("a") == ("waits for 2 of the 4 pods of its job",)

    w.calls.sizes[PATH] = whole(2)
    wakes = w.calls.wakes
    await w.tick(10)

    assert w.calls.wakes > wakes
    assert w.filter("a") == ["n1"]


async def test_a_job_that_is_made_larger_waits_for_its_new_pods() -> None:
    w = waiting("a", size=1)
    await w.tick()
    w.calls.sizes[PATH] = whole(2)
    w.learn(sized("b"))
    await w.tick(10)

    assert (w.filter("a"), w.filter("b")) == (["n1"], ["n2"])


async def test_s2_a_job_that_grows_is_not_planned_by_the_size_that_it_had() -> None:
    w = waiting("a", "b", size=2)
    await w.settled()
    w.calls.sizes[PATH] = whole(4)
    w.learn(sized("c"))
    assert w.why("a") == (READING,)
    assert w.why("c") == (READING,)

    await w.settled()

    assert w.why("a") == ("waits for 1 of the 4 pods of its job",)
    w.learn(sized("d"))
    assert w.filter("a", ("n1", "n2", "n3", "n4")) == ["n1"]


async def test_s2_a_size_that_was_sent_before_the_job_grew_is_read_again() -> None:
    w = waiting("a", size=1)
    w.calls.until = asyncio.Event()
    await asyncio.sleep(0)
    w.calls.sizes[PATH] = whole(3)
    w.learn(sized("b"))
    w.calls.until.set()
    await w.settled()

    assert w.why("a") == ("waits for 1 of the 3 pods of its job",)
    assert w.calls.sizes_read == 2


def of_stages(name: str, role: str) -> events.PodUpdated:
    """A pod of a JobSet whose trainers are made when its data are prepared."""
    made = sized(name)
    assert made.member is not None
    source = SizeSource(path=PATH, kind="JobSet")
    membership = Membership(
        job="JobSet/default/j", size_source=source, order=order_of(role, (0, 0))
    )
    return replace(made, member=replace(made.member, membership=membership))


def in_stages(trainers: int) -> Size:
    roles = frozenset({"train"})
    stage = Stage(name="train", roles=roles, size=whole(trainers))
    return replace(whole(1), stages=(stage,))


async def test_s2_a_stage_that_grows_is_read_again() -> None:
    w = World(cluster(nodes=("n1", "n2", "n3")))
    w.calls.sizes[PATH] = in_stages(2)
    w.learn(of_stages("prepare", "prepare"))
    await w.settled()
    w.learn(of_stages("a", "train"), of_stages("b", "train"))
    gang = w.cache.gangs["JobSet/default/j/train"]
    assert gang.size == whole(2)
    w.calls.until = asyncio.Event()
    w.job_calls.read_size(gang)
    await asyncio.sleep(0)
    w.calls.sizes[PATH] = in_stages(3)
    w.learn(of_stages("c", "train"))
    w.calls.until.set()
    await w.settled()

    assert gang.size == whole(3)


async def test_pods_that_do_not_need_each_other_cost_a_second_read_and_no_third() -> (
    None
):
    """As of a Job with more completions than pods at a time."""
    w = waiting("a", size=1)
    await w.settled()
    for name in "bcdefg":
        w.learn(sized(name))
        await w.settled()

    assert w.calls.sizes_read == 2
    assert w.planner.filter_nodes(known_pod(w.cache, "a"), NAMES) is None


async def test_of_many_jobs_that_grow_at_once_each_is_read_in_its_turn() -> None:
    w = World(cluster())
    w.calls.sizes[PATH] = whole(1)
    for number in range(50):
        w.learn(sized(f"p{number}", job=f"j{number}"))
    for _ in range(4):
        await w.tick()
    w.calls.sizes[PATH] = whole(2)
    for number in range(50):
        w.learn(sized(f"q{number}", job=f"j{number}"))
    reads = []
    for _ in range(3):
        await w.settled()
        reads.append(w.calls.sizes_read)
        w.pass_s(1)

    assert reads == [70, 90, 100]


async def test_a_least_number_that_is_made_smaller_is_followed() -> None:
    """G3 of an elastic job: its object tells the least only."""
    w = waiting("a", "b", size=2)
    w.calls.sizes[PATH] = Size(count=None, least=3)
    await w.tick()
    assert w.why("a") == ("waits for 1 of the at least 3 pods of its job",)

    w.calls.sizes[PATH] = Size(count=None, least=2)
    await w.tick(10)

    assert (w.filter("a"), w.filter("b")) == (["n1"], ["n2"])


async def test_a_job_that_does_not_fit_is_followed_when_it_needs_fewer() -> None:
    w = waiting("a", "b", "c", size=3)
    await w.tick()
    assert w.why("a", NAMES) == ("its job does not fit: 2 of 3 pods fit",)

    w.calls.sizes[PATH] = Size(count=3, least=2)
    await w.tick(10)

    assert w.filter("a", NAMES) == ["n1"]


async def test_pods_that_may_yet_come_are_awaited_for_two_seconds() -> None:
    w = waiting("a", "b", size=2)
    w.calls.sizes[PATH] = Size(count=None, least=2)
    await w.tick()
    w.learn(sized("c"))
    text = "waits 2 s for more pods of its job: 3 of at least 2 exist"
    assert w.why("a") == (text,)
    await w.tick(1)
    assert w.why("a") == (text,)

    wakes = w.calls.wakes
    await w.tick(1)
    await w.tick(1)

    assert w.calls.wakes == wakes + 1
    assert w.filter("a", ("n1", "n2", "n3")) == ["n1"]


async def test_an_elastic_job_of_which_all_exist_awaits_nobody() -> None:
    w = waiting("a", "b", size=2)
    w.calls.sizes[PATH] = Size(count=2, least=1)
    await w.tick()

    assert w.filter("a") == ["n1"]


async def test_pods_that_a_job_counts_as_succeeded_are_not_missing() -> None:
    """G8: after a restart, or when no other pod of the job is left."""
    w = waiting("b", size=2)
    w.calls.sizes[PATH] = Size(count=2, least=2, succeeded=1)
    await w.tick()

    assert w.filter("b") == ["n1"]


async def test_a_pod_that_succeeded_is_not_counted_twice() -> None:
    w = waiting("b", size=3)
    w.calls.sizes[PATH] = Size(count=3, least=3, succeeded=1)
    done = sized("a", node="n3")
    w.learn(replace(done, pod=replace(done.pod, phase="Succeeded")))
    await w.tick()

    assert w.why("b") == ("waits for 1 of the 3 pods of its job",)


async def test_a_pod_that_succeeded_is_counted_while_it_is_deleted() -> None:
    """The Job controller keeps a finalizer until it has counted the pod."""
    w = waiting("b", size=2)
    w.calls.sizes[PATH] = Size(count=2, least=2, succeeded=1)
    done = sized("a", node="n3")
    w.learn(replace(done, pod=replace(done.pod, phase="Succeeded", deleting=True)))
    await w.tick()

    assert w.filter("b") == ["n1"]


async def test_a_read_that_fails_takes_nothing_back() -> None:
    w = waiting("a", size=2)
    await w.tick()
    del w.calls.sizes[PATH]
    await w.tick(10)

    assert w.why("a") == ("waits for 1 of the 2 pods of its job",)


async def test_nothing_is_read_of_jobs_that_wait_for_nothing() -> None:
    w = waiting("a", "b", size=2)
    await w.tick()
    w.learn(sized("a", "n1"), sized("b", "n2"), *gone("b"))
    read = w.calls.sizes_read
    for _ in range(30):
        await w.tick()

    assert w.calls.sizes_read == read == 1


async def test_a_size_that_is_asked_for_is_read_each_ten_seconds() -> None:
    w = waiting("a", size=2)
    for _ in range(31):
        await w.tick()

    assert w.calls.sizes_read == 4
