"""The C functions of libdcmi that the worker process calls, as methods of a class.

A count, logic id or physical id outside the bounds of real hardware raises `CallError`.
Without this check, a senseless count could make a loop nearly endless. A wrong value
within the bounds cannot be detected here.

Source:
    Prototypes: MindCluster, `dcmi_interface_api.h` (at 22bb3d98). Meanings of error
    codes: the DCMI API reference, except 0, -8012, -8255 and all below -99000. -8023:
    the vendor's published source of libdcmi, `dcmi_get_npu_device_ip`.
"""

import ctypes
import os
import socket
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

from agent.devices.dcmi import structs
from agent.devices.dcmi.progress import Call, Progress
from agent.devices.dcmi.values import NO_NUMBER, SuperPodPlace

#: {error code: meaning}
MEANINGS = MappingProxyType(
    {
        -8001: "invalid parameter",
        -8002: "not permitted",
        -8003: "out of memory",
        -8004: "secure function failed",
        -8005: "internal error",
        -8006: "timed out",
        -8007: "invalid device",
        -8008: "no such device",
        -8009: "ioctl failed",
        -8010: "message not sent",
        -8011: "message not received",
        -8012: "not ready",
        -8013: "not in a container",
        -8014: "file error",
        -8015: "reset failed",
        -8016: "reset cancelled",
        -8017: "upgrading",
        -8020: "busy",
        -8022: "partition is gone",
        -8023: "not configured",
        -8255: "not supported",
        -99999: "library not found",
        -99998: "function not found",
        -99997: "nonsense",
        -99996: "left out: it did not come back last time",
    }
)
NOT_EXIST = -8008
NOT_READY = -8012
#: What was asked for was never configured: a chip without an address says so.
NOT_CONFIGURED = -8023
NOT_SUPPORTED = -8255
NO_FUNCTION = -99998
NONSENSE = -99997
#: The chip, or the library, does not have what was asked for: that is an answer.
ABSENT = frozenset({NOT_SUPPORTED, NO_FUNCTION})
LEFT_OUT = -99996

#: `enum dcmi_unit_type`: a neural processor, not its controller (1) or CPU (2). There
#: is also `INVALID_TYPE`, of a device that does not know yet what it is.
NPU = 0
_KINDS = 3
#: Highest number of chips of one card, as in the reference.
_MOST_DEVICES = 4
_MOST_LOGIC_IDS = 256
_MOST_PHYSICAL_IDS = 1024
_MOST_AI_CORES = 1024
#: `dcmi_get_device_ip`: the RoCE port.
_ROCE_PORT = 1
_IPV4, _IPV6 = 0, 1
#: First bytes of an IPv6 address that is valid on its own link only.
_LINK_LOCAL = b"\xfe\x80"
#: `dcmi_get_device_info`: main command "chip info", sub command "SuperPoD".
_SUPER_POD = (12, 1)
#: Main command "virtual devices", sub commands "all of a chip" and "one of them".
_VIRTUAL_TOTAL = (52, 1)
_VIRTUAL_ONE = (52, 0)
_VERSION_BYTES = 64
_TYPE_BYTES = 64
_CPUS_BYTES = 1024
_ALL = -1
LIST_CARDS = "dcmi_get_card_list"
_INIT = "dcmi_init"
#: Beginning of the names of functions of the other interface, for Ascend950 and later.
_INIT_V2 = "dcmiv2_init"
_NO_CODES = bytes(ctypes.sizeof(ctypes.c_uint) * structs.MOST_CODES)


class CallError(Exception):
    """A libdcmi function returned an error or a wrong value, or could not be called."""

    def __init__(self, call: Call, code: int) -> None:
        self.call = call
        self.code = code
        meaning = MEANINGS.get(code, "unknown error")
        super().__init__(f"{call.function}: {meaning} ({code})")


class Library:
    """The loaded libdcmi; each call is shown to the agent in a shared memory page.

    Only one thread calls the library.
    """

    def __init__(
        self,
        path: str,
        progress: Progress,
        *,
        leave_out: Callable[[Call], bool],
        after_call: Callable[[], None],
    ) -> None:
        """Load the library; call none of its functions yet.

        Args:
            path: Path of the library, or a name that the dynamic loader searches.
            progress: Memory page in which the agent sees the call under way.
            leave_out: Returns whether a call must be skipped now, because earlier
                workers hung or died in it.
            after_call: Is called when a call has come back; may make other calls.

        Raises:
            OSError: The library cannot be loaded; the text has the reason.
        """
        self._progress = progress
        self._leave_out = leave_out
        self._after_call = after_call
        with _noted(progress, Call(function="dlopen")):
            self._functions: Any = _load(path)
        self._callback: Any = None

    def init(self) -> None:
        """Initialise libdcmi; to be called once, before all other methods.

        Raises:
            OSError: The initialisation failed, and the library has functions that this
                class does not call. MindCluster calls those then.
            CallError: The initialisation failed.
        """
        try:
            self._call(Call(function=_INIT))
        except CallError as error:
            if not hasattr(self._functions, _INIT_V2):
                raise
            rest = "only" if error.code == NO_FUNCTION else f"and {error}"
            raise OSError(
                f"expected functions dcmi_*, found dcmiv2_* {rest}: this is the driver "
                "of chips like Ascend950, which the agent cannot ask yet"
            ) from error

    def version(self) -> str:
        """Return the version of libdcmi, which MindCluster takes for the driver's."""
        text = ctypes.create_string_buffer(_VERSION_BYTES)
        call = Call(function="dcmi_get_dcmi_version")
        self._call(call, text, ctypes.c_int(_VERSION_BYTES))
        return _text(text.value)

    def cards(self) -> tuple[tuple[int, ...], int]:
        """Return (numbers of the server's cards, ascending; cards without a number).

        libdcmi counts a card that it cannot name yet with a negative number.
        """
        call = Call(function=LIST_CARDS)
        count, numbers = ctypes.c_int(), (ctypes.c_int * structs.MOST_CARDS)()
        self._call(call, ctypes.byref(count), numbers, ctypes.c_int(structs.MOST_CARDS))
        listed = numbers[: _within(call, count.value, structs.MOST_CARDS + 1)]
        named = {number for number in listed if number >= 0}
        return tuple(sorted(named)), sum(number < 0 for number in listed)

    def device_count(self, card: int) -> int:
        """Return how many devices a card has, chips and others; at least one.

        A card that shows none is not up yet, or no longer: MindCluster, too, takes that
        for a failure (`DcGetDeviceNumInCard`).
        """
        call = Call(function="dcmi_get_device_num_in_card", card=card, device=0)
        count = ctypes.c_int()
        self._call(call, ctypes.c_int(card), ctypes.byref(count))
        return _within(call, count.value - 1, _MOST_DEVICES) + 1

    def is_chip(self, card: int, device: int) -> bool:
        """Whether a device is a chip, and not a controller or CPU of its card."""
        kind = ctypes.c_int()
        call = self._ask("dcmi_get_device_type", card, device, ctypes.byref(kind))
        return _within(call, kind.value, _KINDS) == NPU

    def logic_id(self, card: int, device: int) -> int:
        """Return the logic id of a chip, which is its number in the driver's order."""
        call = Call(function="dcmi_get_device_logic_id", card=card, device=device)
        number = ctypes.c_int()
        self._call(call, ctypes.byref(number), ctypes.c_int(card), ctypes.c_int(device))
        return _within(call, number.value, _MOST_LOGIC_IDS)

    def physical_id(self, card: int, device: int, logic_id: int) -> int:
        """Return the physical id of a chip, the number N of its file /dev/davinciN.

        The C function needs only `logic_id`. `card` and `device` are written into
        `Progress`, so that the agent knows the chip if the call hangs.
        """
        function = "dcmi_get_device_phyid_from_logicid"
        call = Call(function=function, card=card, device=device)
        found = ctypes.c_uint()
        self._call(call, ctypes.c_uint(logic_id), ctypes.byref(found))
        return _within(call, found.value, _MOST_PHYSICAL_IDS)

    def chip_info(self, card: int, device: int) -> tuple[str, int]:
        """Return (model, number of AI cores) of a chip.

        Older libraries have only `dcmi_get_device_chip_info`, which fills the beginning
        of the same structure.
        """
        info = structs.ChipInfo()
        result = ctypes.byref(info)
        try:
            call = self._ask("dcmi_get_device_chip_info_v2", card, device, result)
        except CallError as first:
            try:
                call = self._ask("dcmi_get_device_chip_info", card, device, result)
            except CallError:
                if first.code not in ABSENT:
                    raise first from None
                raise
        return _text(info.chip_name), _within(call, info.aicore_cnt, _MOST_AI_CORES)

    def board_id(self, card: int, device: int) -> int:
        """Return the id of the board on which a chip sits."""
        board = structs.BoardInfo()
        result = ctypes.byref(board)
        call = self._ask("dcmi_get_device_board_info", card, device, result)
        return _within(call, board.board_id, NO_NUMBER)

    def product_type(self, card: int, device: int) -> str:
        """Return the name under which a chip's card is sold, like "Atlas 300I Duo"."""
        text = ctypes.create_string_buffer(_TYPE_BYTES)
        size = ctypes.c_int(_TYPE_BYTES)
        self._ask("dcmi_get_product_type", card, device, text, size)
        return _text(text.value)

    def check_ready(self, card: int, device: int) -> None:
        """Ask whether a chip is ready; the health that libdcmi gives is not used.

        Raises:
            CallError: Its code is `NOT_READY` if libdcmi says that the chip is not
                ready. Other codes say nothing about the chip.
        """
        health = ctypes.c_uint()
        self._ask("dcmi_get_device_health", card, device, ctypes.byref(health))

    def codes(self, card: int, device: int) -> tuple[int, ...]:
        """Return the fault codes of a chip in the order of libdcmi, each once.

        libdcmi fills an array of codes, and zeros are left out. The count that libdcmi
        returns is ignored, as in MindCluster.
        """
        function = "dcmi_get_device_errorcode_v2"
        count, slots = ctypes.c_int(), (ctypes.c_uint * structs.MOST_CODES)()
        size = ctypes.c_uint(structs.MOST_CODES)
        self._ask(function, card, device, ctypes.byref(count), slots, size)
        if bytes(slots) == _NO_CODES:  # the common case, each second for each chip
            return ()
        return tuple(dict.fromkeys(filter(None, slots[:])))

    def pids(self, card: int, device: int) -> tuple[int, ...]:
        """Return the pids of the processes on a chip, ascending."""
        infos = (structs.ProcessInfo * structs.MOST_PROCESSES)()
        count = ctypes.c_int(structs.MOST_PROCESSES)
        function = "dcmi_get_device_resource_info"
        call = self._ask(function, card, device, infos, ctypes.byref(count))
        number = _within(call, count.value, structs.MOST_PROCESSES + 1)
        return tuple(sorted({p.proc_id for p in infos[:number] if p.proc_id > 0}))

    def address(self, card: int, device: int) -> str:
        """Return the IP address of a chip's RoCE port; "" if the address is not usable.

        An address of zeros is not usable, nor is a link-local IPv6 address. IPv6 is
        asked for only if libdcmi has no usable IPv4 address.

        Raises:
            CallError: No usable address was found, and one could not be read. Its code
                is in `ABSENT` if libdcmi supports the question for no type of address.
        """
        failures: list[CallError] = []
        for ip_type in (_IPV4, _IPV6):
            try:
                found = self._address(card, device, ip_type)
            except CallError as error:
                if error.code != NOT_CONFIGURED:
                    failures.append(error)
            else:
                if found:
                    return found
        failed = [error for error in failures if error.code not in ABSENT]
        if failed or len(failures) == len((_IPV4, _IPV6)):
            raise (failed or failures)[0]
        return ""

    def _address(self, card: int, device: int, ip_type: int) -> str:
        """Return the address of one type; "" if it is not usable."""
        address, mask = structs.IpAddress(ip_type=ip_type), structs.IpAddress()
        port = (ctypes.c_int(_ROCE_PORT), ctypes.c_int(0))
        results = (ctypes.byref(address), ctypes.byref(mask))
        self._ask("dcmi_get_device_ip", card, device, *port, *results)
        octets = bytes(address.octets)
        if address.ip_type == _IPV4:
            return socket.inet_ntop(socket.AF_INET, octets[:4]) if any(octets) else ""
        is_of_use = any(octets) and octets[:2] != _LINK_LOCAL
        return socket.inet_ntop(socket.AF_INET6, octets) if is_of_use else ""

    def memory_mb(self, card: int, device: int) -> int:
        """Return the size of a chip's own memory (HBM). Unit: MB."""
        memory = structs.HbmInfo()
        self._ask("dcmi_get_device_hbm_info", card, device, ctypes.byref(memory))
        return int(memory.memory_size)

    def super_pod(self, card: int, device: int) -> SuperPodPlace:
        """Return where in a SuperPoD a chip is."""
        superpod = structs.SuperPodInfo()
        self._info(card, device, _SUPER_POD, superpod)
        return SuperPodPlace(
            super_device_id=int(superpod.sdid),
            super_pod_id=int(superpod.super_pod_id),
            server_index=int(superpod.server_id),
        )

    def virtual(self, card: int, device: int) -> tuple[tuple[int, str], ...]:
        """Return (number, template name) of each virtual device of a chip.

        A virtual device is a part of a chip. A template sets the size of the part.
        """
        total = structs.TotalResource()
        call = self._info(card, device, _VIRTUAL_TOTAL, total)
        count = _within(call, total.vdev_num, structs.MOST_VIRTUAL + 1)
        parts = []
        for number in total.vdev_id[:count]:
            query = structs.VirtualQuery(vdev_id=number)
            self._info(card, device, _VIRTUAL_ONE, query)
            parts.append((int(number), _text(query.query_info.name)))
        return tuple(parts)

    def near_cpus(self, card: int, device: int) -> str:
        """Return the CPUs nearest to a chip, in the kernel's list format ("0-23")."""
        function = "dcmi_get_affinity_cpu_info_by_device_id"
        text, size = ctypes.create_string_buffer(_CPUS_BYTES), ctypes.c_int(_CPUS_BYTES)
        self._ask(function, card, device, text, ctypes.byref(size))
        return _text(text.value)

    def subscribe(self, on_event: Callable[[structs.FaultEvent], None]) -> None:
        """Let libdcmi call `on_event` whenever it reports that a fault begins or ends.

        Some chips have no events. The method may be called again if it has failed.

        Args:
            on_event: Is called in a thread of the library; must neither block nor
                raise. The same at each call.
        """
        # libdcmi may have kept that of a call that failed
        self._callback = self._callback or structs.EventCallback(
            lambda event: on_event(event.contents.event_t.dms_event)
        )
        call = Call(function="dcmi_subscribe_fault_event")
        no_filter = structs.EventFilter()
        self._call(
            call, ctypes.c_int(_ALL), ctypes.c_int(_ALL), no_filter, self._callback
        )

    def _info(
        self, card: int, device: int, command: tuple[int, int], result: ctypes.Structure
    ) -> Call:
        """Let `dcmi_get_device_info` fill `result` with information about a chip.

        Args:
            card: Number of the chip's card.
            device: Device number of the chip on its card.
            command: (main command, sub command) of libdcmi, like (12, 1) for the ids of
                the chip in its SuperPoD.
        """
        main, sub = ctypes.c_int(command[0]), ctypes.c_uint(command[1])
        size = ctypes.c_uint(ctypes.sizeof(result))
        results = (ctypes.byref(result), ctypes.byref(size))
        return self._ask("dcmi_get_device_info", card, device, main, sub, *results)

    def _ask(self, function: str, card: int, device: int, *arguments: Any) -> Call:
        """Call a C function with card, device and `arguments`; return the call."""
        call = Call(function=function, card=card, device=device)
        self._call(call, ctypes.c_int(card), ctypes.c_int(device), *arguments)
        return call

    def _call(self, call: Call, *arguments: Any) -> None:
        function = getattr(self._functions, call.function, None)
        if function is None:
            raise CallError(call, NO_FUNCTION)
        if self._leave_out(call):
            raise CallError(call, LEFT_OUT)
        with _noted(self._progress, call):
            code = function(*arguments)
        self._after_call()
        if code:
            raise CallError(call, code)


class _noted:  # noqa: N801  # reads like a function, and costs less than a generator
    """Context manager that shows one running C call to the agent, by `Progress`."""

    __slots__ = ("_call", "_progress")

    def __init__(self, progress: Progress, call: Call) -> None:
        self._progress = progress
        self._call = call

    def __enter__(self) -> None:
        self._progress.begin(self._call)

    def __exit__(self, *_: object) -> None:
        self._progress.end()


def _load(path: str) -> ctypes.CDLL:
    """Open a library as the vendor's own programs do.

    Functions are looked up when they are first called, so one that is never called may
    be absent. The symbols are global, for libraries that libdcmi opens itself. `CDLL`
    alone looks all of them up at once.

    Raises:
        OSError: The library cannot be opened; the text has the reason.
    """
    loader = ctypes.CDLL(None)
    loader.dlopen.argtypes = (ctypes.c_char_p, ctypes.c_int)
    loader.dlopen.restype = ctypes.c_void_p
    loader.dlerror.restype = ctypes.c_char_p
    handle = loader.dlopen(os.fsencode(path), os.RTLD_LAZY | os.RTLD_GLOBAL)
    if handle is None:
        raise OSError((loader.dlerror() or b"not loaded").decode(errors="replace"))
    return ctypes.CDLL(path, handle=handle)


def _within(call: Call, value: int, limit: int) -> int:
    if not 0 <= value < limit:
        raise CallError(call, NONSENSE)
    return int(value)


def _text(raw: bytes) -> str:
    """Return the printable ASCII characters of a stripped text from libdcmi."""
    text = raw.decode("ascii", errors="ignore").strip()
    return "".join(letter for letter in text if letter.isprintable())
