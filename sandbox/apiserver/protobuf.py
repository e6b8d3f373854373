"""Bodies in protobuf, of the few kinds that kubectl sends so.

`kubectl create namespace`, `create configmap`, `create serviceaccount`, `create job`
and `drain` (evictions) send protobuf whatever a server says that it takes. What is read
is a table of fields; what is not in it is left out, and another kind is refused.

Source: the `generated.proto` files of apimachinery and api v0.36.3; of the envelope,
apimachinery's `pkg/runtime/serializer/protobuf`.
"""

import base64
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from sandbox.apiserver.objects import Object

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\0"
_VARINT, _LONG, _BYTES, _SHORT = 0, 1, 2, 5

#: What is made of one field's value: a number, or the bytes of all else.
_Reader: TypeAlias = Callable[[Any], Any]
#: {number of the field: (its name, how to read it)}
_Fields: TypeAlias = Mapping[int, tuple[str, _Reader]]


class ProtobufError(ValueError):
    """The body is no such message."""


class _Many(list[Any]):
    """Values of a repeated field."""


class _Pairs(dict[str, Any]):
    """Entries of a map field."""


def decode(raw: bytes) -> Object:
    """Return the object in a body.

    Raises:
        ProtobufError: It is malformed, or of a kind that is not read.
    """
    if not raw.startswith(_MAGIC):
        raise ProtobufError("it does not begin with k8s")
    envelope = _message(_ENVELOPE, raw[len(_MAGIC) :])
    kind = envelope.get("typeMeta", {})
    fields = _KINDS.get(kind.get("kind", ""))
    if fields is None:
        raise ProtobufError(f"objects of kind {kind.get('kind', '')!r} are not read")
    return {**kind, **_message(fields, envelope.get("raw", b""))}


def _message(fields: _Fields, raw: bytes) -> Object:
    """Read a message; empty texts are what nobody has set."""
    found: Object = {}
    for number, value in _values(raw):
        name, read = fields.get(number, ("", _text))
        if not name:
            continue
        member = read(value)
        if isinstance(member, _Many):
            found.setdefault(name, []).extend(member)
        elif isinstance(member, _Pairs):
            found.setdefault(name, {}).update(member)
        elif member not in ("", b""):
            found[name] = member
    return found


def _values(raw: bytes) -> Iterator[tuple[int, Any]]:
    """Yield number and value of each field."""
    place = 0
    while place < len(raw):
        key, place = _varint(raw, place)
        number, form = key >> 3, key & 7
        if form == _VARINT:
            value, place = _varint(raw, place)
            yield number, value
            continue
        if form == _BYTES:
            length, place = _varint(raw, place)
        elif form in (_LONG, _SHORT):
            length = 8 if form == _LONG else 4
        else:
            raise ProtobufError(f"a field has the unknown form {form}")
        if place + length > len(raw):
            raise ProtobufError("it ends in the middle of a field")
        yield number, raw[place : place + length]
        place += length


def _varint(raw: bytes, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if place >= len(raw):
            raise ProtobufError("it ends in the middle of a number")
        byte = raw[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
    raise ProtobufError("a number is too long")


def _text(value: Any) -> str:
    if not isinstance(value, bytes):
        raise ProtobufError("a number stands where text should")
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise ProtobufError("a text is not UTF-8") from error


def _whole(value: Any) -> int:
    if not isinstance(value, int):
        raise ProtobufError("text stands where a number should")
    # Negative numbers are written as if they were very large.
    return value - 2**64 if value >= 2**63 else value


def _truth(value: Any) -> bool:
    return bool(_whole(value))


def _plain(value: Any) -> bytes:
    return _text(value).encode() if not isinstance(value, bytes) else value


def _encoded(value: Any) -> str:
    return base64.b64encode(_plain(value)).decode()


def _of(fields: _Fields) -> _Reader:
    return lambda value: _message(fields, _plain(value))


def _several(read: _Reader) -> _Reader:
    return lambda value: _Many([read(value)])


def _pairs(read: _Reader) -> _Reader:
    def entry(value: Any) -> _Pairs:
        found = dict(_values(_plain(value)))
        return _Pairs({_text(found.get(1, b"")): read(found.get(2, b""))})

    return entry


_ENVELOPE: _Fields = {
    1: ("typeMeta", _of({1: ("apiVersion", _text), 2: ("kind", _text)})),
    2: ("raw", _plain),
}
_OWNER: _Fields = {
    1: ("kind", _text),
    3: ("name", _text),
    4: ("uid", _text),
    5: ("apiVersion", _text),
    6: ("controller", _truth),
    7: ("blockOwnerDeletion", _truth),
}
_METADATA: _Fields = {
    1: ("name", _text),
    2: ("generateName", _text),
    3: ("namespace", _text),
    5: ("uid", _text),
    6: ("resourceVersion", _text),
    11: ("labels", _pairs(_text)),
    12: ("annotations", _pairs(_text)),
    13: ("ownerReferences", _several(_of(_OWNER))),
    14: ("finalizers", _several(_text)),
}
_OBJECT: _Fields = {1: ("metadata", _of(_METADATA))}
_DELETE_OPTIONS: _Fields = {
    1: ("gracePeriodSeconds", _whole),
    2: ("preconditions", _of({1: ("uid", _text), 2: ("resourceVersion", _text)})),
    4: ("propagationPolicy", _text),
    5: ("dryRun", _several(_text)),
}
#: What `kubectl create job` says of it.
_CONTAINER: _Fields = {
    1: ("name", _text),
    2: ("image", _text),
    3: ("command", _several(_text)),
}
_POD: _Fields = {
    2: ("containers", _several(_of(_CONTAINER))),
    3: ("restartPolicy", _text),
}
_JOB: _Fields = {6: ("template", _of({**_OBJECT, 2: ("spec", _of(_POD))}))}
_KINDS: Mapping[str, _Fields] = {
    "ConfigMap": {
        **_OBJECT,
        2: ("data", _pairs(_text)),
        3: ("binaryData", _pairs(_encoded)),
        4: ("immutable", _truth),
    },
    "DeleteOptions": _DELETE_OPTIONS,
    "Eviction": {**_OBJECT, 2: ("deleteOptions", _of(_DELETE_OPTIONS))},
    "Job": {**_OBJECT, 2: ("spec", _of(_JOB))},
    "Namespace": _OBJECT,
    "ServiceAccount": _OBJECT,
}
