"""The contract tests, on the API server and the kubelet that nobody here wrote.

`make test` runs the same tests on the sandbox's. Where one of them fails here, the
test or the sandbox is wrong, never the real one.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.e2e.assembly import lone_apiserver
from tests.e2e.cluster import Cluster
from tests.e2e.places import LONE_API_PORT, REPOSITORY

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture
def lone_url(cluster: Cluster) -> Iterator[str]:
    """An API server whose objects no scheduler, controller or kubelet touches."""
    server = lone_apiserver(cluster.places, cluster.address)
    try:
        server.start()
        yield f"https://{cluster.address}:{LONE_API_PORT}"
    finally:
        server.kill()


def test_the_contract_holds_for_the_real_api_server(
    cluster: Cluster, lone_url: str
) -> None:
    passed = _passed(
        "tests/contract/apiserver",
        CONTRACT_API_URL=lone_url,
        CONTRACT_API_TOKEN=cluster.token,
    )

    assert passed >= 169


def test_the_contract_holds_for_the_real_kubelet(cluster: Cluster) -> None:
    passed = _passed(
        "tests/contract/kubelet",
        CONTRACT_API_URL=cluster.api_url,
        CONTRACT_API_TOKEN=cluster.token,
        CONTRACT_KUBELET_DIR=str(cluster.device_plugin_dir),
        CONTRACT_POD_RESOURCES=str(cluster.pod_resources_socket),
        CONTRACT_KUBELET_URL=cluster.kubelet_url,
        CONTRACT_NODE=cluster.node,
    )

    assert passed >= 30


def _passed(folder: str, **real: str) -> int:
    """Run contract tests, none of which may fail or be skipped; how many passed."""
    done = subprocess.run(  # noqa: S603  # our own tests
        [sys.executable, "-m", "pytest", "-q", "-o", "timeout=300", folder],
        cwd=REPOSITORY,
        env={**os.environ, **real},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    last = done.stdout.splitlines()[-1]
    assert "skipped" not in last, done.stdout
    found = re.match(r"(\d+) passed", last)
    assert found is not None, last
    return int(found[1])
