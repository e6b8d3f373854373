import asyncio
import socket
from pathlib import Path

import pytest

from kube import client as client_module
from kube.client import Client, object_path, resource_of, retry_after_s
from kube.credentials import Credentials, from_url
from kube.errors import (
    ApiError,
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidError,
    MalformedError,
    NotFoundError,
    SilentError,
    TooManyRequestsError,
    UnauthorizedError,
    UnreachableError,
)
from tests.kube.server import Answer, Request, Script, Watch, client_of, refusal


async def test_a_request_has_method_path_query_and_body(script: Script) -> None:
    script.will(Answer(status=201, raw=b"made"))

    body = await script.client.request(
        "POST",
        object_path("pods", "a b/c", namespace="n"),
        params={"dryRun": "All", "labelSelector": "a=b,c in (d)"},
        body=b'{"x": 1}',
        content_type="application/merge-patch+json",
    )

    assert body == b"made"
    assert script.requests == [
        Request(
            method="POST",
            path="/api/v1/namespaces/n/pods/a b/c",
            query={"dryRun": "All", "labelSelector": "a=b,c in (d)"},
            body={"x": 1},
        )
    ]
    sent = script.headers[0]
    assert sent["Content-Type"] == "application/merge-patch+json"
    assert sent["User-Agent"] == "ascend-affinity"
    assert "Authorization" not in sent


async def test_one_connection_serves_many_requests(script: Script) -> None:
    script.will(*[Answer()] * 4, refusal(404, "NotFound"), Answer())

    for _ in range(4):
        await script.client.request("GET", "/api/v1/pods")
    with pytest.raises(NotFoundError):
        await script.client.request("GET", "/api/v1/pods/x")
    await script.client.request("GET", "/api/v1/pods")

    assert len(script.connections) == 1


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (401, UnauthorizedError),
        (403, ForbiddenError),
        (404, NotFoundError),
        (409, ConflictError),
        (410, GoneError),
        (422, InvalidError),
        (429, TooManyRequestsError),
        (500, ApiError),
        (503, ApiError),
    ],
)
async def test_each_refusal_has_its_error(
    script: Script, code: int, kind: type[ApiError]
) -> None:
    script.will(refusal(code, "SomeReason", "some sentence", **{"Retry-After": "3"}))

    with pytest.raises(ApiError) as caught:
        await script.client.request("GET", "/api/v1/pods")

    error = caught.value
    assert type(error) is kind
    assert (error.status, error.reason, error.message, error.retry_after_s) == (
        code,
        "SomeReason",
        "some sentence",
        3.0,
    )
    assert str(error) == f"GET /api/v1/pods: {code} SomeReason some sentence"


async def test_a_proxys_page_is_shown_by_its_beginning(script: Script) -> None:
    script.will(Answer(status=502, raw=b"<html>Bad Gateway" + b"!" * 10_000))

    with pytest.raises(ApiError) as caught:
        await script.client.request("GET", "/api/v1/pods")

    assert caught.value.message == "<html>Bad Gateway" + "!" * 483


async def test_a_redirect_is_not_followed(script: Script) -> None:
    script.will(Answer(status=307, raw=b"", headers={"Location": script.url}))

    with pytest.raises(ApiError):
        await script.client.request("GET", "/api/v1/pods")

    assert len(script.requests) == 1


async def test_no_answer_in_time_is_unreachable(script: Script) -> None:
    script.will(Answer(after_s=30.0))

    with pytest.raises(UnreachableError, match="no answer in time"):
        await script.client.request("GET", "/api/v1/pods", timeout_s=0.02)


async def test_a_closed_port_is_unreachable() -> None:
    async with Client(Credentials("http://127.0.0.1:1")) as client:
        with pytest.raises(UnreachableError, match=r"^GET /x: Client"):
            await client.request("GET", "/x")


async def test_garbage_instead_of_http_is_unreachable() -> None:
    async def babble(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9\r\n")
        writer.close()

    server = await asyncio.start_server(babble, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, Client(Credentials(f"http://127.0.0.1:{port}")) as client:
        with pytest.raises(UnreachableError):
            await client.request("GET", "/x")


async def test_an_answer_has_a_largest(script: Script) -> None:
    script.will(Answer(raw=b"x" * 1000))
    async with script.client.stream("/x", params={}) as stream:
        with pytest.raises(MalformedError, match="more than 999 bytes"):
            await client_module._read_bounded(stream._response, 999, "GET /x")


async def test_requests_are_counted_by_verb_resource_and_code(script: Script) -> None:
    counted: list[tuple[str, str, int]] = []
    script.will(Answer(), refusal(409, "Conflict"), Watch(), refusal(410, "Gone"))
    async with Client(
        Credentials(script.url), count=lambda *one: counted.append(one)
    ) as client:
        await client.request("GET", "/api/v1/nodes/n1")
        with pytest.raises(ConflictError):
            await client.request("POST", "/api/v1/namespaces/a/pods/b/binding")
        async with client.stream("/api/v1/pods", params={}) as stream:
            assert await stream.read(1.0) == b""
        with pytest.raises(GoneError):
            async with client.stream("/api/v1/pods", params={}):
                raise AssertionError("a refused stream was opened")
    async with Client(
        Credentials("http://127.0.0.1:1"), count=lambda *one: counted.append(one)
    ) as client:
        with pytest.raises(UnreachableError):
            await client.request("GET", "/api/v1/pods")

    assert counted == [
        ("GET", "nodes", 200),
        ("POST", "pods/binding", 409),
        ("WATCH", "pods", 200),
        ("WATCH", "pods", 410),
        ("GET", "pods", 0),
    ]


async def test_a_streams_bytes_come_as_they_are_sent(script: Script) -> None:
    script.will(Watch(chunks=(b"one",), end="silence"))

    async with script.client.stream("/x", params={"watch": "1"}) as stream:
        assert await stream.read(1.0) == b"one"
        with pytest.raises(SilentError):
            await stream.read(0.02)


async def test_leaving_a_stream_closes_its_connection(script: Script) -> None:
    async with client_of(script) as client:
        script.will(Watch(end="silence"), Answer())
        async with client.stream("/x", params={}):
            await script.silent.wait()
        await client.request("GET", "/y")

    assert len(script.connections) == 2


async def test_the_token_is_shown_and_read_again_after_401(
    script: Script, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("first\n")
    script.will(Answer(), refusal(401, "Unauthorized"), Answer())
    async with Client(from_url(script.url, tmp_path)) as client:
        await client.request("GET", "/a")
        (tmp_path / "token").write_text("second\n")
        with pytest.raises(UnauthorizedError):
            await client.request("GET", "/b")
        await client.request("GET", "/c")

    shown = [headers["Authorization"] for headers in script.headers]
    assert shown == ["Bearer first", "Bearer first", "Bearer second"]


async def test_a_client_outside_its_context_says_so() -> None:
    client = Client(Credentials("http://127.0.0.1:1"))

    with pytest.raises(RuntimeError, match="outside its `async with`"):
        await client.request("GET", "/x")


async def test_cancelling_a_request_leaves_the_client_usable(script: Script) -> None:
    script.will(Answer(after_s=30.0), Answer(raw=b"ok"))
    task = asyncio.create_task(script.client.request("GET", "/slow"))
    await script.asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert await script.client.request("GET", "/x") == b"ok"


async def test_a_server_that_accepts_and_says_nothing_times_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"http://127.0.0.1:{mute.getsockname()[1]}"
        async with Client(Credentials(url)) as client:
            with pytest.raises(UnreachableError):
                await client.request("GET", "/x", timeout_s=0.02)


@pytest.mark.parametrize(
    ("path", "resource"),
    [
        ("/api/v1/pods", "pods"),
        ("/api/v1/nodes/n1", "nodes"),
        ("/api/v1/nodes/n1/status", "nodes/status"),
        ("/api/v1/namespaces/a/pods", "pods"),
        ("/api/v1/namespaces/a/pods/b", "pods"),
        ("/api/v1/namespaces/a/pods/b/binding", "pods/binding"),
        ("/api/v1/namespaces/a", "namespaces"),
        ("/apis/coordination.k8s.io/v1/namespaces/a/leases/l", "leases"),
        ("/pods", "other"),
        ("/", "other"),
    ],
)
def test_a_path_names_its_resource(path: str, resource: str) -> None:
    assert resource_of(path) == resource


@pytest.mark.parametrize(
    ("header", "seconds"),
    [(None, 0), ("5", 5), ("0", 0), ("Wed, 21 Oct 2026", 0), ("-3", 0), ("1.5", 0)],
)
def test_retry_after_is_whole_seconds(header: str | None, seconds: float) -> None:
    assert retry_after_s(header) == seconds
