"""Controllers of jobs, installed and started as people do, but without a kubelet."""

import asyncio
import base64
import contextlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from sandbox.apiclient import Object
from tests.e2e import configurations, programs
from tests.e2e.bare import BareCluster, answers, free_port, until
from tests.e2e.commands import run
from tests.e2e.places import chosen

#: What our start of a controller does in place of a kubelet.
_BY_HAND = {"ConfigMap", "Deployment", "Service"}
#: Below the folder of temporary files: where controllers look by default.
_CERTIFICATES = Path("k8s-webhook-server") / "serving-certs"
_HOOKS = {"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Start:
    """What a controller is started with."""

    name: str
    #: where it keeps files
    folder: Path
    #: of its webhooks
    port: int
    #: where it says that it is ready
    health: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """A program that makes pods of jobs."""

    name: str
    #: of what installs it
    account: str
    #: what it makes pods of, or objects that make pods
    kinds: Sequence[str]
    #: what it is told besides
    arguments: Callable[[_Start], Sequence[str]]
    #: where it looks whether a certificate is mounted, whatever it is told
    mounted: Path | None = None
    #: whether it writes a certificate of its own into its webhooks
    certifies: bool = False


def _by_file(start: _Start) -> Sequence[str]:
    document = {
        "apiVersion": f"config.{start.name}.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "internalCertManagement": {"enable": False},
        "leaderElection": {"leaderElect": False},
        "webhook": {
            "host": "127.0.0.1",
            "port": start.port,
            "certDir": str(start.folder / _CERTIFICATES),
        },
        "health": {"healthProbeBindAddress": start.health},
        "metrics": {"bindAddress": "0"},
    }
    path = start.folder / "configuration.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return [f"--config={path}"]


def _by_flags(start: _Start) -> Sequence[str]:
    return [
        "--enable-leader-election=false",
        "--feature-gates=RayMultiHostIndexing=true",
        f"--health-probe-bind-address={start.health}",
        "--metrics-addr=0",
    ]


def _for_torch(start: _Start) -> Sequence[str]:
    return [
        "--enable-scheme=pytorchjob",
        f"--health-probe-bind-address={start.health}",
        "--metrics-bind-address=0",
        f"--webhook-server-port={start.port}",
    ]


LWS = Controller(
    name="lws",
    account="system:serviceaccount:lws-system:lws-controller-manager",
    kinds=["LeaderWorkerSet"],
    arguments=_by_file,
)
JOBSET = Controller(
    name="jobset",
    account="system:serviceaccount:jobset-system:jobset-controller-manager",
    kinds=["JobSet"],
    arguments=_by_file,
)
KUBERAY = Controller(
    name="kuberay",
    account="system:serviceaccount:default:kuberay-operator",
    kinds=["RayCluster"],
    arguments=_by_flags,
)
TRAINING = Controller(
    name="training-operator",
    account="system:serviceaccount:kubeflow:training-operator",
    kinds=["PyTorchJob"],
    arguments=_for_torch,
    mounted=Path("/tmp/k8s-webhook-server/serving-certs/tls.crt"),  # noqa: S108  # its own
    certifies=True,
)


def install(cluster: BareCluster, controller: Controller) -> list[Object]:
    """Install a controller but for its Deployment; return its webhooks."""
    path = programs.installation(chosen(), controller.name)
    parts = list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    _make(cluster, [e for e in parts if e["kind"] not in _BY_HAND | _HOOKS])
    return [each for each in parts if each["kind"] in _HOOKS]


async def start(
    cluster: BareCluster, controller: Controller, hooks: Sequence[Object]
) -> None:
    """Start a controller, with its webhooks."""
    name = controller.name
    folder = cluster.places.cache / name
    certificates = folder / _CERTIFICATES
    certificates.mkdir(parents=True)
    run(
        *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
        *("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"),
        *("-keyout", certificates / "tls.key", "-out", certificates / "tls.crt"),
    )
    if controller.certifies:
        _make(cluster, [each | {"webhooks": []} for each in hooks])
        hooks = [_renamed(each) for each in hooks]
    port, health = free_port(), f"127.0.0.1:{free_port()}"
    given = _Start(name=name, folder=folder, port=port, health=health)
    program = cluster.programs.start(
        name,
        (
            str(programs.controller(chosen(), name)),
            *controller.arguments(given),
            f"--kubeconfig={kubeconfig(cluster, controller.account)}",
        ),
        log=cluster.places.logs / f"{name}.log",
        env={**os.environ, "TMPDIR": str(folder)},
    )
    with _mounted(controller.mounted):
        await answers(f"http://{health}/readyz", program)
    if hooks:
        await until(lambda: _serves(port), f"webhooks of {name}")
        certificate = (certificates / "tls.crt").read_bytes()
        _make(cluster, [_by_url(each, port, certificate) for each in hooks])


def kubeconfig(cluster: BareCluster, user: str) -> Path:
    """Write the kubeconfig of a user."""
    path = cluster.places.kubeconfig(user.rpartition(":")[2])
    text = configurations.kubeconfig(
        user,
        cluster.tokens[user],
        server=cluster.api_url,
        authority=cluster.authority,
    )
    path.write_text(text, encoding="utf-8")
    return path


async def _serves(port: int) -> bool:
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True


def _by_url(hooks: Object, port: int, certificate: bytes) -> Object:
    """Return webhooks that are called on the loopback and not by a Service."""
    bundle = base64.b64encode(certificate).decode()
    found = []
    for hook in hooks["webhooks"]:
        path = hook["clientConfig"]["service"]["path"]
        url = f"https://127.0.0.1:{port}{path}"
        found.append({**hook, "clientConfig": {"url": url, "caBundle": bundle}})
    return {**hooks, "webhooks": found}


def _renamed(item: Object) -> Object:
    return {**item, "metadata": {"name": f"by-url.{item['metadata']['name']}"}}


def _make(cluster: BareCluster, items: Sequence[Object]) -> None:
    # `apply` would keep each CRD in an annotation, for which it is too long.
    cluster.kubectl("create", "-f", "-", stdin=yaml.safe_dump_all(items))


@contextlib.contextmanager
def _mounted(path: Path | None) -> Iterator[None]:
    """Have a file at a path, if one is given, while the context lasts."""
    if path is None or path.exists():
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    try:
        yield
    finally:
        path.unlink()
        for folder in path.parents[:2]:
            with contextlib.suppress(OSError):  # others have something there
                folder.rmdir()
