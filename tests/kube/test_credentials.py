import asyncio
import json
import ssl
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kube.client import Client
from kube.credentials import from_settings, from_url, in_cluster, kubeconfig
from kube.errors import CredentialsError, UnreachableError
from service.settings import SettingsError
from tests.service import authorities
from tests.support.clock import Time
from tests.support.programs import run_python

ENVIRON = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with `ca.crt` and `ca.key`, good for 127.0.0.1 and `api.test`."""
    folder = tmp_path_factory.mktemp("authority")
    authorities.make(folder, "ca")
    return folder


@pytest.fixture
def account(tmp_path: Path, authority: Path) -> Path:
    """Return a service-account folder."""
    (tmp_path / "token").write_text("one\n")
    (tmp_path / "ca.crt").write_bytes((authority / "ca.crt").read_bytes())
    return tmp_path


async def test_in_a_pod_all_comes_from_kubernetes(account: Path) -> None:
    credentials = in_cluster(account, ENVIRON)

    assert credentials.server == "https://10.0.0.1:443"
    assert await credentials.token() == "one"
    assert credentials.ssl is not None
    assert credentials.ssl.verify_mode == ssl.CERT_REQUIRED


def test_an_ipv6_server_gets_its_brackets(account: Path) -> None:
    environ = ENVIRON | {"KUBERNETES_SERVICE_HOST": "fd00::1"}

    assert in_cluster(account, environ).server == "https://[fd00::1]:443"


def test_all_that_is_missing_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(CredentialsError) as caught:
        in_cluster(tmp_path / "none", {})

    lines = str(caught.value).splitlines()
    assert [line.split(":")[0] for line in lines] == [
        "environment KUBERNETES_SERVICE_HOST",
        "environment KUBERNETES_SERVICE_PORT",
        f"{tmp_path}/none/token",
        f"{tmp_path}/none/ca.crt",
    ]
    assert lines[2].endswith(
        "expected a readable file, found No such file or directory"
    )


@pytest.mark.parametrize("token", [b"", b"\n", b"a\nb", b"\xff\xfe"])
def test_a_token_that_is_none_is_refused(account: Path, token: bytes) -> None:
    (account / "token").write_bytes(token)

    with pytest.raises(CredentialsError, match="expected a bearer token"):
        in_cluster(account, ENVIRON)


def test_an_authority_that_is_none_is_refused(account: Path) -> None:
    (account / "ca.crt").write_text("not a certificate")

    with pytest.raises(CredentialsError, match="expected PEM certificates"):
        in_cluster(account, ENVIRON)


async def test_the_token_is_read_again_each_minute(account: Path) -> None:
    clock = Time()
    credentials = in_cluster(account, ENVIRON, clock=clock)
    (account / "token").write_text("two\n")

    clock.now_s += 59.0
    assert await credentials.token() == "one"
    clock.now_s += 1.0
    assert await credentials.token() == "two"


async def test_a_token_that_vanishes_stays_until_it_is_back(account: Path) -> None:
    clock = Time()
    credentials = in_cluster(account, ENVIRON, clock=clock)
    (account / "token").unlink()
    clock.now_s += 60.0
    assert await credentials.token() == "one"

    (account / "token").write_text("")
    clock.now_s += 60.0
    assert await credentials.token() == "one"

    (account / "token").write_text("two")
    clock.now_s += 60.0
    assert await credentials.token() == "two"


def test_a_new_authority_is_taken_up_an_old_one_kept(account: Path) -> None:
    clock = Time()
    credentials = in_cluster(account, ENVIRON, clock=clock)
    first = credentials.ssl
    clock.now_s += 60.0
    assert credentials.ssl is first, "the same bytes keep the connections"

    with (account / "ca.crt").open("a") as file:
        file.write("\n")
    clock.now_s += 60.0

    assert credentials.ssl is not first


async def test_a_url_needs_no_token() -> None:
    credentials = from_url("http://127.0.0.1:8001/")

    assert credentials.server == "http://127.0.0.1:8001"
    assert await credentials.token() == ""
    assert credentials.ssl is None


async def test_a_url_with_a_folder_shows_its_token(account: Path) -> None:
    plain = from_url("http://127.0.0.1:8001", account)
    secure = from_url("https://127.0.0.1:8001", account)

    assert (await plain.token(), plain.ssl) == ("one", None)
    assert await secure.token() == "one"
    assert secure.ssl is not None


@pytest.mark.parametrize("url", ["", "127.0.0.1:6443", "ftp://x", "unix:///x"])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(CredentialsError, match=r"expected http://… or https://…"):
        from_url(url)


def test_a_folder_without_a_token_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CredentialsError, match="token: expected a readable file"):
        from_url("http://127.0.0.1:1", tmp_path)


async def answer_ok(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    await writer.drain()
    writer.close()


@pytest.fixture
async def tls_port(authority: Path) -> AsyncIterator[int]:
    """The port of a server on 127.0.0.1 with that certificate, which answers `ok`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority / "ca.crt", authority / "ca.key")
    server = await asyncio.start_server(answer_ok, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_a_server_is_verified_by_our_authority(
    account: Path, tls_port: int
) -> None:
    environ = {
        "KUBERNETES_SERVICE_HOST": "127.0.0.1",
        "KUBERNETES_SERVICE_PORT": str(tls_port),
    }
    async with Client(in_cluster(account, environ)) as client:
        assert await client.request("GET", "/x") == b"ok"
    async with Client(from_url(f"https://127.0.0.1:{tls_port}")) as stranger:
        with pytest.raises(UnreachableError, match="CERTIFICATE_VERIFY_FAILED"):
            await stranger.request("GET", "/x")


def kubeconfig_of(folder: Path, cluster: object, user: object) -> Path:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
    }
    path = folder / "config"
    path.write_text(json.dumps(config))  # JSON is YAML
    return path


async def test_a_kubeconfig_with_a_token(tmp_path: Path) -> None:
    path = kubeconfig_of(
        tmp_path, {"server": "http://127.0.0.1:8001"}, {"token": "abc"}
    )

    credentials = kubeconfig(path)

    assert credentials.server == "http://127.0.0.1:8001"
    assert await credentials.token() == "abc"
    assert credentials.ssl is None


async def test_a_kubeconfig_with_authority_server_name_and_exec_plugin(
    tmp_path: Path, authority: Path, tls_port: int
) -> None:
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": "from-plugin"},
    }
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": ["-c", f"print({json.dumps(credential)!r})"],
        "interactiveMode": "Never",
    }
    cluster = {
        "server": f"https://127.0.0.1:{tls_port}",
        "certificate-authority": str(authority / "ca.crt"),
        "tls-server-name": "api.test",
    }
    credentials = kubeconfig(kubeconfig_of(tmp_path, cluster, {"exec": plugin}))

    assert credentials.server_name == "api.test"
    assert await credentials.token() == "from-plugin"
    credentials.expire()
    assert await credentials.token() == "from-plugin"
    async with Client(credentials) as client:
        assert await client.request("GET", "/x") == b"ok"


async def test_a_kubeconfig_with_client_certificates(
    tmp_path: Path, authority: Path
) -> None:
    user = {
        "client-certificate": str(authority / "ca.crt"),
        "client-key": str(authority / "ca.key"),
    }
    cluster = {"server": "https://127.0.0.1:6443", "insecure-skip-tls-verify": True}

    credentials = kubeconfig(kubeconfig_of(tmp_path, cluster, user))

    assert await credentials.token() == ""
    assert credentials.ssl is not None
    assert credentials.ssl.verify_mode == ssl.CERT_NONE


def test_a_kubeconfig_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "broken").write_text("contexts: 7\n")

    with pytest.raises(CredentialsError, match=r"kubeconfig .*absent"):
        kubeconfig(tmp_path / "absent")
    with pytest.raises(CredentialsError, match=r"kubeconfig .*broken"):
        kubeconfig(tmp_path / "broken")


def test_what_is_said_of_a_kubeconfig_can_be_written_anywhere(tmp_path: Path) -> None:
    path = kubeconfig_of(tmp_path, {"server": "https://host"}, {"token": "t"})
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | {"current-context": "half \ud800"}))

    with pytest.raises(CredentialsError, match=r"half \\ud800") as refused:
        kubeconfig(path)

    assert str(refused.value).encode()


def test_the_heavy_packages_are_not_imported_for_nothing() -> None:
    program = (
        "import sys, kube.client, kube.configmaps, kube.events, kube.kubelet_pods,"
        " kube.nodes, kube.pods, kube.reflector, service.endpoints, service.process\n"
        "print({'kubernetes', 'pydantic', 'requests', 'yaml'} & set(sys.modules))"
    )

    assert run_python("-c", program).stdout == "set()\n"


async def test_settings_name_a_url_before_the_cluster_we_run_in(
    account: Path,
) -> None:
    found = from_settings(
        kubeconfig_file=None,
        api_server="http://127.0.0.1:1",
        service_account_dir=account,
        environ={},
    )

    assert found.server == "http://127.0.0.1:1"


def test_settings_without_any_way_to_the_api_server_say_all_that_is_missing(
    tmp_path: Path,
) -> None:
    with pytest.raises(SettingsError) as refused:
        from_settings(
            kubeconfig_file=None,
            api_server="",
            service_account_dir=tmp_path,
            environ={},
        )

    assert len(refused.value.problems) == 4
