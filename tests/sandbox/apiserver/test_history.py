"""The past, told three ways: lists of a moment, watches from a moment, and the log."""

import itertools
import json
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.apiserver import deletion, lists, selectors, watches
from sandbox.apiserver.changes import Change, ChangeLog, CompactedError
from sandbox.apiserver.lists import Choice
from sandbox.apiserver.objects import Object, entry_of
from sandbox.apiserver.paths import Target
from sandbox.apiserver.resources import CONFIGMAPS, PODS
from sandbox.apiserver.statuses import StatusError
from sandbox.apiserver.store import Store

MERGE = "application/merge-patch+json"

#: {name: value of its label}
View: TypeAlias = dict[str, str]

steps = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(["in", "out", "delete"])),
    max_size=25,
)


def _store() -> Store:
    numbers = itertools.count()
    return Store(now_s=lambda: 0.0, new_uid=lambda: f"{next(numbers):032x}")


def _target(name: str = "") -> Target:
    return Target(resource=CONFIGMAPS, namespace="default", name=name)


def _do(store: Store, name: str, what: str) -> None:
    """Give an object that label, making it first if need be; or delete it."""
    exists = ("default", name) in store.entries(CONFIGMAPS)
    labels = {"labels": {"side": what}}
    if what == "delete":
        if exists:
            deletion.delete(store, _target(name), deletion.Options())
    elif exists:
        store.patch(_target(name), MERGE, {"metadata": labels})
    else:
        store.create(_target(), {"metadata": {"name": name, **labels}})


def _view(page: lists.Page) -> View:
    documents = [entry.document["metadata"] for entry in page.entries]
    return {meta["name"]: meta["labels"]["side"] for meta in documents}


def _follow(view: View, stream: bytes) -> View:
    """Return `view` after the events of a stream, each checked to make sense."""
    after = dict(view)
    for line in stream.splitlines():
        event: Object = json.loads(line)
        meta = event["object"]["metadata"]
        assert (meta["name"] in after) is (event["type"] != "ADDED")
        if event["type"] == "DELETED":
            del after[meta["name"]]
        else:
            after[meta["name"]] = meta["labels"]["side"]
    return after


@pytest.mark.property
@given(steps)
def test_a_list_of_a_past_moment_shows_what_was(history: list[tuple[str, str]]) -> None:
    store = _store()
    choice = Choice(resource=CONFIGMAPS, namespace="default")
    seen = {}
    for name, what in history:
        _do(store, name, what)
        seen[store.log.revision] = _view(lists.page(store, choice, {}))

    past = {}
    for revision in seen:
        query = {"resourceVersion": str(revision), "resourceVersionMatch": "Exact"}
        past[revision] = _view(lists.page(store, choice, query))

    assert past == seen


@pytest.mark.property
@given(steps, steps, st.sampled_from(["", "side=in", "side!=out"]))
def test_a_list_and_its_watch_together_show_what_is(
    before: list[tuple[str, str]], after: list[tuple[str, str]], labels: str
) -> None:
    store = _store()
    hub = watches.Hub(store.log)
    selected = selectors.parse(CONFIGMAPS, labels=labels, fields="")
    choice = Choice(resource=CONFIGMAPS, namespace="default", selected=selected)
    for name, what in before:
        _do(store, name, what)
    listed = lists.page(store, choice, {})

    live = hub.open(choice, after=listed.revision)
    for name, what in after:
        _do(store, name, what)
        hub.publish()
    late = hub.open(choice, after=listed.revision)

    now = _view(lists.page(store, choice, {}))
    stream = live.take()
    assert late.take() == stream
    assert _follow(_view(listed), stream) == now


@pytest.mark.property
@given(st.sets(st.sampled_from("abcdefgh")), st.integers(min_value=1, max_value=4))
def test_pages_together_are_the_whole_list(names: set[str], limit: int) -> None:
    store = _store()
    choice = Choice(resource=CONFIGMAPS, namespace="default")
    for name in names:
        _do(store, name, "in")

    found, query = [], {"limit": str(limit)}
    while True:
        page = lists.page(store, choice, query)
        found += list(_view(page))
        if not page.next_token:
            break
        assert len(page.entries) == limit
        assert page.remaining == len(names) - len(found)
        query = {"limit": str(limit), "continue": page.next_token}

    assert found == sorted(names)


def test_a_change_must_follow_the_last_one() -> None:
    log = ChangeLog()
    entry = entry_of({"metadata": {"name": "a"}}, 7)
    change = Change(revision=7, resource=PODS, key=("", "a"), before=None, after=entry)

    with pytest.raises(ValueError, match="expected revision 2, found 7"):
        log.append(change)


def test_a_log_never_gives_a_gap() -> None:
    store = _store()
    for _ in range(3):
        _do(store, "a", "in")
        _do(store, "a", "delete")
    store.log.compact()
    _do(store, "b", "in")
    revision = store.log.revision

    assert [change.revision for change in store.log.since(revision - 1)] == [revision]
    assert store.log.since(revision) == []
    with pytest.raises(CompactedError):
        store.log.since(revision - 2)


def test_a_request_that_fails_changes_nothing() -> None:
    store = _store()
    _do(store, "a", "in")
    before = (store.log.revision, dict(store.entries(CONFIGMAPS)))

    for wrong in ({"data": {"bad key": "v"}}, {"metadata": {"labels": {"k": "a b"}}}):
        with pytest.raises(StatusError):
            store.patch(_target("a"), MERGE, wrong)

    assert (store.log.revision, dict(store.entries(CONFIGMAPS))) == before


def test_a_watch_that_is_not_read_is_ended() -> None:
    store = _store()
    watch = watches.Hub(store.log).open(Choice(resource=PODS), after=store.log.revision)

    for _ in range(10_001):
        watch.send(b"{}")

    assert watch.ended
