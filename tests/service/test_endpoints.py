import io
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry, Counter

from service.endpoints import Endpoints, parse_listen
from service.settings import SettingsError
from tests.support.servers import asking


async def get(address: str, path: str) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{address}{path}") as answer,
    ):
        return answer.status, await answer.text()


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def test_alive_ready_and_not_ready() -> None:
    reasons: list[str | None] = [None, "pods not listed yet"]
    endpoints = Endpoints(CollectorRegistry(), lambda: reasons.pop(0))

    async with endpoints.serving("127.0.0.1:0") as address:
        assert await get(address, "/healthz") == (200, "ok\n")
        assert await get(address, "/readyz") == (200, "ok\n")
        assert await get(address, "/readyz") == (503, "pods not listed yet\n")
        assert (await get(address, "/other"))[0] == 404


async def test_metrics_are_those_of_the_registry() -> None:
    registry = CollectorRegistry()
    Counter("ascend_test_things", "Things.", registry=registry).inc(3)

    async with Endpoints(registry, lambda: None).serving("127.0.0.1:0") as address:
        code, text = await get(address, "/metrics")

    assert code == 200
    assert "ascend_test_things_total 3.0" in text.splitlines()


async def test_a_process_adds_its_own_routes() -> None:
    async def filter_nodes(request: web.Request) -> web.Response:
        return web.Response(text=str(len(await request.read())))

    large = b"x" * (3 << 20)
    routes = [web.post("/filter", filter_nodes)]

    async with (
        asking(routes) as session,
        session.post("/filter", data=io.BytesIO(large)) as answer,
    ):
        assert await answer.text() == str(len(large))


async def test_the_address_is_in_its_file_while_we_listen(tmp_path: Path) -> None:
    file = tmp_path / "address"
    endpoints = Endpoints(CollectorRegistry(), lambda: None)

    async with endpoints.serving("127.0.0.1:0", file) as address:
        assert file.read_text() == f"{address}\n"
        assert await get(file.read_text().strip(), "/healthz") == (200, "ok\n")
        assert names_in(tmp_path) == ["address"]

    assert names_in(tmp_path) == []


@pytest.mark.parametrize("listen", [":0", "[::]:0"])
async def test_d3_without_a_host_both_families_are_answered(listen: str) -> None:
    endpoints = Endpoints(CollectorRegistry(), lambda: None)

    async with endpoints.serving(listen) as address:
        port = address.rpartition(":")[2]
        assert await get(f"127.0.0.1:{port}", "/healthz") == (200, "ok\n")
        assert await get(f"[::1]:{port}", "/healthz") == (200, "ok\n")
        assert await get(address, "/healthz") == (200, "ok\n")


async def test_d3_one_address_is_listened_on_alone() -> None:
    endpoints = Endpoints(CollectorRegistry(), lambda: None)

    async with endpoints.serving("[::1]:0") as address:
        port = address.rpartition(":")[2]
        assert address == f"[::1]:{port}"
        assert await get(address, "/healthz") == (200, "ok\n")
        with pytest.raises(aiohttp.ClientConnectorError):
            await get(f"127.0.0.1:{port}", "/healthz")


@pytest.mark.parametrize("listen", ["127.0.0.1:{}", ":{}", "[::]:{}"])
async def test_a_port_that_is_taken_on_every_address_is_a_wrong_setting(
    listen: str,
) -> None:
    async with Endpoints(CollectorRegistry(), lambda: None).serving(":0") as address:
        taken = listen.format(address.rpartition(":")[2])
        with pytest.raises(SettingsError, match="expected a free address"):
            async with Endpoints(CollectorRegistry(), lambda: None).serving(taken):
                raise AssertionError("two servers on one port")


async def test_an_address_that_is_taken_is_a_wrong_setting() -> None:
    endpoints = Endpoints(CollectorRegistry(), lambda: None)
    async with endpoints.serving("127.0.0.1:0") as address:
        with pytest.raises(SettingsError, match=f"listen {address}: expected a free"):
            async with Endpoints(CollectorRegistry(), lambda: None).serving(address):
                raise AssertionError("two servers on one port")


@pytest.mark.parametrize(
    ("listen", "parsed"),
    [
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        (":8080", ("", 8080)),
        ("[::1]:65535", ("::1", 65535)),
    ],
)
def test_an_address_is_host_and_port(listen: str, parsed: tuple[str, int]) -> None:
    assert parse_listen(listen) == parsed


@pytest.mark.parametrize("listen", ["", "8080", "host:", "host:http", "host:65536"])
def test_what_is_no_address_is_a_wrong_setting(listen: str) -> None:
    with pytest.raises(SettingsError, match="expected host:port"):
        parse_listen(listen)
