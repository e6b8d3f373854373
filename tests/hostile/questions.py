"""The table: what the extender is asked and told while it runs."""

import json
from functools import partial
from typing import Any

from extender.apiserver import live_settings
from extender.apiserver.live_settings import DynamicSettings
from extender.planning.topology import NetworkTopology, Rules
from extender.queries import what_if
from extender.queries.snapshot import take as take_snapshot
from extender.queries.what_if import QuestionError
from scheduler_core.documents.reader import DocumentError
from scheduler_core.products.table import ATLAS_800_TRAINING as PRODUCT
from scheduler_core.wire import inventory
from scheduler_core.wire.addresses import Address, Addresses
from scheduler_core.wire.annotations import WireError
from tests.hostile.row import Row, dumped, lines
from tests.hostile.seeds import JOB
from tests.support.caches import cluster
from tests.support.watched import tenant

_CACHE = cluster(tenant("a", "n1", (0, 1)), nodes=("n1", "n2", "n3"))
_NOW = take_snapshot(_CACHE, NetworkTopology(_CACHE, Rules()))

QUESTION: dict[str, Any] = {
    "version": 1,
    "job": {key: value for key, value in JOB.items() if key != "version"},
    "drain": ["n2"],
    "add": [{"name": "n9", "product": "atlas-800-training", "unhealthy": [3]}],
}
SETTINGS = {
    "self-maintain-available-card": "true",
    "job-rules": "seed",
    "super-pod-size": "48",
    "reserve-nodes": "2",
    "nslb-version": "1.0",
    "shared-tor-num": "2",
    "forceEnqueue": "true",
}
ADDRESSES = Addresses(chips={2: Address(ip="192.168.20.102", super_device_id=8)})


def _answered(content: bytes) -> object:
    return what_if.answer(what_if.parse(content), _NOW)


def _set(content: bytes) -> object:
    """A ConfigMap's data: text by text, as the API server lets nothing else in."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    texts = {key: value for key, value in found.items() if isinstance(value, str)}
    return live_settings.parse(texts, DynamicSettings())


ROWS: tuple[Row, ...] = (
    Row(
        name="extender: what-if",
        read=_answered,
        seeds=(dumped(QUESTION),),
        errors=(QuestionError,),
        problems=lines,
        state=partial(take_snapshot, _CACHE, NetworkTopology(_CACHE, Rules())),
        is_slow=True,
    ),
    Row(
        name="ConfigMap: settings of the extender",
        read=_set,
        seeds=(dumped(SETTINGS),),
        errors=(DocumentError,),
    ),
    Row(
        name="annotation: addresses in baseDeviceInfos",
        read=lambda content: inventory.parse_addresses(
            content.decode(errors="replace"), PRODUCT
        ),
        seeds=(inventory.render(range(8), PRODUCT, ADDRESSES).encode(),),
        errors=(WireError,),
    ),
)
