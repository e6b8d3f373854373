"""Rows of what people set while it runs, and of what preemption asks."""

from functools import partial

from agent.health import fault_config
from extender.http.body import BodyError
from extender.kube_scheduler import protocol
from scheduler_core.documents.reader import DocumentError
from scheduler_core.products.table import ATLAS_800_TRAINING as PRODUCT
from scheduler_core.wire import faults
from scheduler_core.wire.annotations import WireError
from tests.extender.kube_scheduler.test_protocol import recorded
from tests.hostile.row import Row, dumped, rows, text_of

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


def _fault_config(key: str, content: bytes) -> object:
    return fault_config.parse({key: text_of(content)})


ROWS: tuple[Row, ...] = (
    *rows(
        {
            f"ConfigMap: {key}": (partial(_fault_config, key), [dumped(seed)])
            for key, seed in (
                (fault_config.CODES_KEY, _CODES),
                (fault_config.CUSTOM_KEY, _CUSTOM),
                (fault_config.SWITCH_KEY, _SWITCHES),
            )
        },
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
