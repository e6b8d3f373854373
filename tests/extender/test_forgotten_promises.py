"""Chips that were promised, and nobody answers for it: found, looked into, settled."""

from extender.cache import events
from extender.cache.reservations import Owner
from tests.support.caches import apply, bind, cluster, free, known_pod, reservations
from tests.support.extender import NAMES, ServedWorld, planned_pair, world
from tests.support.fake_api import Fate
from tests.support.until import until
from tests.support.watched import ALL_FREE, pod, tenant

#: After so long a reservation of a bind is looked at.
DUE_S = 66.0


def forget(w: ServedWorld, name: str, where: str = "n1") -> None:
    """A promise as a bind leaves it that has ended in a way nobody thought of."""
    w.add(name, count=8)
    bind(w.cache, known_pod(w.cache, name), where)


def repaired(w: ServedWorld) -> float:
    return float(w.metrics.repairs.labels("reservations")._value.get())


async def test_what_a_bind_under_way_has_is_not_forgotten() -> None:
    async with world(cluster(nodes=NAMES), open_s=60) as w:
        for name, fate in (("a", Fate.DONE), ("b", Fate.CUT)):
            w.add(name)
            w.api.fates.append(fate)
            await w.bind(name)
        forget(w, "c", "n2")

        w.pass_s(DUE_S)

        assert reservations(w.cache).keys() == {"uid-a", "uid-b", "uid-c"}
        assert repaired(w) == 1
        assert w.sent_binds._open_binds.keys() == {"uid-b", "uid-c"}


async def test_chips_that_are_promised_and_nobody_binds_are_found_once() -> None:
    async with world(cluster(), open_s=600) as w:
        forget(w, "a")

        for _ in range(5):
            w.pass_s(DUE_S)

        assert (repaired(w), list(w.sent_binds._open_binds)) == (1, ["uid-a"])


async def test_what_the_plan_of_a_job_has_is_not_forgotten() -> None:
    async with planned_pair() as w:
        for _ in range(29):
            w.pass_s(1)
            assert len(reservations(w.cache)) == 2
        assert repaired(w) == 0


async def test_a_bind_that_was_never_done_gives_its_chips_back_in_time() -> None:
    async with world(cluster(), open_s=0.5) as w:
        forget(w, "a")
        assert free(w.cache, "n1") == ()

        w.pass_s(DUE_S)
        assert free(w.cache, "n1") == ()  # it may be on its way
        await until(lambda: not reservations(w.cache))

        assert free(w.cache, "n1") == ALL_FREE


async def test_a_bind_that_was_done_keeps_its_chips_until_the_pod_is_shown() -> None:
    async with world(cluster(), open_s=0.5) as w:
        forget(w, "a")
        w.api.pods["default", "a"]["spec"]["nodeName"] = "n1"

        w.pass_s(DUE_S)
        await until(lambda: not w.sent_binds._open_binds)

        assert reservations(w.cache).keys() == {"uid-a"}
        apply(w.cache, tenant("a", "n1", range(8)))
        assert reservations(w.cache) == {}


async def test_a_pod_that_is_gone_has_nothing() -> None:
    async with world(cluster(), open_s=60) as w:
        forget(w, "a")
        del w.api.pods["default", "a"]

        w.pass_s(DUE_S)
        await until(lambda: not reservations(w.cache))

        assert free(w.cache, "n1") == ALL_FREE


async def test_a_pod_that_no_watch_has_shown_gives_its_chips_back_in_time() -> None:
    async with world(cluster(), open_s=0.5) as w:
        bind(w.cache, pod("a", count=8), "n1")

        w.pass_s(DUE_S)
        await until(lambda: not reservations(w.cache))

        assert (free(w.cache, "n1"), w.api.reads) == (ALL_FREE, 0)


async def test_what_is_planned_for_nobody_is_given_back_in_time() -> None:
    async with world(cluster()) as w:
        w.add("a", count=8)
        reservation = bind(w.cache, known_pod(w.cache, "a"), "n1").reservation
        apply(w.cache, reservation._replace(owner=Owner.PLAN))

        w.pass_s(DUE_S)

        assert (reservations(w.cache), w.api.reads) == ({}, 0)
        assert repaired(w) == 1


async def test_a_bind_tried_again_while_it_is_looked_into_is_the_same_bind() -> None:
    async with world(cluster(), open_s=60) as w:
        forget(w, "a")
        w.pass_s(DUE_S)

        assert await w.bind("a") == ""

        assert w.sent_binds._open_binds == {}
        apply(w.cache, events.PodDeleted(uid="uid-a"))
        assert free(w.cache, "n1") == ALL_FREE
