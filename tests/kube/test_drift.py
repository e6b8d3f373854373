"""Is what a watch has shown what is there? Planted losses, and trouble that is none."""

import asyncio
import random  # noqa: TID251  # seeded: the same faults each time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.client import METADATA, Client, Stream
from kube.credentials import Credentials
from kube.errors import KubeError
from kube.objects import Meta, MetadataOnly
from kube.store import Collection, Difference
from sandbox.apiserver.outages import Trouble, What
from tests.kube.fire import Bed, burning, settled
from tests.kube.server import Script, Watch, line, page, pod
from tests.kube.watches import watch_of
from tests.support.tasks import in_background
from tests.support.until import until

LOST = Trouble(what=What.LOST, resource="pods")


@dataclass(slots=True)
class World:
    """A server's history, and a watch that does not get all of it."""

    #: {uid: version}, now
    there: dict[str, int] = field(default_factory=dict)
    #: (uid, whether it went); the version is the place, from 1
    history: list[tuple[str, bool]] = field(default_factory=list)
    #: how many of them the watch has had its turn for
    shown: int = 0
    known: Collection[MetadataOnly] = field(default_factory=Collection)
    #: {uid: version} as the events that came have it
    believed: dict[str, int] = field(default_factory=dict)
    #: {uid: the version of its last event that came}
    heard: dict[str, int] = field(default_factory=dict)

    def happen(self, uid: str, *, goes: bool) -> None:
        is_there = uid in self.there
        self.history.append((uid, goes and is_there))
        if goes and is_there:
            del self.there[uid]
        else:
            self.there[uid] = len(self.history)

    def show(self, *, comes: bool) -> None:
        if self.shown == len(self.history):
            return
        uid, goes = self.history[self.shown]
        self.shown += 1
        if not comes:
            return
        self.heard[uid] = self.shown
        obj = stamped(uid, self.shown)
        if goes:
            self.known.drop(obj)
            self.believed.pop(uid, None)
        else:
            self.known.put(obj)
            self.believed[uid] = self.shown

    def catch_up(self) -> None:
        """All else comes, and then a bookmark."""
        while self.shown < len(self.history):
            self.show(comes=True)
        self.known.advance(stamped("", self.shown))


def stamped(uid: str, version: int) -> MetadataOnly:
    return MetadataOnly(metadata=Meta(uid=uid, name=uid, resource_version=str(version)))


#: (what, which object, whether it goes or comes)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("happens", "happens", "is shown", "is listed")),
        st.sampled_from("abcd"),
        st.booleans(),
    ),
    max_size=40,
)


def play(world: World, told: list[tuple[str, str, bool]]) -> Iterator[None]:
    """Let steps happen; yields where a page of the list may be read."""
    for what, uid, is_so in told:
        match what:
            case "happens":
                world.happen(uid, goes=is_so)
            case "is shown":
                world.show(comes=is_so)
            case _:
                yield


@given(before=STEPS, meanwhile=STEPS)
def test_a_comparison_finds_what_never_came_and_nothing_else(
    before: list[tuple[str, str, bool]], meanwhile: list[tuple[str, str, bool]]
) -> None:
    world = World()
    for _ in play(world, before):
        pass
    comparison = world.known.begin_comparison()
    version, listed = len(world.history), dict(world.there)
    pages = sorted(listed.items())
    for _ in play(world, meanwhile):
        if pages:
            comparison.add_listed(stamped(*pages.pop(0)))
    for each in pages:
        comparison.add_listed(stamped(*each))
    world.catch_up()

    found = comparison.find_differences(str(version))

    heard_since = {uid for uid, heard in world.heard.items() if heard > version}
    wrong = {
        uid
        for uid in listed.keys() | world.believed.keys()
        if uid not in heard_since and listed.get(uid) != world.believed.get(uid)
    }
    assert {each.uid for each in found} == wrong
    assert all(each.server_version == str(listed.get(each.uid, "")) for each in found)


@pytest.mark.looptime
@pytest.mark.parametrize("seed", range(3))
async def test_under_fire_nothing_is_found_that_is_not_so(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311  # not a secret
    some = [what for what in What if what not in {What.LOST, What.CRASH}]
    told = 0

    async with burning(seed) as bed:
        await opened(bed)
        for _ in range(6):
            trouble = Trouble(what=chance.choice(some), delay_s=2, count=3)
            end = bed.troubles.begin(trouble)
            found = await compared(bed)
            end()
            await asyncio.sleep(chance.uniform(0, 8))
            assert not found
            told += found is not None

    assert told


async def opened(bed: Bed) -> None:
    await until(lambda: bed.count("watch"), every_s=0.1)
    await asyncio.sleep(1)


async def compared(bed: Bed) -> list[Difference] | None:
    try:
        return await bed.watch.compare()
    except KubeError:
        return None


@pytest.mark.looptime
async def test_events_that_never_came_are_found_and_mended() -> None:
    async with burning() as bed:
        ended: list[str] = []
        bed.watch.count_restarts(lambda: ended.append("watch"))
        await opened(bed)
        assert await bed.watch.compare() == []
        end = bed.troubles.begin(LOST)
        await asyncio.sleep(90)  # a bookmark: the watch goes on as if nothing had been
        end()
        wrong = bed.at_server().items() ^ bed.mirror.pods.items()
        assert wrong

        found = await bed.watch.compare()
        assert found
        bed.watch.relist_now()

        await settled(bed, within_s=2.0)
        assert await bed.watch.compare() == []
        assert len(ended) <= 2


class Opening(Client):
    """A client that calls somebody when a watch is about to be open."""

    meanwhile: Callable[[], None]

    @asynccontextmanager
    async def stream(self, path: str, **more: Any) -> AsyncIterator[Stream]:
        async with super().stream(path, **more) as stream:
            self.meanwhile()
            yield stream


async def test_what_is_to_be_mended_while_a_watch_is_being_opened_is_mended(
    script: Script,
) -> None:
    event = line("ADDED", pod("new", 7))
    script.will(page(5), Watch(chunks=(event,)), page(8, pod("new", 7)), Watch())
    async with Opening(Credentials(script.url)) as client:
        watch = watch_of(client)
        client.meanwhile = watch.relist_now
        await watch.attempt(lambda _: None)
        await watch.attempt(lambda _: None)

    assert watch.relists == 2


async def test_what_was_lost_is_named_with_both_versions(script: Script) -> None:
    bookmark = line("BOOKMARK", pod("", 9))
    script.will(
        page(5, pod("changed", 1), pod("gone", 2), pod("same", 3)),
        Watch(chunks=(bookmark,), end="silence"),
        page(8, pod("changed", 6), pod("new", 7), pod("same", 3)),
    )
    watch = watch_of(script)
    async with in_background(watch.run(lambda _: None)):
        await script.silent.wait()

        found = await watch.compare()

    assert found == [
        Difference(
            uid="uid-changed", name="ns/changed", server_version="6", cached_version="1"
        ),
        Difference(uid="uid-new", name="ns/new", server_version="7", cached_version=""),
        Difference(
            uid="uid-gone", name="ns/gone", server_version="", cached_version="2"
        ),
    ]
    assert script.headers[-1]["Accept"] == METADATA


async def test_without_an_open_watch_nothing_is_asked(script: Script) -> None:
    assert await watch_of(script).compare() is None
    assert script.requests == []


async def test_a_list_of_a_server_that_lags_says_nothing(script: Script) -> None:
    script.will(page(5, pod("a", 1)), Watch(end="silence"), page(4, pod("b", 2)))
    watch = watch_of(script)
    async with in_background(watch.run(lambda _: None)):
        await script.silent.wait()

        assert await watch.compare() is None
