"""The C structures of libdcmi that the worker process uses, as ctypes.

The structures have the natural alignment of a 64-bit Linux, where `unsigned long` has
8 bytes. Ascend drivers exist for no other platform. A test compiles a C program and
compares sizes and offsets with those of the compiler.

Source:
    MindCluster, `dcmi_interface_api.h` (at 22bb3d98).
"""

import ctypes
from typing import TypeVar

T = TypeVar("T")
CHIP_TEXT = 32
#: Highest number of codes that one call returns.
MOST_CODES = 128
#: Highest number of processes that one call returns.
MOST_PROCESSES = 32
#: Highest number of cards that one call returns.
MOST_CARDS = 64


def _of(kind: type[T], *names: str) -> tuple[tuple[str, type[T]], ...]:
    """Return fields of one type, as C declares them: `unsigned int a, b, c;`."""
    return tuple((name, kind) for name in names)


class ChipInfo(ctypes.Structure):
    """Names of a chip and its number of AI cores (`struct dcmi_chip_info_v2`)."""

    _fields_ = (
        ("chip_type", ctypes.c_char * CHIP_TEXT),
        ("chip_name", ctypes.c_char * CHIP_TEXT),
        ("chip_ver", ctypes.c_char * CHIP_TEXT),
        ("aicore_cnt", ctypes.c_uint),
        ("npu_name", ctypes.c_char * CHIP_TEXT),
    )


class BoardInfo(ctypes.Structure):
    """Ids of the board on which a chip sits (`struct dcmi_board_info`)."""

    _fields_ = _of(ctypes.c_uint, "board_id", "pcb_id", "bom_id", "slot_id")


class IpAddress(ctypes.Structure):
    """IPv4 address if `ip_type` is 0, otherwise IPv6 (`struct dcmi_ip_addr`)."""

    _fields_ = (
        ("octets", ctypes.c_ubyte * 16),
        ("ip_type", ctypes.c_int),
    )


class HbmInfo(ctypes.Structure):
    """State of a chip's own memory, with sizes in MB (`struct dcmi_hbm_info`)."""

    _fields_ = (
        ("memory_size", ctypes.c_ulonglong),
        ("freq", ctypes.c_uint),
        ("memory_usage", ctypes.c_ulonglong),
        ("temp", ctypes.c_int),
        ("bandwith_util_rate", ctypes.c_uint),
    )


class SuperPodInfo(ctypes.Structure):
    """Ids that say where in a SuperPoD a chip is (`struct dcmi_spod_info`)."""

    _fields_ = (
        *_of(ctypes.c_uint, "sdid", "scale_type", "super_pod_id", "server_id"),
        *_of(ctypes.c_uint, "chassis_id", "super_pod_type"),
        ("reserve", ctypes.c_uint * 6),
    )


class ProcessInfo(ctypes.Structure):
    """Process on a chip, and the bytes of memory that the process uses.

    In C, this is `struct dcmi_proc_mem_info`.
    """

    _fields_ = (
        ("proc_id", ctypes.c_int),
        ("proc_mem_usage", ctypes.c_ulong),
    )


class FaultEvent(ctypes.Structure):
    """Start or end of a fault of one chip (`struct dcmi_dms_fault_event`)."""

    _fields_ = (
        ("event_id", ctypes.c_uint),
        ("deviceid", ctypes.c_ushort),
        *_of(ctypes.c_ubyte, "node_type", "node_id", "sub_node_type", "sub_node_id"),
        *_of(ctypes.c_ubyte, "severity", "assertion"),
        *_of(ctypes.c_int, "event_serial_num", "notify_serial_num"),
        ("alarm_raised_time", ctypes.c_ulonglong),
        ("event_name", ctypes.c_char * 256),
        ("additional_info", ctypes.c_char * 32),
        ("resv", ctypes.c_ubyte * 32),
    )


class EventUnion(ctypes.Union):
    """Content of an `Event`, here always a `FaultEvent`.

    The worker process subscribes to events of faults only.
    """

    _fields_ = (("dms_event", FaultEvent),)


class Event(ctypes.Structure):
    """Type and content of an event that libdcmi sends (`struct dcmi_event`)."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("event_t", EventUnion),
    )


class EventFilter(ctypes.Structure):
    """Filter of events; zeros let all events pass (`struct dcmi_event_filter`)."""

    _fields_ = (
        ("filter_flag", ctypes.c_ulonglong),
        ("event_id", ctypes.c_uint),
        ("severity", ctypes.c_ubyte),
        ("node_type", ctypes.c_ubyte),
        ("resv", ctypes.c_ubyte * 32),
    )


#: Room of resources that are not read: `struct dcmi_base_resource`,
#: `struct dcmi_computing_resource`, `struct dcmi_media_resource`.
_BASE = ctypes.c_ulonglong * 8
_COMPUTING = ctypes.c_ulonglong * 12
_MEDIA = ctypes.c_float * 14
#: Highest number of virtual devices of one chip.
MOST_VIRTUAL = 32


class TotalResource(ctypes.Structure):
    """Resources of one chip (`struct dcmi_soc_total_resource`).

    The worker process reads only `vdev_num` and `vdev_id`: how many virtual devices the
    chip has, and their numbers.
    """

    _fields_ = (
        ("vdev_num", ctypes.c_uint),
        ("vdev_id", ctypes.c_uint * MOST_VIRTUAL),
        ("vfg_num", ctypes.c_uint),
        ("vfg_bitmap", ctypes.c_uint),
        ("base", _BASE),
        ("computing", _COMPUTING),
        ("media", _MEDIA),
    )


class VirtualInfo(ctypes.Structure):
    """Description of one virtual device (`struct dcmi_vdev_query_info`).

    Only `name` is used: the template that sets the size of the device.
    """

    _fields_ = (
        ("name", ctypes.c_char * 16),
        *_of(ctypes.c_uint, "status", "is_container_used", "vfid", "vfg_id"),
        ("container_id", ctypes.c_ulonglong),
        ("base", _BASE),
        ("computing", _COMPUTING),
        ("media", _MEDIA),
    )


class VirtualQuery(ctypes.Structure):
    """Number and description of a virtual device (`struct dcmi_vdev_query_stru`)."""

    _fields_ = (
        ("vdev_id", ctypes.c_uint),
        ("query_info", VirtualInfo),
    )


#: `void (*dcmi_fault_event_callback)(struct dcmi_event *)`
EventCallback = ctypes.CFUNCTYPE(None, ctypes.POINTER(Event))
