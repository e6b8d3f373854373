"""Parse the YAML file that describes a simulated machine. Pure.

    product: atlas-800-training     # key of a row of the product table
    faults:                         # optional; the default level depends on the code
      - {chip: 3, code: "80E01801", level: SeparateNPU}
      - {chip: 0, code: "81078603", level: PreSeparateNPU, network: true}
      - {chip: 2, code: "80E18005", severity: 3}
    unreachable: [4]                # optional: the driver's check of the network fails
    processes:                      # optional: processes on chips, with their pids
      - {chip: 0, pid: 4711}
    vanished: [5]                   # optional: chips that no longer answer
    virtual:                        # optional: virtual devices, the parts of chips
      - {chip: 7, number: 100, kind: 4c.3cpu}
    stand_in: /dev/null             # optional: what containers get for /dev/davinciN
    numa: [0,0,0,0,1,1,1,1,0,1]     # optional: NUMA node of each chip
    beside:                         # optional: further product lines; two chips
      - product: atlas-310p         # of the machine never have the same id
        chips: [8, 9]

Parsing is strict: a mistyped key would make a faulty chip look healthy. The errors of
one file are reported together, but at most 100 of them.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeGuard, TypeVar

from agent.devices.board_size import UnknownMachineError, fit_row, order_rows
from agent.devices.driver import Flaw
from agent.devices.reading import (
    ChipFault,
    Level,
    Process,
    Reading,
    VirtualDevice,
)
from scheduler_core.node import chips as chip_sets
from scheduler_core.products import table
from scheduler_core.products.table import Product
from service import yaml_files
from service.quote import quote_key, quote_value
from service.yaml_files import YamlError

#: Error codes are 32 bits in hexadecimal, some with one leading digit more
#: ("020001002"): MindCluster's faultCode.json.
_CODE = re.compile(r"[0-9A-Fa-f]{8,9}")

#: A device of the host, wherever below /dev it lies.
_DEVICE = re.compile(r"/dev(/[\w-][\w.-]*)+")

#: {key of a product: (name of its chips, AI cores)}
_CHIPS = {"atlas-800-training": ("910A", 32)}

_KEYS = (
    *("product", "faults", "unreachable", "processes", "vanished"),
    *("virtual", "stand_in", "numa", "beside"),
)
_FAULT_KEYS = ("chip", "code", "level", "severity", "network")

#: The driver's severities: warning, minor, major, critical.
_CRITICAL = 3

#: Share of a chip that a virtual device has: AI cores, then perhaps CPUs and more.
_KIND = re.compile(r"[0-9]+c(\.[0-9a-z.]+)?")

#: The first and the last number that a driver gives a virtual device.
VIRTUAL_NUMBERS = (100, 1123)

#: Highest number of chips of one server, all product lines together.
_MOST_CHIPS = 128

#: Linux has at most 1,024 NUMA nodes (MAX_NUMNODES).
_LAST_NUMA_NODE = 1023

#: Highest number of reported flaws of one file.
_MOST_FLAWS = 100

T = TypeVar("T")


class FlawsError(ValueError):
    """The YAML text describes no simulated machine; `flaws` has the errors in it."""

    def __init__(self, flaws: tuple[Flaw, ...]) -> None:
        self.flaws = flaws
        super().__init__("; ".join(str(flaw) for flaw in flaws))


def parse(text: str) -> Reading:
    """Parse the YAML text of a simulated machine; return the state of its chips.

    In the result, `since_ms` of each fault is 0. The simulated driver replaces the 0 by
    the start time of the fault.

    Args:
        text: Content of the whole file. An empty text is an error.

    Raises:
        FlawsError: The text has errors. If they are more than 100, `FlawsError.flaws`
            has the first 100 and the number of the others.
    """
    reader = _Reader()
    reading = reader.reading(_load(text))
    unreported = reader.count - len(reader.flaws)
    if unreported:
        reader.flaws.append(
            Flaw(at="", expected="no more flaws", found=f"{unreported} more")
        )
    if reading is None or reader.flaws:
        raise FlawsError(tuple(reader.flaws))
    return reading


def _load(text: str) -> object:
    if not text.strip():
        raise FlawsError(
            (Flaw(at="", expected="a YAML mapping", found="an empty file"),)
        )
    try:
        return yaml_files.parse(text)
    except YamlError as error:
        flaw = Flaw(at=error.position, expected="YAML", found=error.problem)
        raise FlawsError((flaw,)) from error


class _Reader:
    """Parser of one YAML file of a simulated machine, with the errors found so far."""

    def __init__(self) -> None:
        self.flaws: list[Flaw] = []
        #: Number of flaws, including those above _MOST_FLAWS.
        self.count = 0
        #: Ids of all chips, ascending; None until the product is known.
        self._chips: tuple[int, ...] | None = None

    def reading(self, document: object) -> Reading | None:
        fields = self._mapping("", document, _KEYS)
        if fields is None:
            return None
        product = self._product("product", fields.get("product"))
        rows = () if product is None else self._rows(product, fields.get("beside"))
        if product is not None:
            all_ids = {c for row in rows for c in chip_sets.ids_of(row.all_chips)}
            self._chips = tuple(sorted(all_ids))
        faults = self._list("faults", fields.get("faults"), self._fault)
        unreachable = self._list("unreachable", fields.get("unreachable"), self._chip)
        processes = self._list("processes", fields.get("processes"), self._process)
        vanished = self._list("vanished", fields.get("vanished"), self._chip)
        stand_in = self._device(fields.get("stand_in", ""))
        self._distinct("faults", [(f.chip, f.code) for f in faults], "chip and code")
        self._distinct("processes", [(p.chip, p.pid) for p in processes], "chip, pid")
        self._distinct("vanished", vanished, "chip")
        virtual = self._list("virtual", fields.get("virtual"), self._virtual)
        self._distinct("virtual", [v.number for v in virtual], "number")
        self._distinct("unreachable", unreachable, "chip")
        numa = self._numa(fields.get("numa"))
        if product is None:
            return None
        first, *others = (
            _of_line(
                row,
                Reading(
                    product=row,
                    chips=tuple(c for c in self._chips or () if c not in vanished),
                    numa=numa,
                    faults=tuple(sorted(faults, key=lambda fault: fault.chip)),
                    unreachable=tuple(sorted(unreachable)),
                    processes=tuple(
                        sorted(processes, key=lambda use: (use.chip, use.pid))
                    ),
                    virtual=tuple(sorted(virtual, key=lambda device: device.number)),
                    stand_in=stand_in,
                ),
            )
            for row in rows
        )
        return replace(first, other_lines=tuple(others))

    def _product(self, at: str, value: object) -> Product | None:
        keys = {product.key: product for product in table.PRODUCTS}
        if isinstance(value, str) and value in keys:
            return keys[value]
        self._flaw(at, f"one of {', '.join(sorted(keys))}", value)
        return None

    def _rows(self, first: Product, value: object) -> tuple[Product, ...]:
        """Return the product rows of the simulated machine, ordered by number of chips.

        Args:
            first: Row that the YAML key `product` names.
            value: Value of the YAML key `beside`: a list of further product lines, each
                with a product and chip ids.
        """
        rows = [first, *self._list("beside", value, self._further_line)]
        self._distinct("beside", [row.resource for row in rows], "resource")
        all_ids = [chip for row in rows for chip in chip_sets.ids_of(row.all_chips)]
        self._distinct("beside", all_ids, "chip")
        return order_rows(rows)

    def _further_line(self, at: str, value: object) -> Product | None:
        fields = self._mapping(at, value, ("product", "chips"))
        if fields is None:
            return None
        product = self._product(f"{at}.product", fields.get("product"))
        chips = self._list(f"{at}.chips", fields.get("chips"), self._id)
        self._distinct(f"{at}.chips", chips, "chip")
        if product is None or not chips:
            if not chips:
                self._flaw(f"{at}.chips", "the ids of its chips", None)
            return None
        mask = chip_sets.mask_of(chips)
        try:
            row = fit_row(product.key, max(chips), (1 << max(chips)) - 1 & ~mask)
        except UnknownMachineError as error:
            self._add(Flaw(at=f"{at}.chips", expected="its ids", found=str(error)))
            return None
        return row

    def _id(self, at: str, value: object) -> int | None:
        if _is_int(value) and 0 <= value < _MOST_CHIPS:
            return value
        self._flaw(at, f"a chip number below {_MOST_CHIPS}", value)
        return None

    def _device(self, value: object) -> str:
        if value == "" or (isinstance(value, str) and _DEVICE.fullmatch(value)):
            return value
        self._flaw("stand_in", "a device like /dev/null", value)
        return ""

    def _fault(self, at: str, value: object) -> ChipFault | None:
        count_before = self.count
        fields = self._mapping(at, value, _FAULT_KEYS)
        if fields is None:
            return None
        chip = self._chip(f"{at}.chip", fields.get("chip"))
        code = self._code(f"{at}.code", fields.get("code"))
        level = self._level(f"{at}.level", fields.get("level"))
        severity = self._severity(f"{at}.severity", fields.get("severity"))
        network = fields.get("network", False)
        if not isinstance(network, bool):
            self._flaw(f"{at}.network", "true or false", network)
        if self.count > count_before or chip is None:
            return None
        return ChipFault(
            chip=chip,
            code=code,
            level=level,
            severity=severity,
            network=network is True,
        )

    def _process(self, at: str, value: object) -> Process | None:
        fields = self._mapping(at, value, ("chip", "pid"))
        if fields is None:
            return None
        chip = self._chip(f"{at}.chip", fields.get("chip"))
        pid = fields.get("pid")
        if not _is_int(pid) or pid < 1:
            self._flaw(f"{at}.pid", "a process id, 1 or more", pid)
            return None
        return None if chip is None else Process(chip=chip, pid=pid)

    def _virtual(self, at: str, value: object) -> VirtualDevice | None:
        fields = self._mapping(at, value, ("chip", "number", "kind"))
        if fields is None:
            return None
        chip = self._chip(f"{at}.chip", fields.get("chip"))
        number, kind = fields.get("number"), fields.get("kind")
        first, last = VIRTUAL_NUMBERS
        if not _is_int(number) or not first <= number <= last:
            self._flaw(f"{at}.number", f"a number, {first} to {last}", number)
            return None
        if not isinstance(kind, str) or not _KIND.fullmatch(kind):
            self._flaw(f"{at}.kind", "a kind like 4c or 4c.3cpu", kind)
            return None
        return (
            None if chip is None else VirtualDevice(chip=chip, number=number, kind=kind)
        )

    def _numa(self, value: object) -> tuple[int, ...]:
        nodes = self._list("numa", value, self._numa_node)
        count = None if self._chips is None else self._chips[-1] + 1
        if nodes and count not in (None, len(nodes)):
            actual = f"{len(nodes)} of them"
            expected = f"a NUMA node for each of {count} chips"
            self._add(Flaw(at="numa", expected=expected, found=actual))
        return tuple(nodes)

    def _numa_node(self, at: str, value: object) -> int | None:
        if _is_int(value) and 0 <= value <= _LAST_NUMA_NODE:
            return value
        self._flaw(at, f"a NUMA node, 0 to {_LAST_NUMA_NODE}", value)
        return None

    def _chip(self, at: str, value: object) -> int | None:
        chips = self._chips
        if _is_int(value) and (value >= 0 if chips is None else value in chips):
            return value
        self._flaw(at, "a chip number" if chips is None else _any_of(chips), value)
        return None

    def _code(self, at: str, value: object) -> str:
        if isinstance(value, str) and _CODE.fullmatch(value):
            return value.upper()
        self._flaw(at, 'a fault code in quotes, like "80E01801"', value)
        return ""

    def _level(self, at: str, value: object) -> Level | None:
        levels = {level.value: level for level in Level if level is not Level.NORMAL}
        if value is None:
            return None
        if isinstance(value, str) and value in levels:
            return levels[value]
        self._flaw(at, f"one of {', '.join(levels)}", value)
        return None

    def _severity(self, at: str, value: object) -> int | None:
        if value is None or (_is_int(value) and 0 <= value <= _CRITICAL):
            return value
        self._flaw(at, f"a severity, 0 to {_CRITICAL}", value)
        return None

    def _mapping(
        self, at: str, value: object, keys: tuple[str, ...]
    ) -> dict[str, object] | None:
        if not isinstance(value, dict):
            self._flaw(at, f"a mapping with the keys {', '.join(keys)}", value)
            return None
        for key in value:
            if key not in keys:
                name = quote_key(key)
                place = f"{at}.{name}" if at else name
                expected = f"one of the keys {', '.join(keys)}"
                self._add(Flaw(at=place, expected=expected, found=quote_value(key)))
        return {key: value[key] for key in keys if key in value}

    def _list(
        self, at: str, value: object, item: Callable[[str, object], T | None]
    ) -> list[T]:
        if value is None:
            return []
        if not isinstance(value, list):
            self._flaw(at, "a list", value)
            return []
        items = [item(f"{at}[{index}]", element) for index, element in enumerate(value)]
        return [element for element in items if element is not None]

    def _distinct(self, at: str, keys: list[Any], what_is_unique: str) -> None:
        earlier = set()
        for key in keys:
            if key in earlier:
                self._flaw(at, f"each {what_is_unique} once", key)
            earlier.add(key)

    def _flaw(self, at: str, expected: str, value: object) -> None:
        found = "nothing" if value is None else quote_value(value)
        self._add(Flaw(at=at, expected=expected, found=found))

    def _add(self, flaw: Flaw) -> None:
        """Count an error of the YAML file; store only the first `_MOST_FLAWS`."""
        self.count += 1
        if self.count <= _MOST_FLAWS:
            self.flaws.append(flaw)


def _of_line(row: Product, reading: Reading) -> Reading:
    """Return the part of `reading` that concerns the chips of `row`.

    Args:
        row: Row of one product line of the simulated machine.
        reading: State of all chips of the machine, of every product line.
    """
    line_chips = set(chip_sets.ids_of(row.all_chips))
    chip_name, ai_core_count = _CHIPS.get(row.key, ("", 0))
    return replace(
        reading,
        chip_name=chip_name,
        ai_core_count=ai_core_count,
        chips=tuple(chip for chip in reading.chips if chip in line_chips),
        numa=reading.numa[: row.chip_count],
        faults=tuple(fault for fault in reading.faults if fault.chip in line_chips),
        unreachable=tuple(chip for chip in reading.unreachable if chip in line_chips),
        processes=tuple(use for use in reading.processes if use.chip in line_chips),
        virtual=tuple(
            device for device in reading.virtual if device.chip in line_chips
        ),
    )


def _any_of(chips: tuple[int, ...]) -> str:
    if chips == tuple(range(len(chips))):
        return f"a chip from 0 to {chips[-1]}"
    return f"one of the chips {', '.join(map(str, chips))}"


def _is_int(value: object) -> TypeGuard[int]:
    # to Python True is the number 1; in the file it is not
    return isinstance(value, int) and not isinstance(value, bool)
