"""Rows of what people and schedulers set and ask while the programs run."""

import json
from functools import partial
from typing import Any

from agent.health import fault_config
from extender.apiserver import live_settings
from extender.apiserver.live_settings import DynamicSettings
from extender.http.body import BodyError
from extender.kube_scheduler import protocol
from extender.planning.topology import NetworkTopology, Rules
from extender.queries import what_if
from extender.queries.snapshot import take as take_snapshot
from extender.queries.what_if import QuestionError
from scheduler_core.documents.reader import DocumentError
from scheduler_core.products.table import ATLAS_800_TRAINING as PRODUCT
from scheduler_core.wire import faults, inventory
from scheduler_core.wire.addresses import Address, Addresses
from scheduler_core.wire.annotations import WireError
from tests.extender.kube_scheduler.test_protocol import recorded
from tests.hostile.row import Row, dumped, lines, rows, text_of
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

_CODES = {
    "NotHandleFaultCodes": ["80E21007"],
    "SeparateNPUCodes": ["80818C00", "8C1F8608"],
    "SeparateNPUNetworkCodes": ["81078603"],
}
_CUSTOM = {
    "FaultFrequency": [
        {
            "EventId": ["80C98000"],
            "TimeWindow": 86400,
            "Times": 2,
            "FaultHandling": "ManuallySeparateNPU",
        }
    ],
    "FaultDuration": [
        {
            "EventId": ["81078603"],
            "FaultTimeout": 20,
            "RecoverTimeout": 60,
            "FaultHandling": "PreSeparateNPU",
        }
    ],
}
_UPGRADES = {
    "Ascend910-3": [
        {
            "upgrade_time": 1790000000000,
            "fault_code": "80C98000",
            "fault_level": "ManuallySeparateNPU",
            "upgrade_type": "FaultFrequency",
        }
    ]
}


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


def _fault_config(key: str, content: bytes) -> object:
    parsed = fault_config.parse({key: text_of(content)})
    if parsed.problems:  # what is named has to be short, as in a refusal
        raise DocumentError([((), problem) for problem in parsed.problems])
    return parsed


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
    *rows(
        {
            f"ConfigMap: {key}": (partial(_fault_config, key), [dumped(seed)])
            for key, seed in (
                (fault_config.CODES_KEY, _CODES),
                (fault_config.CUSTOM_KEY, _CUSTOM),
            )
        }
        | {"ConfigMap: settings of the extender": (_set, [dumped(SETTINGS)])},
        DocumentError,
    ),
    *rows(
        {
            "ConfigMap: ManuallySeparateNPU": (
                lambda content: faults.parse_separated(text_of(content), PRODUCT),
                [b"Ascend910-0, Ascend910-1"],
            ),
            "ConfigMap: UpgradeFaultReason": (
                lambda content: faults.parse_upgrades(text_of(content), PRODUCT),
                [dumped(_UPGRADES)],
            ),
            "annotation: addresses in baseDeviceInfos": (
                lambda content: inventory.parse_addresses(
                    content.decode(errors="replace"), PRODUCT
                ),
                [inventory.render(range(8), PRODUCT, ADDRESSES).encode()],
            ),
        },
        WireError,
    ),
    *rows(
        {
            "kube-scheduler: preempt": (
                protocol.preempt_args,
                [recorded("kube-scheduler-preempt-meta-victims.json")],
            ),
        },
        BodyError,
    ),
)
