"""Record of a move as text: the content of its ConfigMap, in JSON.

    {"move": {"version": 1, "job": "Job/default/train", "owner": "", "switch": "grace",
              "is_whole": true,
              "texts": ["default", "", "huawei.com/Ascend910", "n9", "n1",
                        "distributed-job", "true"],
              "annotations": [[5, 6]],
              "places": [["8f1c...", "train-0", 0, 1, 0, 0, 2, 3, 255, 4, 0, 1, 0, 1]],
              "history": [[1790000000.0, [[4, 2, 1]]]]}}

A place is UID and name of the pod that goes, then numbers: namespace, role, the two
numbers of its slot, resource, node, mask of chips, node that it leaves, annotations,
whether it is evicted, when it was asked first, or 0, and the line of its controller,
which the first records did not have. Annotations are keys and values in turn. Texts and
annotations that pods share are written once, and referred to by their positions.
`controllers`, where known, are the objects with which the job ends. A long text is
compressed with zlib, in base64. So five thousand pods fit into the 1 MiB of a
ConfigMap.
"""

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from extender.gang.fault_policy import Switch
from extender.rescheduling.moves import Faults, KeptPlace, MoveRecord, Past
from scheduler_core.documents.parsers import (
    boolean,
    converted,
    distinct,
    json_text,
    listing,
    name,
    text,
    versioned,
    whole,
    word,
)
from scheduler_core.documents.reader import Parser, Part, read
from scheduler_core.wire.typed import as_array

T = TypeVar("T")

#: Key of the ConfigMap.
KEY = "move"
_VERSION = 1
#: Bytes from which on a text is compressed; it cannot be read by people any more.
_LONG = 512 << 10
#: Times beyond, more than thirty thousand years, are none.
_MOST_S = 1e12
_SWITCHES = {switch.value: switch for switch in (Switch.GRACE, Switch.FORCE)}
_FIELDS = (
    *("version", "job", "owner", "switch", "is_whole"),
    *("texts", "annotations", "places", "history", "controllers"),
)


def render(record: MoveRecord) -> dict[str, str]:
    """Return the data of the ConfigMap of a record."""
    table = _Table()
    places = [_row(record, place, table) for place in record.places]
    history = [[past.at_s, _faults(past.faults, table)] for past in record.history]
    document = {
        "version": _VERSION,
        "job": record.job,
        "owner": record.owner,
        "switch": record.switch.value,
        "is_whole": record.is_whole,
        "texts": list(table.texts),
        "annotations": list(table.annotations),
        "places": places,
        "history": history,
    }
    if record.controllers:
        document["controllers"] = record.controllers
    written = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    content = written.encode()
    if len(content) > _LONG:
        written = base64.b64encode(zlib.compress(content, level=1)).decode()
    return {KEY: written}


def parse(data: object) -> MoveRecord:
    """Return the record in the data of a ConfigMap.

    Raises:
        DocumentError: The data breaks the format; has all problems.
    """
    content = json_text(versioned(_VERSION, _read))
    if isinstance(data, dict) and isinstance(data.get(KEY), str):
        data = {KEY: _unpack(data[KEY])}
    return read(data, lambda part: part.all_fields().need(KEY, content))


def _unpack(written: str) -> str:
    """Return the JSON of a compressed text; any other text as it is."""
    try:
        return zlib.decompress(base64.b64decode(written, validate=True)).decode()
    except (ValueError, zlib.error):
        return written


@dataclass(frozen=True, slots=True)
class _Table:
    """Texts and annotations, each with its position."""

    texts: dict[str, int] = field(default_factory=dict)
    #: {positions of keys and values in turn: position}
    annotations: dict[tuple[int, ...], int] = field(default_factory=dict)

    def of(self, value: str) -> int:
        return self.texts.setdefault(value, len(self.texts))

    def of_annotations(self, values: Mapping[str, str]) -> int:
        cells = (self.of(cell) for item in sorted(values.items()) for cell in item)
        return self.annotations.setdefault(tuple(cells), len(self.annotations))


def _row(record: MoveRecord, place: KeptPlace, table: _Table) -> list[object]:
    role, (first, second) = place.slot
    return [
        place.uid,
        place.name,
        table.of(place.namespace),
        table.of(role),
        first,
        second,
        table.of(place.resource),
        table.of(place.node),
        place.chips,
        table.of(place.home),
        table.of_annotations(place.annotations),
        int(place.is_evicted),
        record.asked_s.get(place.uid, 0),
        table.of(place.line),
    ]


def _faults(faults: Faults, table: _Table) -> list[list[int]]:
    return [
        [table.of(node), table.of(resource), mask] for node, resource, mask in faults
    ]


def _read(part: Part) -> MoveRecord:
    fields = part.fields(*_FIELDS)
    table = fields.need("texts", listing(text))
    annotations = fields.need("annotations", listing(_annotations(table)))
    rows = _Rows(texts=table, annotations=annotations)
    places = fields.need("places", distinct(rows.place, "pod", lambda row: row[0].uid))
    return MoveRecord(
        job=fields.need("job", name),
        owner=fields.need("owner", text),
        switch=fields.need("switch", word(_SWITCHES)),
        is_whole=fields.need("is_whole", boolean),
        places=tuple(place for place, _ in places),
        asked_s={place.uid: at_s for place, at_s in places if at_s},
        history=fields.need("history", listing(rows.past)),
        controllers=fields.get("controllers", listing(name), ()),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """Reads rows, with the texts and annotations to which they refer."""

    texts: Sequence[str]
    annotations: Sequence[Mapping[str, str]]

    def place(self, part: Part) -> tuple[KeptPlace, float]:
        """Read a place, and when its pod was asked first."""
        cells = _cells(part, 13, 14)
        place = KeptPlace(
            uid=name(cells[0]),
            name=name(cells[1]),
            namespace=self._text(cells[2]),
            slot=(self._text(cells[3]), (_COUNT(cells[4]), _COUNT(cells[5]))),
            line="".join(map(self._text, cells[13:])),
            resource=self._text(cells[6]),
            node=self._text(cells[7]),
            chips=_COUNT(cells[8]),
            home=self._text(cells[9]),
            annotations=_position(self.annotations, "annotations")(cells[10]),
            is_evicted=bool(whole(0, 1)(cells[11])),
        )
        if bool(place.node) is not bool(place.chips):
            raise cells[8].wrong("chips if there is a node, and else 0")
        return place, _SECONDS(cells[12])

    def past(self, part: Part) -> Past:
        """Read faults for which pods went."""
        cells = _cells(part, 2)
        return Past(at_s=_SECONDS(cells[0]), faults=listing(self._fault)(cells[1]))

    def _fault(self, part: Part) -> tuple[str, str, int]:
        node, resource, mask = _cells(part, 3)
        return self._text(node), self._text(resource), whole(1)(mask)

    def _text(self, part: Part) -> str:
        return _position(self.texts, "text")(part)


def _cells(part: Part, *counts: int) -> list[Part]:
    values = part.narrowed(as_array)
    if len(values) not in counts:
        raise part.wrong(f"a list of {counts[-1]} values", len(values))
    return [part.under(number, value) for number, value in enumerate(values)]


def _annotations(table: Sequence[str]) -> Parser[Mapping[str, str]]:
    """Return the parser of keys and values in turn, each a position of a text."""
    cells = listing(_position(table, "text"))

    def read_annotations(part: Part) -> Mapping[str, str]:
        values = cells(part)
        if len(values) % 2:
            raise part.wrong("a value for each key", len(values))
        return dict(zip(values[::2], values[1::2], strict=True))

    return read_annotations


def _position(values: Sequence[T], noun: str) -> Parser[T]:
    """Return the parser of a position: the value that is there."""

    def take(value: object) -> T | None:
        if isinstance(value, bool) or not isinstance(value, int):
            return None
        return values[value] if 0 <= value < len(values) else None

    return converted(take, f"the position of {noun}")


def _take_seconds(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < _MOST_S else None


_COUNT = whole(0)
_SECONDS = converted(_take_seconds, "seconds since the epoch")
