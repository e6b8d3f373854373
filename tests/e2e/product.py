"""Our own programs as an image, rolled out as a user would do it."""

import hashlib
import json
import os
from pathlib import Path

from tests.e2e import images
from tests.e2e.cluster import Cluster
from tests.e2e.commands import run
from tests.e2e.places import API_PORT, REPOSITORY, Places
from tests.e2e.stages import stage

NAMESPACE = "kube-system"
_NAME = "ascend-affinity"
_OVERLAY = Path("daemonset/overlays/simulated")
#: What the image is made of.
_SOURCES = (
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
        with stage("our image"):
            run(
                *("make", "-C", source, "image", f"BASE={images.BASE_IMAGE}"),
                *(f"IMAGE={_NAME}:{tag}", f"ARCHIVE={archive(places, tag)}"),
                env=images.build_environment(places),
            )
    return tag


def archive(places: Places, tag: str) -> Path:
    """The archive of our image with that tag."""
    return places.images / f"{_NAME}-{tag}.tar"


def deploy(cluster: Cluster, tag: str) -> None:
    """Apply the overlay for nodes without chips and wait until all of it is ready.

    Args:
        cluster: Where to.
        tag: Of the image, which is imported first.
    """
    with stage("our image imported"):
        cluster.load_image(archive(cluster.places, tag))
    with stage("kubectl apply -k, rollout"):
        cluster.kubectl(
            *("label", "node", cluster.node, "--overwrite"),
            "ascend-affinity/agent=true",
        )
        cluster.kubectl("apply", "-k", _kustomization(cluster, tag))
        wait_rolled_out(cluster)


def wait_rolled_out(cluster: Cluster, within_s: int = 120) -> None:
    """Wait until the agent and the extender that were applied last are ready."""
    for workload in ("daemonset/ascend-agent", "deployment/ascend-extender"):
        cluster.kubectl(
            *("rollout", "status", workload, "-n", NAMESPACE),
            f"--timeout={within_s}s",
        )


def _kustomization(cluster: Cluster, tag: str) -> Path:
    """The overlay, with what this cluster lacks: a registry and kube-proxy.

    Without kube-proxy no Service has an address that leads anywhere, so pods are told
    the API server's own, and the extender serves on the node's, where the scheduler
    of this cluster looks for it.
    """
    folder = cluster.places.run / "deploy"
    folder.mkdir(exist_ok=True)
    server = [
        {"name": "KUBERNETES_SERVICE_HOST", "value": cluster.address},
        {"name": "KUBERNETES_SERVICE_PORT", "value": str(API_PORT)},
    ]
    document = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [os.path.relpath(REPOSITORY / _OVERLAY, folder)],
        "images": [{"name": _NAME, "newTag": tag}],
        "patches": [
            _patch("DaemonSet", "agent", server),
            _patch("Deployment", "extender", server, hostNetwork=True),
        ],
    }
    text = json.dumps(document, indent=1)
    (folder / "kustomization.yaml").write_text(text, encoding="utf-8")
    return folder


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
    for name in _SOURCES:
        top = source / name
        files = sorted(top.rglob("*")) if top.is_dir() else [top]
        for path in files:
            if path.is_file() and "__pycache__" not in path.parts:
                found.update(path.relative_to(source).as_posix().encode())
                found.update(path.read_bytes())
    return found.hexdigest()[:12]
