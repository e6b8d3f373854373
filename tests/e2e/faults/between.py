"""Somebody between scheduler and extender, so that a fault meets a certain call."""

import http.client
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from tests.e2e.cluster import Cluster
from tests.e2e.places import BETWEEN_PORT, EXTENDER_PORT

_TIMEOUT_S = 30.0


class Between:
    """Passes every call on. Protects what is done at which call, each once."""

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
