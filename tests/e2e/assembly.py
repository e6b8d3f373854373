"""The six programs of the cluster and their command lines."""

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path

import grpc

from tests.e2e.components import Component
from tests.e2e.places import (
    API_PORT,
    CONTAINERD_SOCKET,
    CONTROLLER_PORT,
    ETCD_PEER_PORT,
    ETCD_PORT,
    KUBELET_HEALTH_PORT,
    LONE_API_PORT,
    NODE,
    SCHEDULER_PORT,
    SERVICE_NETWORK,
    Places,
)

_ETCD = f"http://127.0.0.1:{ETCD_PORT}"
_ETCD_PEER = f"http://127.0.0.1:{ETCD_PEER_PORT}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembly:
    """The programs, in the order in which they are started."""

    containerd: Component
    etcd: Component
    apiserver: Component
    controller_manager: Component
    scheduler: Component
    kubelet: Component

    @property
    def all(self) -> tuple[Component, ...]:
        """All of them, in that order."""
        return tuple(getattr(self, each.name) for each in fields(self))


def _component(
    places: Places, name: str, is_ready: Callable[[], bool], *command: str
) -> Component:
    return Component(
        name=name, command=command, log=places.log(name), is_ready=is_ready
    )


def assemble(places: Places, address: str) -> Assembly:
    """Describe the programs of the cluster at these places.

    Args:
        places: Its folders.
        address: The node's address, at which the API server serves.
    """
    return Assembly(
        containerd=_component(
            places,
            "containerd",
            _containerd_serves,
            *("containerd", "-c", f"{places.configuration('containerd', 'toml')}"),
        ),
        etcd=_component(
            places,
            "etcd",
            _answers(f"{_ETCD}/health"),
            f"{places.programs / 'etcd'}",
            *etcd_arguments(places.run / "etcd", _ETCD, _ETCD_PEER),
        ),
        apiserver=_apiserver(places, address),
        controller_manager=_controller_manager(places),
        scheduler=_component(
            places,
            "scheduler",
            _answers(f"https://127.0.0.1:{SCHEDULER_PORT}/healthz"),
            f"{places.programs / 'kube-scheduler'}",
            f"--config={places.configuration('scheduler')}",
            "--bind-address=127.0.0.1",
            f"--secure-port={SCHEDULER_PORT}",
        ),
        kubelet=_kubelet(places, address),
    )


def etcd_arguments(data: Path, client: str, peer: str) -> tuple[str, ...]:
    """Return the arguments of an etcd that serves at two URLs."""
    return (
        f"--data-dir={data}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    )


def apiserver_arguments(
    keys: Path, *, etcd: str, address: str, port: int
) -> tuple[str, ...]:
    """Return the arguments that all API servers of ours have.

    Args:
        keys: The folder of tokens and of the key of service accounts.
        etcd: URL of its etcd.
        address: Where it serves.
        port: Where it serves.
    """
    return (
        f"--etcd-servers={etcd}",
        f"--bind-address={address}",
        f"--secure-port={port}",
        f"--token-auth-file={keys / 'tokens.csv'}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={keys / 'accounts.key'}",
        f"--service-account-signing-key-file={keys / 'accounts.key'}",
        f"--service-cluster-ip-range={SERVICE_NETWORK}",
        "--allow-privileged",
    )


def _apiserver(places: Places, address: str) -> Component:
    keys = places.certificates
    return _component(
        places,
        "apiserver",
        _answers(f"https://{address}:{API_PORT}/readyz", places.kubeconfig()),
        f"{places.programs / 'kube-apiserver'}",
        *apiserver_arguments(keys, etcd=_ETCD, address=address, port=API_PORT),
        f"--tls-cert-file={keys / 'apiserver.crt'}",
        f"--tls-private-key-file={keys / 'apiserver.key'}",
        f"--kubelet-client-certificate={keys / 'to-kubelet.crt'}",
        f"--kubelet-client-key={keys / 'to-kubelet.key'}",
        "--kubelet-preferred-address-types=InternalIP",
    )


def lone_apiserver(places: Places, address: str) -> Component:
    """An API server beside the cluster's, with no program that changes its objects.

    The same one otherwise, on the same etcd under another prefix. It lets pods be made
    although no controller has given their namespace an account.
    """
    name = "lone-apiserver"
    theirs = _apiserver(places, address)
    others = {
        f"--secure-port={API_PORT}": f"--secure-port={LONE_API_PORT}",
        "--enable-admission-plugins=NodeRestriction": (
            "--disable-admission-plugins=ServiceAccount"
        ),
    }
    words = (others.get(word, word) for word in theirs.command)
    return _component(
        places,
        name,
        _answers(f"https://{address}:{LONE_API_PORT}/readyz", places.kubeconfig()),
        *words,
        f"--etcd-prefix=/{name}",
    )


def _controller_manager(places: Places) -> Component:
    keys = places.certificates
    return _component(
        places,
        "controller-manager",
        _answers(f"https://127.0.0.1:{CONTROLLER_PORT}/healthz"),
        f"{places.programs / 'kube-controller-manager'}",
        f"--kubeconfig={places.kubeconfig('controller-manager')}",
        f"--service-account-private-key-file={keys / 'accounts.key'}",
        f"--root-ca-file={keys / 'ca.crt'}",
        "--use-service-account-credentials",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        f"--secure-port={CONTROLLER_PORT}",
    )


def _kubelet(places: Places, address: str) -> Component:
    return _component(
        places,
        "kubelet",
        _answers(f"http://127.0.0.1:{KUBELET_HEALTH_PORT}/healthz"),
        f"{places.programs / 'kubelet'}",
        f"--config={places.configuration('kubelet')}",
        f"--kubeconfig={places.kubeconfig('kubelet')}",
        f"--hostname-override={NODE}",
        # Otherwise it asks the machine's name servers who node1 is, and waits.
        f"--node-ip={address}",
    )


def _containerd_serves() -> bool:
    """Whether a kubelet would find what it needs: before that it ends at once.

    containerd listens, and answers others, before its part for kubelets has begun.
    """
    with grpc.insecure_channel(
        f"unix:{CONTAINERD_SOCKET}", options=[("grpc.default_authority", "localhost")]
    ) as channel:
        ask = channel.unary_unary("/runtime.v1.RuntimeService/Version", None, None)
        try:
            ask(b"", timeout=2)  # no field has to be set
        except grpc.RpcError:
            return False
    return True


def _answers(url: str, kubeconfig: Path | None = None) -> Callable[[], bool]:
    # Only whether somebody serves is asked here; who it is, the clients check.
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    no_proxy = urllib.request.ProxyHandler({})
    https = urllib.request.HTTPSHandler(context=context)
    opener = urllib.request.build_opener(no_proxy, https)

    def answers() -> bool:
        request = urllib.request.Request(url)  # noqa: S310  # our own address
        if kubeconfig is not None:
            request.add_header("Authorization", f"Bearer {token(kubeconfig)}")
        try:
            with opener.open(request, timeout=2) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.HTTPError):
            return False

    return answers


def token(kubeconfig: Path) -> str:
    """The bearer token in a kubeconfig of ours."""
    document = json.loads(kubeconfig.read_text(encoding="utf-8"))
    return str(document["users"][0]["user"]["token"])
