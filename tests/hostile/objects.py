"""Parsers of what the API server, kube-scheduler and the kubelet send.

Not only the decoding: each object goes on into the ledger, the cache or the report,
because a text that decodes can do its harm there.
"""

import asyncio
import atexit
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from google.protobuf.message import DecodeError

from agent.claims import annotations, confirm, occupancy
from agent.claims import ledger as ledgers
from agent.claims.events import (
    AllocateAsked,
    PodUpdated,
    PreferenceAsked,
    ResourcesRead,
)
from agent.claims.values import Ledger
from agent.devices.simulated import file
from agent.health.conditions import Health, ReadingTaken
from agent.health.conditions import step as health_step
from agent.plugin import translate
from agent.report import reporter
from agent.report.content import (
    NodeMarks,
    configmap_data,
    node_patch,
    node_report,
    own_labels_patch,
)
from agent.report.schedule import ConfigMapSeen, ReportChanged, State, WriteSucceeded
from agent.report.schedule import step as report_step
from extender.cache import decode
from extender.http.body import BodyError
from extender.kube_scheduler import protocol
from kube import kubelet_pods
from kube.errors import KubeError, api_error
from kube.objects import ConfigMap, ManagedNode, Node, Pod
from kube.pager import HasMeta
from kube.pods import npu_pod
from kube.reflector import Change, Deleted, ListWatch, Upserted
from kubelet_api.deviceplugin.v1beta1 import api_pb2 as deviceplugin
from kubelet_api.podresources.v1 import api_pb2 as podresources
from scheduler_core.products.table import ATLAS_800_TRAINING as PRODUCT
from scheduler_core.wire.deviceinfo import Affinity
from tests.agent.node import NODE, ids, pod
from tests.extender.kube_scheduler.test_protocol import recorded
from tests.hostile.row import Row, Table, dumped, rows
from tests.hostile.seeds import GIVEN, LIKED, NODE_OBJECT, POD, WANTED
from tests.support.caches import empty
from tests.support.objects import configmap

_NOW_S = 1_800_000_000.0
_LOOP = asyncio.new_event_loop()
atexit.register(_LOOP.close)


def _node_report() -> Any:
    reading = file.parse("product: atlas-800-training\nvanished: [1]\n")
    look = ReadingTaken(reading=reading, in_use=frozenset(), recover_s=1.0)
    health, _ = health_step(Health(), look, 0.0)
    return node_report(reading, health, taken=(), affinity=Affinity(sequence=1))


_NODE_REPORT = _node_report()
_REPORT = configmap(
    f"mindx-dl-deviceinfo-{NODE}",
    configmap_data(_NODE_REPORT, update_time=int(_NOW_S)),
    uid="uid-c",
    resourceVersion="19",
    labels={"mx-consumer-cim": "true"},
    annotations={"ascend-affinity/writer": "me"},
)


class _Stream:
    def __init__(self, chunks: list[bytes]) -> None:
        self._chunks = chunks

    async def read(self, _idle_s: float) -> bytes:
        return self._chunks.pop(0) if self._chunks else b""


class _Server:
    """An API server whose list and watch say what they are told to."""

    def __init__(self) -> None:
        self.page = b""
        self.lines: list[bytes] = []

    async def request(self, *_words: object, **_more: object) -> bytes:
        return self.page

    @asynccontextmanager
    async def stream(self, *_words: object, **_more: object) -> AsyncIterator[_Stream]:
        yield _Stream(self.lines)


def _page(*items: object) -> bytes:
    metadata = {"resourceVersion": "20", "continue": ""}
    return dumped({"metadata": metadata, "items": items})


def _watched(kind: type[Any]) -> tuple[_Server, ListWatch[Any]]:
    server = _Server()
    client: Any = server
    return server, ListWatch(client, "/api/v1/things", kind)


class _Followed:
    """One collection, followed by a real `ListWatch`, and what becomes of it."""

    def __init__(self, kind: type[Any], known: object) -> None:
        self._kind = kind
        self._known = known
        self._start()

    def _start(self) -> None:
        self._server, self._watch = _watched(self._kind)
        self._server.page = _page(self._known)
        self._changes: list[Change[Any]] = []
        _LOOP.run_until_complete(self._watch.step(self._changes.append))

    def state(self) -> object:
        return self._watch.objects()

    def line(self, content: bytes) -> object:
        if not content.strip() or b"\n" in content:
            return None  # no line, or several of which the first may be good
        self._start()  # so that each input meets the same
        self._server.lines = [content + b"\n"]
        return self._step()

    def list(self, content: bytes) -> object:
        self._start()
        self._watch.relist_now()  # as after a 410
        self._server.page = content
        return self._step()

    def _step(self) -> object:
        self._changes.clear()
        _LOOP.run_until_complete(self._watch.step(self._changes.append))
        took = tuple(self._changes)
        self._start()  # what was taken is no half of anything
        return took


def _obj(kind: type[Any], content: bytes) -> Any:
    """An object as a watch would deliver it; nothing where it does not decode."""
    server, watch = _watched(kind)
    server.page = b'{"metadata":{"resourceVersion":"1"},"items":[%s]}' % content
    found: list[Change[HasMeta]] = []
    _LOOP.run_until_complete(watch.step(found.append))
    return [each.obj for each in found if isinstance(each, (Upserted, Deleted))]


def _into_cache(kind: type[Any], content: bytes) -> object:
    cache = empty()
    node = _obj(Node, dumped(NODE_OBJECT))[0]
    report = decode.report_change(_obj(ConfigMap, dumped(_REPORT))[0])
    assert report is not None
    for change in (decode.node_change(node), report):
        cache.step(change, _NOW_S)
    for obj in _obj(kind, content):
        change = _CHANGES[kind](obj)
        if change is not None:
            cache.step(change, _NOW_S)
            cache.step(change, _NOW_S + 1)
    list(cache.index)
    return cache


_CHANGES: Mapping[type[Any], Any] = {
    Pod: decode.pod_change,
    Node: decode.node_change,
    ConfigMap: decode.report_change,
}


def _ledger(*, standalone: bool) -> Ledger:
    ledger = Ledger(product=PRODUCT, node=NODE, standalone=standalone)
    return ledgers.step(ledger, PodUpdated(pod("other", (4, 5))), 0.0)[0]


def _into_ledger(content: bytes) -> object:
    made = []
    for obj in _obj(Pod, content):
        found = npu_pod(obj, PRODUCT.resource)
        for standalone in (False, True) if found else ():
            assert found is not None
            ledger, _ = ledgers.step(
                _ledger(standalone=standalone), PodUpdated(found), 0.0
            )
            asked = AllocateAsked(ids(1), last_call=True)
            ledger, said = ledgers.step(ledger, asked, 0.0)
            patches = annotations.plan_patches(
                ledger, host_ip="10.0.0.1", unsure=frozenset()
            )
            made += [occupancy.list_devices(ledger), patches, said]
            confirm.pods_to_read(ledger, thorough=True)
    return made


def _into_report(content: bytes) -> object:
    state, _ = report_step(
        State(me="me", heartbeat_s=300.0), ReportChanged(_NODE_REPORT), 0.0
    )
    ours = _obj(ConfigMap, dumped(_REPORT))[0]
    landed = WriteSucceeded(
        _NODE_REPORT, dict(ours.data), reporter.stored_configmap(ours)
    )
    state, _ = report_step(state, landed, 0.0)
    for obj in _obj(ConfigMap, content):
        state, effects = report_step(
            state, ConfigMapSeen(reporter.stored_configmap(obj)), 1.0
        )
        repr(effects).encode()
    return state


def _into_marks(content: bytes) -> object:
    marks = NodeMarks(
        labels={"a": "b"},
        annotations={"c": "d"},
        defaults={"e": "f"},
        accelerator_type="half",
    )
    return [
        (node_patch(obj, marks), own_labels_patch(obj, marks, manager="me"))
        for obj in _obj(ManagedNode, content)
    ]


def _no(content: bytes) -> object:
    said = str(api_error(0, content, request_line="WATCH /api/v1/pods"))
    said.encode()
    assert len(said) < 2_000
    return said


_ALLOCATED = _ledger(standalone=False)


def _preference(content: bytes) -> object:
    request = deviceplugin.PreferredAllocationRequest.FromString(content)
    for each in request.container_requests:
        asked = PreferenceAsked(
            tuple(each.available_deviceIDs),
            tuple(each.must_include_deviceIDs),
            each.allocation_size,
        )
        _, effects = ledgers.step(_ALLOCATED, asked, 0.0)
        given = [i for effect in effects for i in getattr(effect, "kubelet_ids", ())]
        assert set(given) <= set(each.available_deviceIDs) | set(
            each.must_include_deviceIDs
        )
    return request


def _allocate(content: bytes) -> object:
    request = deviceplugin.AllocateRequest.FromString(content)
    for each in request.container_requests:
        asked = AllocateAsked(tuple(each.devices_ids), last_call=True)
        after, effects = ledgers.step(_ALLOCATED, asked, 0.0)
        refused = [effect.text for effect in effects if hasattr(effect, "text")]
        assert all(len(text) <= 1_000 for text in refused), refused
        assert bool(refused) == (after.holds == _ALLOCATED.holds)
    return request


def _resources(content: bytes) -> object:
    answer = podresources.GetPodResourcesResponse.FromString(content)
    containers = translate.device_ids(answer.pod_resources, PRODUCT.resource)
    ledger = _ledger(standalone=False)
    ledger, _ = ledgers.step(ledger, AllocateAsked(ids(4, 5), last_call=True), 0.0)
    read = ResourcesRead(
        uid="uid-other",
        containers=containers,
        as_of=ledger.sequence,
        until=ledger.sequence,
        quiet=True,
    )
    return ledgers.step(ledger, read, 0.0)


def _message(message: Any) -> bytes:
    content: bytes = message.SerializeToString()
    return content


def _event(kind: str, obj: object) -> bytes:
    return dumped({"type": kind, "object": obj})


_PODS = _Followed(Pod, {**POD, "metadata": {**POD["metadata"], "uid": "uid-0"}})
_BODIES = ("filter-names", "filter-nodes", "prioritize-names", "prioritize-nodes")
_ANY = re.compile(r".+", re.DOTALL)
_OBJECT_SEEDS: Mapping[type[Any], bytes] = {
    Pod: dumped(POD),
    Node: dumped(NODE_OBJECT),
    ConfigMap: dumped(_REPORT),
}


_WATCHED = {
    "watch: a line": (
        _PODS.line,
        [
            _event("ADDED", POD),
            _event("MODIFIED", POD),
            _event("DELETED", POD),
            _event("BOOKMARK", {"metadata": {"resourceVersion": "30"}}),
        ],
    ),
    "list: a page": (_PODS.list, [_page(POD), _page()]),
}
_READ: Table = {
    "kubelet: /pods": (
        partial(kubelet_pods.decode_pods, url="http://kubelet"),
        [_page(POD, POD)],
    ),
    **{
        f"object: {kind.__name__}, into the extender's cache": (
            partial(_into_cache, kind),
            [seed],
        )
        for kind, seed in _OBJECT_SEEDS.items()
    },
    "object: Pod, into the agent's ledger": (_into_ledger, [_OBJECT_SEEDS[Pod]]),
    "object: ConfigMap, into the agent's report": (
        _into_report,
        [_OBJECT_SEEDS[ConfigMap]],
    ),
    "object: Node, into the agent's marks": (_into_marks, [_OBJECT_SEEDS[Node]]),
}
_SCHEDULER = {
    "kube-scheduler: filter, prioritize": (
        protocol.nodes_args,
        [recorded(f"kube-scheduler-{name}.json") for name in _BODIES],
    ),
    "kube-scheduler: bind": (
        protocol.bind_args,
        [recorded("kube-scheduler-bind.json")],
    ),
}
_KUBELET = {
    "kubelet: GetPreferredAllocation": (_preference, [_message(LIKED)]),
    "kubelet: Allocate": (_allocate, [_message(WANTED)]),
    "kubelet: pod-resources": (_resources, [_message(GIVEN)]),
}

ROWS: tuple[Row, ...] = (
    *rows(_WATCHED, KubeError, state=_PODS.state),
    *rows(_READ, KubeError),
    Row(
        name="API server: an error's body",
        read=_no,
        seeds=(b'{"code": 409, "reason": "Conflict", "message": "no"}',),
    ),
    *rows(_SCHEDULER, BodyError),
    *rows(_KUBELET, DecodeError, says=_ANY),
)
