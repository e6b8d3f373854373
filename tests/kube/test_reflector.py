import msgspec
import pytest

from kube.errors import (
    KubeError,
    SilentError,
    UnreachableError,
)
from kube.objects import Pod
from kube.reflector import Change, ListWatch, Upserted
from tests.kube.server import (
    Script,
    Watch,
    line,
    page,
    pod,
    refusal,
)
from tests.kube.watches import steps, told, watch_of


async def test_events_are_delivered_in_order(script: Script) -> None:
    events = (
        line("ADDED", pod("b", 6))
        + line("MODIFIED", pod("a", 7))
        + line("DELETED", pod("b", 8))
    )
    script.will(page(5, pod("a", 1)), Watch(chunks=(events,)))
    watch = watch_of(script)

    assert await steps(watch) == ["+a1", "=5", "+b6", "+a7", "-b8"]
    assert [obj.metadata.name for obj in watch.objects()] == ["a"]
    assert watch.event_count == 3


async def test_a_watch_goes_on_from_the_last_version_seen(script: Script) -> None:
    bookmark = line("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": "70"}})
    script.will(
        page(5),
        Watch(chunks=(line("ADDED", pod("a", 6)),)),
        Watch(chunks=(bookmark,)),
        Watch(),
    )
    watch = watch_of(script)
    ended: list[str] = []
    watch.count_restarts(lambda: ended.append("watch"))

    assert await steps(watch, 3) == ["=5", "+a6"]
    versions = [r.query.get("resourceVersion") for r in script.requests]
    assert versions == [None, "5", "6", "70"]
    assert (len(ended), watch.relists) == (3, 1)


async def test_lines_may_come_byte_by_byte(script: Script) -> None:
    events = line("ADDED", pod("a", 6)) + line("DELETED", pod("a", 7))
    chunks = tuple(bytes([byte]) for byte in events)
    script.will(page(5), Watch(chunks=chunks))

    assert await steps(watch_of(script)) == ["=5", "+a6", "-a7"]


async def test_a_line_may_have_megabytes(script: Script) -> None:
    large = pod("a", 6, annotations={"big": "x" * (5 << 20)})
    script.will(page(5), Watch(chunks=(line("ADDED", large),)))
    watch = watch_of(script)

    assert await steps(watch) == ["=5", "+a6"]
    (known,) = watch.objects()
    assert known.metadata.annotations == {"big": "x" * (5 << 20)}


async def test_a_cut_in_the_middle_of_a_line_loses_nothing(script: Script) -> None:
    second = line("ADDED", pod("b", 7))
    script.will(
        page(5),
        Watch(chunks=(line("ADDED", pod("a", 6)), second[:20]), end="cut"),
        Watch(chunks=(second,)),
    )
    watch = watch_of(script)
    changes: list[Change[Pod]] = []
    with pytest.raises(UnreachableError):
        await watch.step(changes.append)

    await watch.step(changes.append)

    assert told(changes) == ["=5", "+a6", "+b7"]
    assert script.requests[2].query["resourceVersion"] == "6"


async def test_a_silent_watch_is_given_up(script: Script) -> None:
    script.will(
        page(5),
        Watch(chunks=(line("ADDED", pod("a", 6)),), end="silence"),
        Watch(chunks=(line("ADDED", pod("b", 7)),)),
    )
    watch = watch_of(script, idle_s=0.05)
    changes: list[Change[Pod]] = []

    pauses = [await watch.attempt(changes.append) for _ in range(2)]

    assert pauses == [0.0, 0.0]

    assert told(changes) == ["=5", "+a6", "+b7"]
    assert watch.relists == 1


async def test_a_watch_that_never_said_anything_is_silent(script: Script) -> None:
    script.will(page(5), *[Watch(end="silence")] * 3)
    watch = watch_of(script, idle_s=0.02)
    with pytest.raises(SilentError, match=r"^WATCH /api/v1/pods: silent for 0\.02 s$"):
        await watch.step(lambda _: None)

    pauses = [await watch.attempt(lambda _: None) for _ in range(2)]

    assert pauses[0] >= 0.5
    assert pauses[1] >= 1.0


async def test_the_loop_carries_on_by_itself(script: Script) -> None:
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
        await watch_of(script).run(deliver)

    assert told(seen) == ["=5", "+a6", "+b7", "+stop8"]


async def test_of_each_object_is_delivered_and_known_what_is_to_be_kept(
    script: Script,
) -> None:
    def labelled(pod: Pod) -> Pod:
        meta = msgspec.structs.replace(pod.metadata, labels={"kept": "yes"})
        return msgspec.structs.replace(pod, metadata=meta)

    event = line("ADDED", pod("b", 6))
    script.will(page(5, pod("a", 1)), Watch(chunks=(event,)))
    watch = ListWatch(script.client, "/api/v1/pods", Pod, transform=labelled)
    changes: list[Change[Pod]] = []
    await watch.step(changes.append)

    delivered = [each.obj for each in changes if isinstance(each, Upserted)]
    assert delivered == list(watch.objects())
    assert [(obj.metadata.name, obj.metadata.labels) for obj in delivered] == [
        ("a", {"kept": "yes"}),
        ("b", {"kept": "yes"}),
    ]


@pytest.mark.parametrize("status", [403, 503])
async def test_a_watch_that_is_refused_is_told_until_one_is_open(
    script: Script, status: int
) -> None:
    refused = refusal(status, "No")
    script.will(page(5), refused, refused, Watch(), refused, refusal(410, "Gone"))
    watch = watch_of(script)
    outcomes: list[KubeError | None] = []
    watch.tell_outcomes(outcomes.append)
    for _ in range(5):
        await watch.attempt(lambda _change: None)

    found = [getattr(error, "status", None) for error in outcomes]
    assert found == [status, status, None, status]  # and 410 is neither


async def test_a_list_that_is_refused_is_told_with_the_servers_words(
    script: Script,
) -> None:
    script.will(refusal(403, "Forbidden", "User x cannot list pods"), page(5), Watch())
    watch = watch_of(script)
    outcomes: list[KubeError | None] = []
    watch.tell_outcomes(outcomes.append)
    for _ in range(2):
        await watch.attempt(lambda _change: None)

    refused, opened = outcomes
    assert "User x cannot list pods" in str(refused)
    assert opened is None
