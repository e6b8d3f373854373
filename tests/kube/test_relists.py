import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube.errors import (
    ApiError,
    GoneError,
    MalformedError,
)
from kube.objects import Pod
from kube.reflector import Change, Deleted, Synced, Upserted
from tests.kube.server import (
    Answer,
    Request,
    Script,
    Watch,
    line,
    page,
    pod,
    refusal,
    scripted,
    status,
)
from tests.kube.watches import PODS, seeded, steps, told, watch_of
from tests.support.rows import rows


async def test_a_list_of_three_pages_is_one_list(script: Script) -> None:
    script.will(
        page(9, pod("a", 1), more="t1"),
        page(9, pod("b", 2), more="t2"),
        page(9, pod("c", 3)),
        Watch(),
    )
    watch = watch_of(script, params={"fieldSelector": "spec.nodeName=n1"})

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


async def test_a_list_that_never_ends_is_refused(script: Script) -> None:
    again = page(9, pod("a", 1), more="t1")
    script.will(again, again, again)

    with pytest.raises(MalformedError, match="another page, found the same again"):
        await steps(watch_of(script))


async def test_a_page_whose_token_expired_lists_again_with_larger_pages(
    script: Script,
) -> None:
    script.will(
        page(9, pod("a", 1), more="t1"),
        page(9, pod("b", 2), more="t2"),
        refusal(410, "Expired", "The provided continue parameter is too old"),
        page(11, pod("a", 1), pod("b", 10)),
        Watch(),
    )
    watch = watch_of(script)
    with pytest.raises(GoneError):
        await steps(watch)
    assert not watch.synced

    words = await steps(watch)

    assert words == ["+a1", "+b10", "=11"]
    assert script.requests[3].query == {"limit": "2000"}


async def test_a_list_without_items_is_empty(script: Script) -> None:
    answer = page(4)
    answer.body["items"] = None
    script.will(answer, Watch())

    assert await steps(watch_of(script)) == ["=4"]


async def test_a_list_without_a_version_is_refused(script: Script) -> None:
    answer = page(4, pod("a", 1))
    del answer.body["metadata"]
    script.will(answer)

    with pytest.raises(MalformedError, match=r"no metadata\.resourceVersion"):
        await steps(watch_of(script))


async def test_410_in_the_middle_of_a_watch_lists_again(script: Script) -> None:
    expired = status(410, "Expired", "too old resource version")
    script.will(
        page(5, pod("a", 1)),
        Watch(chunks=(line("ADDED", pod("b", 6)) + line("ERROR", expired),)),
        page(9, pod("b", 6)),
        Watch(),
    )
    watch = watch_of(script)
    changes: list[Change[Pod]] = []

    pause_s = await watch.attempt(changes.append)

    assert pause_s == 0.0, "the watch had worked: list again at once"
    assert told(changes) == ["+a1", "=5", "+b6"]
    assert await steps(watch) == ["-a1", "=9"]


async def test_another_error_event_lists_again_too(script: Script) -> None:
    broken = status(500, "InternalError", "etcd: corrupt")
    script.will(
        page(5, pod("a", 1)), Watch(chunks=(line("ERROR", broken),)), page(9), Watch()
    )
    watch = watch_of(script)
    with pytest.raises(ApiError, match="etcd: corrupt") as caught:
        await steps(watch)
    assert caught.value.status == 500

    assert await steps(watch) == ["-a1", "=9"]


@rows(
    ("known", "end", "listed", "words"),
    {
        "what vanished while we were away is deleted": (
            page(5, pod("a", 1), pod("b", 2), pod("c", 3)),
            refusal(410, "Expired", "too old resource version: 5 (90)"),
            page(99, pod("a", 1), pod("c", 77), pod("d", 80)),
            ["-b2", "+c77", "+d80", "=99"],
        ),
        "a new object of the old name is deleted, then added": (
            page(5, pod("a", 1, uid="old")),
            refusal(410, "Gone"),
            page(9, pod("a", 8, uid="new")),
            ["-a1", "+a8", "=9"],
        ),
    },
)
async def test_after_410_a_list_says_what_happened(
    script: Script, known: Answer, end: Answer, listed: Answer, words: list[str]
) -> None:
    script.will(known, end, listed, Watch())
    watch = watch_of(script)
    with pytest.raises(GoneError):
        await steps(watch)

    assert await steps(watch) == words


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
async def test_garbage_in_a_watch_lists_again(script: Script, garbage: bytes) -> None:
    script.will(page(5, pod("a", 1)), Watch(chunks=(garbage,)), page(9), Watch())
    watch = watch_of(script)
    with pytest.raises(MalformedError):
        await steps(watch)

    assert await steps(watch) == ["-a1", "=9"]


@pytest.mark.property
@settings(max_examples=100)
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

    async with scripted() as script:
        watch = watch_of(script)
        for version, there in enumerate(states, start=1):
            items = [pod(name, changed) for name, changed in there.items()]
            script.will(page(version, *items), refusal(410, "Expired"))
            with pytest.raises(GoneError):
                await watch.step(deliver)

    assert at_sync == states
