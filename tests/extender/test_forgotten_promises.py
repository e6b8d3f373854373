"""Chips that were promised, and nobody answers for it: found, looked into, settled."""

from extender.cache import events, verify
from tests.extender.binds import ALL_FREE, World, until, world
from tests.extender.clusters import Spec, apply, bind, cluster, free, pod, tenant
from tests.extender.fake_api import Fate
from tests.extender.gangworld import NAMES, two
from tests.extender.gangworld import world as gang_world


def forget(w: World, name: str, where: str = "n1") -> None:
    """A promise as a bind leaves it that has ended in a way nobody thought of."""
    w.add(name, 8)
    bind(w.cache, w.cache.pods[f"uid-{name}"], where)


async def test_what_a_bind_under_way_has_is_not_forgotten() -> None:
    async with world(cluster(nodes=NAMES), open_s=60) as w:
        for name, fate in (("a", Fate.DONE), ("b", Fate.CUT)):
            w.add(name)
            w.api.fates.append(fate)
            await w.bind(name)
        forget(w, "c", "n2")

        assert w.cache.reservations.keys() == {"uid-a", "uid-b", "uid-c"}
        assert verify.find_orphans(w.cache, w.binder.reserved_uids) == ["uid-c"]


async def test_what_the_plan_of_a_job_has_is_not_forgotten() -> None:
    async with gang_world(cluster(nodes=NAMES)) as w:
        w.add(*two())
        w.filter("a")

        assert len(w.cache.reservations) == 2
        assert verify.find_orphans(w.cache, ()) == []


async def test_a_bind_that_was_never_done_gives_its_chips_back_in_time() -> None:
    async with world(cluster(), open_s=0.5) as w:
        forget(w, "a")
        assert free(w.cache, "n1") == ()

        w.binder.take_up("uid-a")
        assert verify.find_orphans(w.cache, w.binder.reserved_uids) == []
        assert free(w.cache, "n1") == ()  # it may be on its way
        await until(lambda: not w.cache.reservations)

        assert free(w.cache, "n1") == ALL_FREE


async def test_a_bind_that_was_done_keeps_its_chips_until_the_pod_is_shown() -> None:
    async with world(cluster(), open_s=0.5) as w:
        forget(w, "a")
        w.api.pods["default", "a"]["spec"]["nodeName"] = "n1"

        w.binder.take_up("uid-a")
        await until(lambda: not w.binder._open_binds)

        assert w.cache.reservations.keys() == {"uid-a"}
        apply(w.cache, tenant("a", "n1", range(8)))
        assert w.cache.reservations == {}


async def test_a_pod_that_is_gone_has_nothing() -> None:
    async with world(cluster(), open_s=60) as w:
        forget(w, "a")
        del w.api.pods["default", "a"]

        w.binder.take_up("uid-a")
        await until(lambda: not w.cache.reservations)

        assert free(w.cache, "n1") == ALL_FREE


async def test_a_pod_that_no_watch_has_shown_gives_its_chips_back_in_time() -> None:
    async with world(cluster(), open_s=0.5) as w:
        bind(w.cache, pod(Spec(name="a", count=8)), "n1")

        w.binder.take_up("uid-a")
        await until(lambda: not w.cache.reservations)

        assert (free(w.cache, "n1"), w.api.reads) == (ALL_FREE, 0)


async def test_what_is_planned_for_nobody_is_given_back_at_once() -> None:
    async with world(cluster()) as w:
        w.add("a", 8)
        reservation = bind(w.cache, w.cache.pods["uid-a"], "n1").reservation
        apply(w.cache, reservation._replace(planned=True))
        assert verify.find_orphans(w.cache, w.binder.reserved_uids) == ["uid-a"]

        w.binder.take_up("uid-a")

        assert (w.cache.reservations, w.api.reads) == ({}, 0)


async def test_a_bind_tried_again_while_it_is_looked_into_is_the_same_bind() -> None:
    async with world(cluster(), open_s=60) as w:
        forget(w, "a")
        w.binder.take_up("uid-a")

        assert await w.bind("a") == ""

        assert w.binder._open_binds == {}
        apply(w.cache, events.PodDeleted(uid="uid-a"))
        assert free(w.cache, "n1") == ALL_FREE
