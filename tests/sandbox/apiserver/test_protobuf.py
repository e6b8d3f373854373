import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.apiserver import protobuf
from sandbox.apiserver.protobuf import ProtobufError, decode

_META = b"\x0a\x0f\x0a\x02v1\x12\x09ConfigMap"


def _config(message: bytes) -> bytes:
    return b"k8s\0" + _META + bytes([0x12, len(message)]) + message


@given(st.binary(max_size=60))
def test_any_bytes_are_an_object_or_an_error(raw: bytes) -> None:
    for body in (raw, b"k8s\0" + raw, _config(raw)):
        with contextlib.suppress(ProtobufError):
            assert isinstance(decode(body), dict)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "it does not begin with k8s"),
        (b"{}", "it does not begin with k8s"),
        (b"k8s\0", "objects of kind '' are not read"),
        (b"k8s\0\x0a\x05\x12\x03Pod", "objects of kind 'Pod' are not read"),
        (b"k8s\0\x0a", "it ends in the middle of a number"),
        (b"k8s\0\x0a\x7f", "it ends in the middle of a field"),
        (b"k8s\0" + b"\xff" * 11, "a number is too long"),
        (b"k8s\0\x0b", "a field has the unknown form 3"),
        (_config(b"\x0a\x02\x08\x01"), "a number stands where text should"),
        (_config(b"\x0a\x03\x0a\x01\xff"), "a text is not UTF-8"),
        (_config(b"\x22\x00"), "text stands where a number should"),
    ],
)
def test_what_is_wrong_is_said(body: bytes, said: str) -> None:
    with pytest.raises(ProtobufError, match=said):
        decode(body)


def test_fields_that_are_not_known_are_left_out() -> None:
    # selfLink, a time, and two numbers of fixed length
    rest = b"\x22\x01x\x42\x02\x08\x01" + b"\x79" + b"\0" * 8 + b"\x7d" + b"\0" * 4
    metadata = b"\x0a\x01a" + rest

    assert decode(_config(b"\x0a" + bytes([len(metadata)]) + metadata)) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a"},
    }


def test_owners_finalizers_and_negative_numbers_are_read() -> None:
    owner = b"\x0a\x03Job\x1a\x01j\x22\x01u\x2a\x02v1\x30\x01"
    metadata = b"\x6a" + bytes([len(owner)]) + owner + b"\x72\x03e/a" + b"\x72\x03e/b"
    message = b"\x0a" + bytes([len(metadata)]) + metadata

    assert decode(_config(message))["metadata"] == {
        "ownerReferences": [
            {
                "kind": "Job",
                "name": "j",
                "uid": "u",
                "apiVersion": "v1",
                "controller": True,
            }
        ],
        "finalizers": ["e/a", "e/b"],
    }
    assert protobuf._whole(2**64 - 1) == -1
