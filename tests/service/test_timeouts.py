"""Callers who dribble are cut off, on real sockets; nobody else notices them."""

import asyncio

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from service.endpoints import Endpoints

HEAD = b"POST /filter HTTP/1.1\r\nHost: x\r\n"
#: What somebody sends, and then nothing more.
DRIBBLES = {
    "nothing": b"",
    "half a line": b"POST /fil",
    "half the headers": HEAD + b"Content-Le",
    "half a body": HEAD + b"Content-Length: 100\r\n\r\n{",
    "half a chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\nff\r\n{",
}


async def is_cut(reader: asyncio.StreamReader) -> bool:
    """Wait for the end; whether it came without an answer."""
    try:
        return await asyncio.wait_for(reader.read(), 10) == b""
    except ConnectionResetError:
        return True


async def echo(request: web.Request) -> web.Response:
    return web.Response(body=await request.read())


def endpoints(*routes: web.RouteDef) -> Endpoints:
    return Endpoints(
        CollectorRegistry(),
        lambda: None,
        routes=[web.post("/filter", echo), *routes],
        request_timeout_s=0.2,
    )


@pytest.mark.parametrize("name", DRIBBLES)
async def test_who_dribbles_is_cut_off(name: str) -> None:
    found = endpoints()
    async with found.serving("127.0.0.1:0") as address:
        host, _, port = address.partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(DRIBBLES[name])

        assert await is_cut(reader)
        assert found.request_timeouts.closed_count == 1
        writer.close()


async def test_a_hundred_of_them_cost_others_nothing() -> None:
    found = endpoints()
    async with found.serving("127.0.0.1:0") as address:
        host, _, port = address.partition(":")
        slow = [await asyncio.open_connection(host, int(port)) for _ in range(100)]
        for _, writer in slow:
            writer.write(DRIBBLES["half a body"])

        async with (
            aiohttp.ClientSession() as session,
            session.post(f"http://{address}/filter", data=b"{}") as answer,
        ):
            assert await answer.read() == b"{}"

        assert all(await asyncio.gather(*(is_cut(reader) for reader, _ in slow)))
        for _, writer in slow:
            writer.close()


async def test_an_answer_may_take_longer_than_a_question() -> None:
    """Binds of a job wait for each other."""
    go_on = asyncio.Event()

    async def bind(request: web.Request) -> web.Response:
        body = await request.read()
        await go_on.wait()
        return web.Response(body=body)

    found = endpoints(web.post("/bind", bind))
    async with (
        found.serving("127.0.0.1:0") as address,
        aiohttp.ClientSession() as session,
    ):
        held = asyncio.create_task(session.post(f"http://{address}/bind", data=b"b"))
        host, _, port = address.partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        assert await is_cut(reader)  # so long has the answer taken already
        writer.close()
        go_on.set()

        async with await held as answer:
            assert await answer.read() == b"b"
        # and the same connection may be silent until the next question
        async with session.post(f"http://{address}/filter", data=b"f") as answer:
            assert await answer.read() == b"f"
        assert found.request_timeouts.closed_count == 1
