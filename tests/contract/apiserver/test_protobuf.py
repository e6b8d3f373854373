"""Bodies in protobuf, of the commands of kubectl that send nothing else."""

import pytest

from tests.contract.apiserver.client import Api, pod

pytestmark = pytest.mark.contract

_PROTOBUF = "application/vnd.kubernetes.protobuf"


def _field(number: int, value: bytes | str | int) -> bytes:
    """Return one field of a message; all of ours are shorter than 128 bytes."""
    if isinstance(value, int):
        return bytes([number << 3, value])
    raw = value.encode() if isinstance(value, str) else value
    assert len(raw) < 128
    return bytes([number << 3 | 2, len(raw)]) + raw


def _pair(number: int, key: str, value: bytes | str) -> bytes:
    return _field(number, _field(1, key) + _field(2, value))


def _body(api_version: str, kind: str, message: bytes) -> bytes:
    meta = _field(1, api_version) + _field(2, kind)
    return b"k8s\x00" + _field(1, meta) + _field(2, message)


async def test_a_config_map_is_created(api: Api) -> None:
    metadata = _field(1, "a") + _field(2, "") + _pair(11, "label", "x")
    message = (
        _field(1, metadata)
        + _pair(2, "one", "1")
        + _pair(2, "two", "")
        + _pair(3, "three", b"\xff\x00")
        + _field(4, 1)
    )

    code, made = await api.call(
        "POST",
        "configmaps",
        _body("v1", "ConfigMap", message),
        media_type=_PROTOBUF,
    )

    assert code == 201, made
    assert made["metadata"]["labels"] == {"label": "x"}
    assert made["data"] == {"one": "1", "two": ""}
    assert made["binaryData"] == {"three": "/wA="}
    assert made["immutable"] is True


async def test_a_namespace_is_created(api: Api) -> None:
    name = f"{api.namespace}-x"
    message = _field(1, _field(1, name)) + _field(2, b"") + _field(3, b"")

    code, made = await api.call(
        "POST",
        "/api/v1/namespaces",
        _body("v1", "Namespace", message),
        media_type=_PROTOBUF,
    )
    await api.delete(f"/api/v1/namespaces/{name}")

    assert (code, made["metadata"]["name"]) == (201, name)


async def test_a_pod_is_evicted(api: Api) -> None:
    await api.create("pods", pod("p"))
    options = _field(1, 0)
    message = _field(1, _field(1, "p")) + _field(2, options)

    code, status = await api.call(
        "POST",
        "pods/p/eviction",
        _body("policy/v1", "Eviction", message),
        media_type=_PROTOBUF,
    )

    assert (code, status["status"]) == (201, "Success")
    assert await api.names("pods") == []
