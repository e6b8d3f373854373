"""What the agent and the extender are told by goes away: extender, API server, etcd."""

import http.client
import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.commands import until
from tests.e2e.faults import witness
from tests.e2e.faults.conftest import Try
from tests.e2e.faults.trial import Trial
from tests.e2e.places import BETWEEN_PORT, EXTENDER_PORT

pytestmark = pytest.mark.faults

_OUTAGE_S = 60
_TIMEOUT_S = 30.0


class Between:
    """Stands between scheduler and extender, so that a fault meets a certain call.

    Passes every call on. Protects what is done at which call, each once.
    """

    def __init__(self, cluster: Cluster) -> None:
        """Nothing is passed on until it is entered."""
        self._cluster = cluster
        self._server = ThreadingHTTPServer(
            (cluster.address, BETWEEN_PORT), _handler(self)
        )
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever)
        #: (verb, pod): what is done before the call is passed on
        self.before: dict[tuple[str, str], Callable[[], None]] = {}
        #: what is done when it has been answered, and before the answer goes back
        self.after: dict[tuple[str, str], Callable[[], None]] = {}

    def __enter__(self) -> Self:
        """Have the scheduler call us."""
        self._thread.start()
        self._cluster.use_extender(f"http://{self._cluster.address}:{BETWEEN_PORT}")
        return self

    def __exit__(self, *_: object) -> None:
        """Have it call the extender again."""
        try:
            port = EXTENDER_PORT
            self._cluster.use_extender(f"http://{self._cluster.address}:{port}")
        finally:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()

    def pass_on(self, verb: str, body: bytes) -> tuple[int, bytes]:
        """Pass a call on and return the answer; 502 when there is none."""
        key = (verb, _pod(json.loads(body)))
        self.before.pop(key, _nothing)()
        there = http.client.HTTPConnection(
            self._cluster.address, EXTENDER_PORT, timeout=_TIMEOUT_S
        )
        try:
            headers = {"Content-Type": "application/json"}
            there.request("POST", f"/{verb}", body, headers)
            answer = there.getresponse()
            status, text = answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            return 502, str(error).encode()
        finally:
            there.close()
        self.after.pop(key, _nothing)()
        return status, text


def _nothing() -> None:
    pass


def _pod(document: dict[str, Any]) -> str:
    name = document.get("PodName") or document.get("Pod", {})["metadata"]["name"]
    return str(name)


def _handler(between: Between) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status, text = between.pass_on(self.path.strip("/"), body)
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    return Handler


def test_the_extender_dies_between_filter_and_bind(
    attempt: Try, cluster: Cluster
) -> None:
    with (
        Between(cluster) as between,
        attempt("extender, between filter and bind", "kill -9") as this,
    ):
        killed = threading.Event()

        def kill() -> None:
            this.extender.kill()
            killed.set()

        between.after["filter", "cut-off"] = kill
        uid = this.victim("cut-off")
        assert killed.wait(120)

        this.recover()
        this.wait_succeeded(uid)


def test_the_extender_dies_with_a_bind_in_flight(
    attempt: Try, cluster: Cluster
) -> None:
    with (
        Between(cluster) as between,
        attempt(
            "extender, bind in flight", "API server frozen, kill -9, API server thawed"
        ) as this,
    ):
        done = threading.Event()
        apiserver = cluster.programs.apiserver

        def kill() -> None:
            this.extender.kill()
            time.sleep(0.3)
            apiserver.thaw()
            done.set()

        def begin() -> None:
            apiserver.freeze()
            threading.Timer(0.5, kill).start()

        between.before["bind", "cut-off"] = begin
        uid = this.victim("cut-off")
        assert done.wait(120)

        this.recover()
        this.wait_succeeded(uid)


@pytest.mark.parametrize("how", ["frozen", "killed"])
def test_the_api_server_is_away(attempt: Try, cluster: Cluster, how: str) -> None:
    apiserver = cluster.programs.apiserver
    words = {"frozen": "SIGSTOP", "killed": "kill -9"}
    with attempt("API server", f"{words[how]}, away for {_OUTAGE_S} s") as this:
        if how == "frozen":
            apiserver.freeze()
            time.sleep(_OUTAGE_S)
            apiserver.thaw()
        else:
            apiserver.kill()
            time.sleep(_OUTAGE_S)
            back = time.monotonic()
            apiserver.start()
            # As all its clients it tries less and less often, at last each 30 s.
            this.agent.wait_connected(back)
            this.remark = f"connected again after {time.monotonic() - back:.0f} s"
        until(apiserver.is_ready, "API server ready", within_s=180)
        _wait_kubelet_connected(this)


def _wait_kubelet_connected(this: Trial) -> None:
    """Wait until scheduler and kubelet hear of a pod, and say what became of it.

    Their watches try again after a minute at the longest.
    """
    plain = witness.pod(
        "plain", witness.container("c0", 0, life="0"), labels={"part": "plain"}
    )
    uid = this.load.namespace.create_when_free(plain)
    this.load.chronicle.wait_uid(lambda story: story.is_over, uid, within_s=300)
    this.wait_succeeded(uid)


@pytest.mark.core("outage")
def test_etcd_is_away(attempt: Try, cluster: Cluster) -> None:
    with attempt("etcd", "kill -9, away for 15 s") as this:
        cluster.programs.etcd.kill()
        time.sleep(15)
        cluster.programs.etcd.start()
        until(cluster.programs.apiserver.is_ready, "API server ready", within_s=180)
        # Whoever wrote in vain tries again after a while; then short pods run again.
        this.load.churn.wait_succeeded(2)
