"""Rows of what people set while it runs, and of what preemption asks."""

import json
from functools import partial
from typing import cast

from agent.health import fault_config
from extender.http.body import BodyError
from extender.kube_scheduler import protocol
from scheduler_core.documents.reader import DocumentError
from scheduler_core.products.table import ATLAS_800_TRAINING as PRODUCT
from scheduler_core.wire import faults
from scheduler_core.wire.annotations import WireError
from tests.extender.kube_scheduler.test_protocol import recorded
from tests.hostile.row import Row

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
_SWITCHES = {"NotHandleFaultCodes": ["[0x08520003,na,L2,na]"]}
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


def _text(content: bytes) -> str:
    """As a hand that writes no UTF-8 would give it: half surrogates included."""
    return content.decode(errors="surrogateescape")


def _fault_config(key: str, content: bytes) -> object:
    return fault_config.parse({key: _text(content)})


def _flaws(error: Exception) -> tuple[str, ...]:
    return cast("DocumentError", error).problems


ROWS: tuple[Row, ...] = (
    *(
        Row(
            name=f"ConfigMap: {key}",
            read=partial(_fault_config, key),
            seeds=(json.dumps(seed).encode(),),
            errors=(DocumentError,),
            problems=_flaws,
        )
        for key, seed in (
            (fault_config.CODES_KEY, _CODES),
            (fault_config.CUSTOM_KEY, _CUSTOM),
            (fault_config.SWITCH_KEY, _SWITCHES),
        )
    ),
    Row(
        name="ConfigMap: ManuallySeparateNPU",
        read=lambda content: faults.parse_separated(_text(content), PRODUCT),
        seeds=(b"Ascend910-0, Ascend910-1",),
        errors=(WireError,),
    ),
    Row(
        name="ConfigMap: UpgradeFaultReason",
        read=lambda content: faults.parse_upgrades(_text(content), PRODUCT),
        seeds=(json.dumps(_UPGRADES).encode(),),
        errors=(WireError,),
    ),
    Row(
        name="kube-scheduler: preempt",
        read=protocol.preempt_args,
        seeds=(recorded("kube-scheduler-preempt-meta-victims.json"),),
        errors=(BodyError,),
    ),
)
