import random  # noqa: TID251  # a fixed seed: the test knows the jitter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube.client import Client
from kube.credentials import Credentials
from kube.errors import (
    ApiError,
    GoneError,
    MalformedError,
    SilentError,
    TooManyRequestsError,
    UnreachableError,
)
from kube.objects import Pod
from kube.watch import Change, Deleted, ListWatch, Synced, Upserted
from tests.kube.server import (
    Request,
    Script,
    Watch,
    client_of,
    line,
    page,
    pod,
    refusal,
    scripted,
    status,
)

PODS = "/api/v1/pods"


def told(changes: list[Change[Pod]]) -> list[str]:
    """Return changes as short words: `+a1` upserted, `-a1` deleted, `=1` synced."""
    words = []
    for change in changes:
        match change:
            case Synced(version):
                words.append(f"={version}")
            case Upserted(obj):
                words.append(f"+{obj.metadata.name}{obj.metadata.resource_version}")
            case Deleted(obj):
                words.append(f"-{obj.metadata.name}{obj.metadata.resource_version}")
    return words


def seeded() -> random.Random:
    return random.Random(1)  # noqa: S311  # jitter, not a secret


def watch_of(client: Client, **more: Any) -> ListWatch[Pod]:
    return ListWatch(client, PODS, Pod, rng=seeded(), **more)


async def steps(watch: ListWatch[Pod], count: int = 1) -> list[str]:
    changes: list[Change[Pod]] = []
    for _ in range(count):
        await watch.step(changes.append)
    return told(changes)


async def test_a_list_of_three_pages_is_one_list(
    script: Script, client: Client
) -> None:
    script.will(
        page(9, pod("a", 1), more="t1"),
        page(9, pod("b", 2), more="t2"),
        page(9, pod("c", 3)),
        Watch(),
    )
    watch = watch_of(client, params={"fieldSelector": "spec.nodeName=n1"})

    words = await steps(watch)

    assert words == ["+a1", "+b2", "+c3", "=9"]
    assert watch.synced
    selector = {"fieldSelector": "spec.nodeName=n1"}
    limit = selector | {"limit": "500"}
    assert script.requests == [
        Request(method="GET", path=PODS, query=limit),
        Request(method="GET", path=PODS, query=limit | {"continue": "t1"}),
        Request(method="GET", path=PODS, query=limit | {"continue": "t2"}),
        Request(
            method="GET",
            path=PODS,
            query=selector
            | {
                "watch": "1",
                "allowWatchBookmarks": "true",
                "resourceVersion": "9",
                "timeoutSeconds": str(seeded().randint(300, 600)),
            },
        ),
    ]


async def test_a_page_whose_token_expired_lists_again_with_larger_pages(
    script: Script, client: Client
) -> None:
    script.will(
        page(9, pod("a", 1), more="t1"),
        page(9, pod("b", 2), more="t2"),
        refusal(410, "Expired", "The provided continue parameter is too old"),
        page(11, pod("a", 1), pod("b", 10)),
        Watch(),
    )
    watch = watch_of(client)
    with pytest.raises(GoneError):
        await steps(watch)
    assert not watch.synced

    words = await steps(watch)

    assert words == ["+a1", "+b10", "=11"]
    assert script.requests[3].query == {"limit": "2000"}


async def test_a_list_without_items_is_empty(script: Script, client: Client) -> None:
    answer = page(4)
    answer.body["items"] = None
    script.will(answer, Watch())

    assert await steps(watch_of(client)) == ["=4"]


async def test_a_list_without_a_version_is_refused(
    script: Script, client: Client
) -> None:
    answer = page(4, pod("a", 1))
    del answer.body["metadata"]
    script.will(answer)

    with pytest.raises(MalformedError, match=r"no metadata\.resourceVersion"):
        await steps(watch_of(client))


async def test_events_are_delivered_in_order(script: Script, client: Client) -> None:
    events = (
        line("ADDED", pod("b", 6))
        + line("MODIFIED", pod("a", 7))
        + line("DELETED", pod("b", 8))
    )
    script.will(page(5, pod("a", 1)), Watch(chunks=(events,)))
    watch = watch_of(client)

    assert await steps(watch) == ["+a1", "=5", "+b6", "+a7", "-b8"]
    assert [obj.metadata.name for obj in watch.known()] == ["a"]
    assert watch.event_count == 3


async def test_a_watch_goes_on_from_the_last_version_seen(
    script: Script, client: Client
) -> None:
    bookmark = line("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": "70"}})
    script.will(
        page(5),
        Watch(chunks=(line("ADDED", pod("a", 6)),)),
        Watch(chunks=(bookmark,)),
        Watch(),
    )
    watch = watch_of(client)

    assert await steps(watch, 3) == ["=5", "+a6"]
    versions = [r.query.get("resourceVersion") for r in script.requests]
    assert versions == [None, "5", "6", "70"]
    assert (watch.restarts, watch.relists) == (3, 1)


async def test_lines_may_come_byte_by_byte(script: Script, client: Client) -> None:
    events = line("ADDED", pod("a", 6)) + line("DELETED", pod("a", 7))
    chunks = tuple(bytes([byte]) for byte in events)
    script.will(page(5), Watch(chunks=chunks))

    assert await steps(watch_of(client)) == ["=5", "+a6", "-a7"]


async def test_a_line_may_have_megabytes(script: Script, client: Client) -> None:
    large = pod("a", 6, annotations={"big": "x" * (5 << 20)})
    script.will(page(5), Watch(chunks=(line("ADDED", large),)))
    watch = watch_of(client)

    assert await steps(watch) == ["=5", "+a6"]
    (known,) = watch.known()
    assert known.metadata.annotations == {"big": "x" * (5 << 20)}


async def test_what_vanished_while_we_were_away_is_deleted_after_410(
    script: Script, client: Client
) -> None:
    script.will(
        page(5, pod("a", 1), pod("b", 2), pod("c", 3)),
        refusal(410, "Expired", "too old resource version: 5 (90)"),
        page(99, pod("a", 1), pod("c", 77), pod("d", 80)),
        Watch(),
    )
    watch = watch_of(client)
    with pytest.raises(GoneError):
        await steps(watch)

    assert await steps(watch) == ["-b2", "+c77", "+d80", "=99"]


async def test_410_in_the_middle_of_a_watch_lists_again(
    script: Script, client: Client
) -> None:
    expired = status(410, "Expired", "too old resource version")
    script.will(
        page(5, pod("a", 1)),
        Watch(chunks=(line("ADDED", pod("b", 6)) + line("ERROR", expired),)),
        page(9, pod("b", 6)),
        Watch(),
    )
    watch = watch_of(client)
    changes: list[Change[Pod]] = []

    pause_s = await watch.attempt(changes.append)

    assert pause_s == 0.0, "the watch had worked: list again at once"
    assert told(changes) == ["+a1", "=5", "+b6"]
    assert await steps(watch) == ["-a1", "=9"]


async def test_another_error_event_lists_again_too(
    script: Script, client: Client
) -> None:
    broken = status(500, "InternalError", "etcd: corrupt")
    script.will(
        page(5, pod("a", 1)), Watch(chunks=(line("ERROR", broken),)), page(9), Watch()
    )
    watch = watch_of(client)
    with pytest.raises(ApiError, match="etcd: corrupt") as caught:
        await steps(watch)
    assert caught.value.status == 500

    assert await steps(watch) == ["-a1", "=9"]


async def test_a_cut_in_the_middle_of_a_line_loses_nothing(
    script: Script, client: Client
) -> None:
    second = line("ADDED", pod("b", 7))
    script.will(
        page(5),
        Watch(chunks=(line("ADDED", pod("a", 6)), second[:20]), end="cut"),
        Watch(chunks=(second,)),
    )
    watch = watch_of(client)
    changes: list[Change[Pod]] = []
    with pytest.raises(UnreachableError):
        await watch.step(changes.append)

    await watch.step(changes.append)

    assert told(changes) == ["=5", "+a6", "+b7"]
    assert script.requests[2].query["resourceVersion"] == "6"


async def test_a_silent_watch_is_given_up(script: Script, client: Client) -> None:
    script.will(
        page(5),
        Watch(chunks=(line("ADDED", pod("a", 6)),), end="silence"),
        Watch(chunks=(line("ADDED", pod("b", 7)),)),
    )
    watch = watch_of(client, idle_s=0.05)
    changes: list[Change[Pod]] = []

    pauses = [await watch.attempt(changes.append) for _ in range(2)]

    assert pauses == [0.0, 0.0]

    assert told(changes) == ["=5", "+a6", "+b7"]
    assert watch.relists == 1


async def test_a_watch_that_never_said_anything_is_silent(
    script: Script, client: Client
) -> None:
    script.will(page(5), *[Watch(end="silence")] * 3)
    watch = watch_of(client, idle_s=0.02)
    with pytest.raises(SilentError, match=r"^WATCH /api/v1/pods: silent for 0\.02 s$"):
        await watch.step(lambda _: None)

    pauses = [await watch.attempt(lambda _: None) for _ in range(2)]

    assert pauses[0] >= 0.5
    assert pauses[1] >= 1.0


@pytest.mark.parametrize(
    "garbage",
    [
        b"<html>504</html>\n",
        b'{"type":"ADDED"}\n',
        b'{"type":"ADDED","object":{"metadata":{"labels":[]}}}\n',
        b'{"type":"BOOKMARK","object":7}\n',
        b'{"type":"NEWS","object":{}}\n',
        b"\xff\xfe\n",
        b'{"type":"ADDED","object":{"metadata":{"name":"\xff"}}}\n',
        b'{"type":"ADDED","object":{"spec":' + b"[" * 9999 + b"\n",
    ],
)
async def test_garbage_in_a_watch_lists_again(
    script: Script, client: Client, garbage: bytes
) -> None:
    script.will(page(5, pod("a", 1)), Watch(chunks=(garbage,)), page(9), Watch())
    watch = watch_of(client)
    with pytest.raises(MalformedError):
        await steps(watch)

    assert await steps(watch) == ["-a1", "=9"]


async def test_a_new_object_of_the_old_name_is_deleted_then_added(
    script: Script, client: Client
) -> None:
    script.will(
        page(5, pod("a", 1, uid="old")),
        refusal(410, "Gone"),
        page(9, pod("a", 8, uid="new")),
        Watch(),
    )
    watch = watch_of(client)
    with pytest.raises(GoneError):
        await steps(watch)

    assert await steps(watch) == ["-a1", "+a8", "=9"]


async def test_overload_asks_us_to_wait_and_we_do(
    script: Script, client: Client
) -> None:
    busy = refusal(429, "TooManyRequests", **{"Retry-After": "17"})
    script.will(busy, page(5), busy, Watch())
    watch = watch_of(client)

    assert await watch.attempt(lambda _: None) == 17.0
    with pytest.raises(TooManyRequestsError):
        await steps(watch)
    assert await steps(watch) == [], "it goes on watching, without another list"
    assert watch.relists == 2


async def test_pauses_grow_to_thirty_seconds_while_the_server_is_away() -> None:
    async with Client(Credentials("http://127.0.0.1:1")) as client:
        watch = watch_of(client)

        pauses = [await watch.attempt(lambda _: None) for _ in range(7)]

    ceilings = [1, 2, 4, 8, 16, 30, 30]
    assert all(c / 2 <= p <= c for p, c in zip(pauses, ceilings, strict=True)), pauses


async def test_a_watch_that_worked_starts_the_pauses_anew(
    script: Script, client: Client
) -> None:
    down = refusal(503, "ServiceUnavailable")
    worked = Watch(chunks=(line("ADDED", pod("a", 6)),), end="cut")
    script.will(down, down, down, page(5), worked, down)
    watch = watch_of(client)

    pauses = [await watch.attempt(lambda _: None) for _ in range(5)]

    assert pauses[2] >= 2.0
    assert pauses[3] <= 1.0
    assert pauses[4] <= 2.0


async def test_watches_that_end_at_once_do_not_spin(
    script: Script, client: Client
) -> None:
    script.will(page(5), *[Watch()] * 4)
    watch = watch_of(client)

    pauses = [await watch.attempt(lambda _: None) for _ in range(4)]

    assert pauses[0] >= 0.5
    assert pauses[3] >= 4.0


async def test_a_server_that_always_expires_does_not_spin(
    script: Script, client: Client
) -> None:
    for _ in range(4):
        script.will(page(5), refusal(410, "Expired"))
    watch = watch_of(client)

    pauses = [await watch.attempt(lambda _: None) for _ in range(4)]

    assert pauses[3] >= 4.0


async def test_the_loop_carries_on_by_itself(script: Script, client: Client) -> None:
    script.will(
        page(5),
        Watch(chunks=(line("ADDED", pod("a", 6)),)),
        Watch(chunks=(line("ADDED", pod("b", 7)),)),
        Watch(chunks=(line("ADDED", pod("stop", 8)),)),
    )
    seen: list[Change[Pod]] = []

    class EnoughError(Exception):
        """The test has seen what it wanted."""

    def deliver(change: Change[Pod]) -> None:
        seen.append(change)
        if isinstance(change, Upserted) and change.obj.metadata.name == "stop":
            raise EnoughError

    with pytest.raises(EnoughError):
        await watch_of(client).run(deliver)

    assert told(seen) == ["=5", "+a6", "+b7", "+stop8"]


@pytest.mark.property
@settings(max_examples=100, deadline=None)
@given(
    states=st.lists(
        st.dictionaries(st.sampled_from("abcde"), st.integers(1, 3)),
        min_size=1,
        max_size=6,
    )
)
async def test_after_each_list_a_mirror_equals_the_server(
    states: list[dict[str, int]],
) -> None:
    mirror: dict[str, int] = {}
    at_sync: list[dict[str, int]] = []

    def deliver(change: Change[Pod]) -> None:
        match change:
            case Upserted(obj):
                mirror[obj.metadata.name] = int(obj.metadata.resource_version)
            case Deleted(obj):
                del mirror[obj.metadata.name]
            case Synced():
                at_sync.append(dict(mirror))

    async with scripted() as script, client_of(script) as client:
        watch = watch_of(client)
        for version, there in enumerate(states, start=1):
            items = [pod(name, changed) for name, changed in there.items()]
            script.will(page(version, *items), refusal(410, "Expired"))
            with pytest.raises(GoneError):
                await watch.step(deliver)

    assert at_sync == states
