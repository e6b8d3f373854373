"""Parse the YAML file that describes a simulated machine. Pure.

    product: atlas-800-training     # key of a row of the product table
    faults:                         # optional; the default level depends on the code
      - {chip: 3, code: "80E01801", level: SeparateNPU}
      - {chip: 0, code: "81078603", level: PreSeparateNPU, network: true}
      - {chip: 2, code: "80E18005", severity: 3}
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

Processes that come and go with containers stand in a second file beside it, if there is
one: `npu.processes.yaml` beside `npu.yaml`. It has `processes` only. A program writes
it, so a chip there that the machine lacks is no error, but left out.

Parsing is strict: a mistyped key would make a faulty chip look healthy. The errors of
one file are reported together.
"""

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from operator import attrgetter
from typing import TypeVar

from agent.devices.board_size import UnknownMachineError, fit_row, order_rows
from agent.devices.reading import (
    ChipFault,
    Level,
    Process,
    Reading,
    VirtualDevice,
)
from scheduler_core.documents.parsers import (
    boolean,
    chip,
    chips,
    distinct,
    listing,
    matching,
    optional,
    record,
    required,
    whole,
    word,
)
from scheduler_core.documents.reader import (
    DocumentError,
    Parser,
    Part,
    WrongError,
    read,
)
from scheduler_core.node.chips import ids_of, mask_of
from scheduler_core.products import table
from scheduler_core.products.table import Product
from service import yaml_files
from service.yaml_files import YamlError

T = TypeVar("T")
OnChip = TypeVar("OnChip", ChipFault, Process, VirtualDevice)

#: {key of a product: (name of its chips, AI cores)}
_CHIPS = {"atlas-800-training": ("910A", 32)}

#: The first and the last number that a driver gives a virtual device.
VIRTUAL_NUMBERS = (100, 1123)

#: Highest number of chips of one server, all product lines together.
_MOST_CHIPS = 128

_PRODUCT = word({product.key: product for product in table.PRODUCTS})
_LEVEL = word({level.value: level for level in Level if level is not Level.NORMAL})

#: Error codes are 32 bits in hexadecimal, some with one leading digit more
#: ("020001002"): MindCluster's faultCode.json.
_CODE = matching(
    re.compile("[0-9A-Fa-f]{8,9}").fullmatch, 'a fault code in quotes, like "80E01801"'
)

#: The driver's severities: warning, minor, major, critical.
_SEVERITY = whole(0, 3, "a severity")

#: Share of a chip that a virtual device has: AI cores, then perhaps CPUs and more.
_KIND = matching(
    re.compile(r"[0-9]+c(\.[0-9a-z.]+)?").fullmatch, "a kind like 4c or 4c.3cpu"
)

#: A device of the host, wherever below /dev it lies.
_DEVICE = matching(
    re.compile(r"(/dev(/[\w-][\w.-]*)+)?").fullmatch, "a device like /dev/null"
)

_PID = required(whole(1, noun="a process id"))

#: Order of a machine's faults, processes and virtual devices; each occurs once.
FAULT_KEY = attrgetter("chip", "code")
_PROCESS_KEY = attrgetter("chip", "pid")
_NUMBER = attrgetter("number")

#: Linux has at most 1,024 NUMA nodes (MAX_NUMNODES).
_NUMA_NODE = whole(0, 1023, "a NUMA node")


def parse(text: str) -> Reading:
    """Parse the YAML text of a simulated machine; return the state of its chips.

    In the result, `since_ms` of each fault is 0. The simulated driver replaces the 0 by
    the start time of the fault.

    Args:
        text: Content of the whole file. An empty text is an error.

    Raises:
        DocumentError: The text has errors.
    """
    return _parse(text, _read_machine)


def parse_processes(text: str) -> tuple[Process, ...]:
    """Parse the YAML text of the second file, which has the processes of containers.

    Raises:
        DocumentError: The text has errors.
    """
    return _parse(text, _read_processes)


def add_processes(reading: Reading, processes: Collection[Process]) -> Reading:
    """Return a machine's reading with further processes on its chips.

    Processes on chips that the machine does not have are left out.
    """
    first, *others = (
        replace(
            line,
            processes=_of_line(
                line.product, sorted({*line.processes, *processes}, key=_PROCESS_KEY)
            ),
        )
        for line in reading.lines
    )
    return replace(first, other_lines=tuple(others))


def _of_line(row: Product, found: Iterable[OnChip]) -> tuple[OnChip, ...]:
    """Return the faults, processes or virtual devices of the chips of one row."""
    return tuple(one for one in found if row.all_chips >> one.chip & 1)


def _parse(text: str, parser: Parser[T]) -> T:
    try:
        document = yaml_files.parse(text)
    except YamlError as error:
        place = (error.position,) if error.position else ()
        problem = f"expected YAML, found {error.problem}"
        raise DocumentError([(place, problem)]) from error
    return read(document, parser, is_null_absent=True)


def _read_processes(part: Part) -> tuple[Process, ...]:
    fields = part.fields("processes")
    use = record(Process, chip=required(whole(0)), pid=_PID)
    return fields.get("processes", distinct(use, "chip and pid", _PROCESS_KEY), ())


def _read_machine(part: Part) -> Reading:
    fields = part.fields(
        *("product", "faults", "processes", "vanished"),
        *("virtual", "stand_in", "numa", "beside"),
    )
    product = fields.need("product", _PRODUCT, None)
    rows: list[Product] = []
    if product is not None:
        rows = [product, *fields.get("beside", _further_lines(product), ())]
    ids = sorted({id_ for row in rows for id_ in ids_of(row.all_chips)}) or None
    of_chip = required(chip(ids))
    fault = record(
        ChipFault,
        chip=of_chip,
        code=required(lambda part: _CODE(part).upper()),
        level=optional(_LEVEL),
        severity=optional(_SEVERITY),
        network=optional(boolean, default=False),
    )
    process = record(Process, chip=of_chip, pid=_PID)
    device = record(
        VirtualDevice,
        chip=of_chip,
        number=required(whole(*VIRTUAL_NUMBERS)),
        kind=required(_KIND),
    )
    faults = fields.get("faults", distinct(fault, "chip and code", FAULT_KEY), ())
    processes = fields.get(
        "processes", distinct(process, "chip and pid", _PROCESS_KEY), ()
    )
    virtual = fields.get("virtual", distinct(device, "number", _NUMBER), ())
    vanished = fields.get("vanished", chips(ids), ())
    stand_in = fields.get("stand_in", _DEVICE, "")
    numa = fields.get("numa", listing(_NUMA_NODE), ())
    if ids is None:
        raise WrongError
    if numa and len(numa) != ids[-1] + 1:
        expected = f"a NUMA node for each of {ids[-1] + 1} chips"
        raise fields.at("numa").report(
            f"expected {expected}, found {len(numa)} of them"
        )
    first, *others = (
        Reading(
            product=row,
            chip_name=_CHIPS.get(row.key, ("", 0))[0],
            ai_core_count=_CHIPS.get(row.key, ("", 0))[1],
            chips=tuple(c for c in ids_of(row.all_chips) if c not in vanished),
            numa=numa[: row.chip_count],
            faults=_of_line(row, sorted(faults, key=attrgetter("chip"))),
            processes=_of_line(row, sorted(processes, key=_PROCESS_KEY)),
            virtual=_of_line(row, sorted(virtual, key=_NUMBER)),
            stand_in=stand_in,
        )
        for row in order_rows(rows)
    )
    return replace(first, other_lines=tuple(others))


def _further_lines(first: Product) -> Callable[[Part], tuple[Product, ...]]:
    """Return the parser of further product lines: their rows in the product table."""
    resources, ids = {first.resource}, set(ids_of(first.all_chips))

    def read_line(part: Part) -> Product:
        fields = part.fields("product", "chips")
        place = fields.at("chips")
        product = fields.need("product", _PRODUCT)
        own = fields.get("chips", chips(range(_MOST_CHIPS)), ())
        if not own:
            raise place.wrong("the ids of its chips")
        if product.resource in resources:
            raise part.wrong("each resource once", product.resource)
        if not ids.isdisjoint(own):
            raise place.wrong("each chip of the machine once", min(ids & set(own)))
        try:
            row = fit_row(product.key, own[-1], (1 << own[-1]) - 1 & ~mask_of(own))
        except UnknownMachineError as error:
            raise place.report(str(error)) from None
        resources.add(row.resource)
        ids.update(own)
        return row

    return listing(read_line)
