"""Our own programs as an image, rolled out as a user would do it."""

import hashlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.e2e import images
from tests.e2e.cluster import Cluster
from tests.e2e.commands import fetch
from tests.e2e.namespaces import Namespace
from tests.e2e.places import API_PORT, REPOSITORY, Places
from tests.e2e.stages import stage

NAMESPACE = "kube-system"
_NAME = "ascend-affinity"
_MANIFESTS = REPOSITORY / "daemonset"
#: Of every object that we install.
PART = "app.kubernetes.io/part-of=ascend-affinity"
WORKLOADS = ("daemonset.apps/ascend-agent", "deployment.apps/ascend-extender")
#: What the image is made of.
SOURCES = (
    "agent",
    "extender",
    "kube",
    "kubelet_api",
    "scheduler_core",
    "service",
    "daemonset/Containerfile",
    "daemonset/build-image",
    "constraints.txt",
    "pyproject.toml",
)


def build(places: Places, source: Path = REPOSITORY) -> str:
    """Make sure that there is an image of a checkout; returns its tag.

    Args:
        places: Where images are kept.
        source: The checkout: another one than this for upgrades.
    """
    tag = f"e2e-{_sources_hash(source)}"
    if not archive(places, tag).exists():
        environment = source / ".venv"
        if not environment.exists():
            environment.symlink_to(sys.prefix)  # ours builds it as well as its own
        with stage("our image"):
            fetch(
                # Not to be made: it would then install that checkout into ours.
                *("make", "-C", source, "-o", ".venv/run.stamp", "image"),
                f"BASE={images.BASE_IMAGE}",
                *(f"IMAGE={_NAME}:{tag}", f"ARCHIVE={archive(places, tag)}"),
                env=images.build_environment(places),
            )
    return tag


def archive(places: Places, tag: str) -> Path:
    """The archive of our image with that tag."""
    return places.images / f"{_NAME}-{tag}.tar"


def deploy(cluster: Cluster, tag: str) -> None:
    """Install us on a cluster, or bring it to that image, until all of it is ready.

    Args:
        cluster: Where to.
        tag: Of the image, which is imported first.
    """
    with stage("our image imported"):
        cluster.load_image(archive(cluster.places, tag))
    with stage("kubectl apply -k, rollout"):
        _write(cluster, tag)
        install(cluster)


def install(cluster: Cluster, overlay: str = "simulated") -> None:
    """Apply an overlay as it was written by `deploy` and wait until all is ready.

    Args:
        cluster: That has the image.
        overlay: Its name; "simulated" is the base, on nodes without chips.
    """
    cluster.kubectl(
        *("label", "node", cluster.node, "--overwrite", "ascend-affinity/agent=true")
    )
    applied = cluster.kubectl("apply", "-k", folder(cluster, overlay), "-o", "name")
    wait_rolled_out(cluster, sorted({*applied.split()} & {*WORKLOADS}))


def bring(cluster: Cluster, workload: str, tag: str) -> None:
    """Bring one of WORKLOADS to an image, as an upgrade does, until it is ready."""
    image = f"{workload.rpartition('-')[2]}={_NAME}:{tag}"
    cluster.kubectl("set", "image", workload, image, "-n", NAMESPACE)
    wait_rolled_out(cluster, [workload])


def uninstall(cluster: Cluster, overlay: str = "simulated") -> None:
    """Delete what `install` has applied, and wait until our pods are gone."""
    cluster.kubectl("delete", "-k", folder(cluster, overlay), "--wait")
    Namespace(cluster=cluster, name=NAMESPACE).wait_empty(label_selector=PART)


@contextmanager
def patched(cluster: Cluster, specs: Mapping[str, object]) -> Iterator[None]:
    """Have workloads with other pods while the context lasts.

    Args:
        cluster: Whose workloads.
        specs: {workload: what is put into the specification of its pods}.
    """
    try:
        for workload, spec in specs.items():
            patch = json.dumps({"spec": {"template": {"spec": spec}}})
            cluster.kubectl("patch", workload, "-n", NAMESPACE, "-p", patch)
        wait_rolled_out(cluster, specs)
        yield
    finally:
        for workload in specs:
            cluster.kubectl("rollout", "undo", workload, "-n", NAMESPACE)
        wait_rolled_out(cluster, specs)


def wait_rolled_out(cluster: Cluster, workloads: Iterable[str] = WORKLOADS) -> None:
    """Wait until the workloads that were applied last are ready."""
    for workload in workloads:
        command = ("rollout", "status", workload, "-n", NAMESPACE, "--timeout=400s")
        cluster.kubectl(*command)


def folder(cluster: Cluster, overlay: str = "simulated") -> Path:
    """Where the kustomization lies that fits an overlay to this cluster."""
    return cluster.places.run / "deploy" / overlay


def _write(cluster: Cluster, tag: str) -> None:
    """Write our kustomizations: what this cluster lacks is a registry and kube-proxy.

    Without kube-proxy no Service has an address that leads anywhere, so pods are told
    the API server's own, and the extender serves on the node's, where the scheduler
    of this cluster looks for it.
    """
    server = [
        {"name": "KUBERNETES_SERVICE_HOST", "value": cluster.address},
        {"name": "KUBERNETES_SERVICE_PORT", "value": str(API_PORT)},
    ]
    agent = _patch("DaemonSet", "agent", server)
    extender = _patch("Deployment", "extender", server, hostNetwork=True)
    for overlay, components, patches in (
        ("simulated", ["policies"], [agent, extender]),
        ("standalone", ["simulated", "policies"], [agent]),
    ):
        place = folder(cluster, overlay)
        place.mkdir(parents=True, exist_ok=True)
        document = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": [os.path.relpath(_MANIFESTS / "overlays" / overlay, place)],
            "components": [
                os.path.relpath(_MANIFESTS / "components" / name, place)
                for name in components
            ],
            "images": [{"name": _NAME, "newTag": tag}],
            "patches": patches,
        }
        text = json.dumps(document, indent=1)
        (place / "kustomization.yaml").write_text(text, encoding="utf-8")


def _patch(
    kind: str, program: str, env: list[dict[str, str]], **spec: object
) -> dict[str, str]:
    container = {"name": program, "env": env}
    document = {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": f"ascend-{program}", "namespace": NAMESPACE},
        "spec": {"template": {"spec": {**spec, "containers": [container]}}},
    }
    return {"patch": json.dumps(document)}


def _sources_hash(source: Path) -> str:
    found = hashlib.sha256()
    for name in SOURCES:
        top = source / name
        files = sorted(top.rglob("*")) if top.is_dir() else [top]
        for path in files:
            if path.is_file() and "__pycache__" not in path.parts:
                found.update(path.relative_to(source).as_posix().encode())
                found.update(path.read_bytes())
    return found.hexdigest()[:12]
