"""docs/install.md does what it says: its commands are run, what they print compared.

It begins with a cluster without us and ends with one, so what the other tests use is
taken down before and put back after.
"""

import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e import leftovers, product
from tests.e2e.cluster import Cluster
from tests.e2e.places import REPOSITORY

PAGE = (REPOSITORY / "docs" / "install.md").read_text(encoding="utf-8")
#: A file that the reader is to write: its name, and what is in it.
FILE = re.compile(
    r"^`([\w./-]+)`[^\n]*:\n\n```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: What another program does may take a moment to be seen.
SEEN_WITHIN_S = 120.0
#: An address in the range for Services of this cluster.
CLUSTER_IP = "10.214.0.88"


@pytest.fixture
def bare(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster without us; afterwards it has us again."""
    product.uninstall(cluster)
    cluster.kubectl("label", "node", cluster.node, "ascend-affinity/agent-")
    yield cluster
    product.install(cluster)


@pytest.mark.core("install")
def test_the_page_is_true(bare: Cluster, tmp_path: Path) -> None:
    (tmp_path / "daemonset").symlink_to(REPOSITORY / "daemonset")
    for name, text in FILE.findall(PAGE):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        document = _fitted(bare, yaml.safe_load(text))
        path.write_text(yaml.safe_dump(document), encoding="utf-8")

    steps = [step for block in CONSOLE.findall(PAGE) for step in _steps(block)]
    assert len(steps) > 15
    for command, expected in steps:
        printed = _printed(bare, command, expected, tmp_path)
        assert _pattern(expected).fullmatch(printed), f"$ {command}\n{printed}"

    assert leftovers.found(bare) == []


def _fitted(cluster: Cluster, document: dict[str, Any]) -> dict[str, Any]:
    """The reader's file for this cluster: no registry, no kube-proxy, another range."""
    if document["kind"] == "Pod":
        document["spec"]["containers"][0]["image"] = cluster.base_image
        return document
    deployed = yaml.safe_load(
        (product.folder(cluster) / "kustomization.yaml").read_text()
    )
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "ascend-extender", "namespace": product.NAMESPACE},
        "spec": {"clusterIP": CLUSTER_IP},
    }
    patches = [*deployed["patches"], {"patch": yaml.safe_dump(service)}]
    return document | {"images": deployed["images"], "patches": patches}


def _steps(block: str) -> Iterator[tuple[str, str]]:
    """(command, what it prints) of a console block."""
    for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, expected = step.partition("\n")
        yield command, expected.strip()


def _pattern(expected: str) -> re.Pattern[str]:
    """Match what is expected, with anything for each ellipsis."""
    parts = (re.escape(part) for part in expected.split("…"))
    return re.compile(".*".join(parts), re.DOTALL)


def _printed(cluster: Cluster, command: str, expected: str, folder: Path) -> str:
    """Run a command; what only looks is run again until it sees what is expected."""
    looks = command.split()[1:2] == ["get"] or " describe " in command
    end = time.monotonic() + (SEEN_WITHIN_S if looks else 0)
    while True:
        printed = _run(cluster, command, folder)
        if _pattern(expected).fullmatch(printed) or time.monotonic() > end:
            return printed
        time.sleep(0.2)


def _run(cluster: Cluster, command: str, folder: Path) -> str:
    env = os.environ | {
        "KUBECONFIG": str(cluster.kubeconfig),
        "PATH": f"{cluster.places.programs}:{os.environ['PATH']}",
    }
    done = subprocess.run(  # noqa: S603  # our own page
        ["bash", "-c", command],  # noqa: S607  # as a reader would
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
        check=False,
    )
    return "\n".join(line.rstrip() for line in done.stdout.strip().splitlines())
