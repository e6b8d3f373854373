"""What docs/install.md says of Volcano's configuration, done on a real API server."""

import os
import re
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from sandbox.apiclient import Object
from tests.e2e.bare import BareCluster, bare_cluster
from tests.e2e.places import REPOSITORY

pytestmark = pytest.mark.asyncio(loop_scope="module")

PAGE = (REPOSITORY / "docs" / "install.md").read_text(encoding="utf-8")
SHIPPED = REPOSITORY / "daemonset/overlays/volcano/volcano-scheduler.conf"
#: Of Volcano 1.14.1: installer/helm/chart/volcano/config/volcano-scheduler.conf
STOCK = """\
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
    enablePreemptable: false
  - name: conformance
- plugins:
  - name: overcommit
  - name: drf
    enablePreemptable: false
  - name: predicates
  - name: proportion
  - name: nodeorder
  - name: binpack
"""
NAME = "volcano-scheduler-configmap"
CONFIG = f"/api/v1/namespaces/volcano-system/configmaps/{NAME}"
SCHEDULER = "/apis/apps/v1/namespaces/volcano-system/deployments/volcano-scheduler"
LABELS = {"app.kubernetes.io/managed-by": "Helm"}
VOLCANO: list[Object] = [
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "volcano-system"}},
    {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": NAME, "namespace": "volcano-system", "labels": LABELS},
        "data": {"volcano-scheduler.conf": STOCK, "another.conf": "x"},
    },
    {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "volcano-scheduler", "namespace": "volcano-system"},
        "spec": {
            "selector": {"matchLabels": {"app": "volcano-scheduler"}},
            "template": {
                "metadata": {"labels": {"app": "volcano-scheduler"}},
                "spec": {"containers": [{"name": "x", "image": "x"}]},
            },
        },
    },
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane() -> AsyncIterator[BareCluster]:
    """A control plane with what Volcano's installation has made."""
    async with bare_cluster() as plane:
        plane.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(VOLCANO))
        yield plane


async def test_volcanos_configuration_stays_volcanos(
    plane: BareCluster,
) -> None:
    overlay = REPOSITORY / "daemonset" / "overlays" / "volcano"
    before = await plane.api.get(CONFIG)

    plane.kubectl("apply", "-k", overlay)
    plane.kubectl("delete", "-k", overlay)

    assert await plane.api.get(CONFIG) == before


async def test_the_difference_is_shown_merged_and_taken_back(
    plane: BareCluster, tmp_path: Path
) -> None:
    shows, merges, takes_back = commands()
    (tmp_path / "daemonset").symlink_to(REPOSITORY / "daemonset")
    before = await plane.api.get(CONFIG)

    difference = run(plane, shows, tmp_path)

    taken = re.findall(r"^-(?!--)(.*)$", difference, re.MULTILINE)
    put = re.findall(r"^\+(?!\+\+)(.*)$", difference, re.MULTILINE)
    assert taken == ["  - name: predicates"]
    assert {"  - name: predicates", "  - name: extender"} < {*put}
    assert (tmp_path / "volcano-before.conf").read_text() == STOCK

    (tmp_path / "volcano-scheduler.conf").write_text(SHIPPED.read_text())
    run(plane, merges, tmp_path)

    merged = await plane.api.get(CONFIG)
    assert merged["metadata"]["labels"] == LABELS
    shipped = {"volcano-scheduler.conf": SHIPPED.read_text()}
    assert merged["data"] == before["data"] | shipped
    assert await has_restarted(plane)

    run(plane, takes_back, tmp_path)

    assert (await plane.api.get(CONFIG))["data"] == before["data"]
    assert await has_restarted(plane)


async def has_restarted(plane: BareCluster) -> bool:
    """Whether Volcano's scheduler has been told to; forgotten then.

    Else kubectl would refuse to tell it again within a second.
    """
    template = (await plane.api.get(SCHEDULER))["spec"]["template"]
    forgotten = {"template": {"metadata": {"annotations": None}}}
    await plane.api.patch(SCHEDULER, {"spec": forgotten})
    return "annotations" in template["metadata"]


def commands() -> list[str]:
    """The page's commands about Volcano's ConfigMap, block by block."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    found = [block for block in blocks if NAME in block]
    assert len(found) == 3
    return found


def run(plane: BareCluster, block: str, folder: Path) -> str:
    """What a block of commands prints; `diff` ends with 1 where it finds something."""
    env = os.environ | {
        "KUBECONFIG": str(plane.places.kubeconfig()),
        "PATH": f"{plane.binaries}:{os.environ['PATH']}",
    }
    done = subprocess.run(  # noqa: S603  # our own page
        ["bash", "-euo", "pipefail", "-c", block],  # noqa: S607  # as a reader would
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == ("diff " in block), done.stderr
    return done.stdout
