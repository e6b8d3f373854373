"""A stock kubectl against the sandbox, as a user would run it."""

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from sandbox.apiserver import ApiServer
from tests.sandbox.apiserver.waiting import watches

KUBECTL = shutil.which("kubectl")
pytestmark = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not on the PATH")

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "train", "labels": {"app": "train"}},
    "spec": {
        "containers": [
            {
                "name": "main",
                "image": "example/train:1",
                "resources": {"limits": {"huawei.com/Ascend910": 2}},
            }
        ]
    },
}
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "node-1"},
    "status": {"capacity": {"cpu": "64", "huawei.com/Ascend910": "8"}},
}
CONFIG = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "shown", "namespace": "kube-system"},
    "data": {"key": '{"inner": 1}'},
}
BINDING = {
    "apiVersion": "v1",
    "kind": "Binding",
    "metadata": {"name": "train", "annotations": {"decided": "yes"}},
    "target": {"kind": "Node", "name": "node-1"},
}


class Kubectl:
    """Runs kubectl, with a home of its own."""

    def __init__(self, url: str, home: Path) -> None:
        self._url = url
        self._home = home

    async def __call__(self, *words: str, body: object = None) -> str:
        """Run a command to its good end; return what it wrote to stdout."""
        assert KUBECTL is not None
        process = await asyncio.create_subprocess_exec(
            KUBECTL,
            *("-s", self._url, "--cache-dir", str(self._home / "cache"), *words),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={"HOME": str(self._home), "PATH": "/usr/bin:/bin"},
        )
        text = b"" if body is None else json.dumps(body).encode()
        out, err = await process.communicate(text)
        assert process.returncode == 0, err.decode()
        return out.decode()


@pytest.fixture
def kubectl(server: ApiServer, tmp_path: Path) -> Kubectl:
    return Kubectl(server.url, tmp_path)


def _words(text: str) -> list[str]:
    """Return the lines of `text` with their blanks made single."""
    return [" ".join(line.split()) for line in text.splitlines()]


async def test_describe_of_a_config_map_shows_its_content(kubectl: Kubectl) -> None:
    created = await kubectl("create", "-f", "-", body=CONFIG)

    lines = _words(await kubectl("describe", "cm", "shown", "-n", "kube-system"))

    assert created == "configmap/shown created\n"
    assert lines[:2] == ["Name: shown", "Namespace: kube-system"]
    assert '{"inner": 1}' in lines


async def test_describe_of_a_pod_shows_its_events(
    server: ApiServer, kubectl: Kubectl
) -> None:
    await kubectl("create", "-f", "-", body=POD)
    uid = await kubectl("get", "pod", "train", "-o", "jsonpath={.metadata.uid}")
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "train.1", "namespace": "default"},
        "involvedObject": {
            "kind": "Pod",
            "namespace": "default",
            "name": "train",
            "uid": uid,
        },
        "type": "Warning",
        "reason": "FailedScheduling",
        "message": "0/3 nodes are available: 3 no ring has 2 free chips.",
        "source": {"component": "scheduler"},
    }
    await kubectl("create", "-f", "-", body=event)

    text = await kubectl("describe", "pod", "train")

    assert "huawei.com/Ascend910: 2" in _words(text)
    assert "0/3 nodes are available: 3 no ring has 2 free chips." in text
    assert server.watch_count == 0


async def test_describe_of_a_node_counts_what_its_pods_ask_for(
    kubectl: Kubectl,
) -> None:
    await kubectl("create", "-f", "-", body=NODE)
    await kubectl("create", "-f", "-", body=POD)
    path = "/api/v1/namespaces/default/pods/train/binding"
    await kubectl("create", "--raw", path, "-f", "-", body=BINDING)

    lines = _words(await kubectl("describe", "node", "node-1"))

    assert "Non-terminated Pods: (1 in total)" in lines
    assert "huawei.com/Ascend910: 8" in lines
    assert "huawei.com/Ascend910 2 2" in lines


async def test_annotate_label_and_apply_change_a_pod(kubectl: Kubectl) -> None:
    await kubectl("apply", "-f", "-", body=POD)
    await kubectl("annotate", "pod", "train", "note=here")
    await kubectl("label", "pod", "train", "tier=one")
    relabelled = {"name": "train", "labels": {"other": "yes"}}
    await kubectl("apply", "-f", "-", body={**POD, "metadata": relabelled})

    pod = json.loads(await kubectl("get", "pod", "train", "-o", "json"))

    assert pod["metadata"]["annotations"]["note"] == "here"
    assert pod["metadata"]["labels"] == {"tier": "one", "other": "yes"}
    assert pod["metadata"]["generation"] == 1


async def test_get_as_yaml_and_by_selector(kubectl: Kubectl) -> None:
    await kubectl("create", "-f", "-", body=POD)

    text = await kubectl("get", "po", "train", "-o", "yaml")
    names = await kubectl("get", "pods", "-A", "-l", "app=train", "-o", "name")
    none = await kubectl("get", "pods", "-l", "app=other", "-o", "name")

    assert 'huawei.com/Ascend910: "2"' in text
    assert (names, none) == ("pod/train\n", "")


async def test_get_with_watch_shows_changes(
    server: ApiServer, kubectl: Kubectl
) -> None:
    await kubectl("create", "-f", "-", body=POD)
    watching = asyncio.create_task(
        kubectl("get", "pods", "-w", "-o", "name", "--request-timeout=3s")
    )
    await watches(server, 1)
    await kubectl("annotate", "pod", "train", "note=here")

    shown = await watching

    assert shown == "pod/train\npod/train\n"


async def test_delete_waits_until_the_object_is_gone(kubectl: Kubectl) -> None:
    await kubectl("create", "-f", "-", body=POD)

    told = await kubectl("delete", "pod", "train")
    left = await kubectl("get", "pods", "-o", "name")

    assert 'pod "train" deleted' in told
    assert left == ""


async def test_the_server_tells_its_version_and_resources(kubectl: Kubectl) -> None:
    version = await kubectl("version")
    resources = _words(await kubectl("api-resources", "--no-headers"))

    assert "Server Version: v1.36.3" in version
    assert "configmaps cm v1 true ConfigMap" in resources
    assert "leases coordination.k8s.io/v1 true Lease" in resources
