"""A stock kubectl against the sandbox, as a user would run it.

It needs no cluster, only the programs: plain pytest runs it.
"""

import asyncio
import json
import shlex
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandbox.apiserver import ApiServer
from sandbox.demo import visit
from sandbox.inspect import pods
from sandbox.world import running
from tests.e2e.places import chosen
from tests.support import objects
from tests.support.servers import api_server
from tests.support.until import equal, until
from tests.support.watched import RESOURCE

POD = objects.pod(
    "train",
    meta={"labels": {"app": "train"}},
    # a number, where the API server shows a text
    containers=[objects.container(resources={"limits": {RESOURCE: 2}})],
)
NODE = {
    **objects.node("node-1"),
    "status": {"capacity": {"cpu": "64", RESOURCE: "8"}},
}
CONFIG = objects.configmap("shown", {"key": '{"inner": 1}'})
BINDING = objects.binding("train", "node-1", annotations={"decided": "yes"})
BINDING_PATH = f"{objects.PODS}/train/binding"


class Kubectl:
    """Runs kubectl, with a home of its own."""

    def __init__(self, url: str, home: Path) -> None:
        self._url = url
        self._home = home

    async def __call__(self, *words: str, body: object = None) -> str:
        """Run a command to its good end; return what it wrote to stdout."""
        process = await asyncio.create_subprocess_exec(
            str(chosen().programs / "kubectl"),
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
async def server() -> AsyncIterator[ApiServer]:
    async with api_server() as server:
        yield server


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
    await kubectl("create", "--raw", BINDING_PATH, "-f", "-", body=BINDING)

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
    await until(lambda: server.watch_count, equal(1))
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


@pytest.mark.core("sandbox")
async def test_the_commands_that_a_visitor_is_told_work(tmp_path: Path) -> None:
    pod_file = tmp_path / "pod.json"
    pod_file.write_text(json.dumps(pods.manifest("mine", 2)), encoding="utf-8")
    told = []

    async with running(["node-1"]) as world:
        kubectl = Kubectl(world.api_url, tmp_path)
        for command in visit.commands(str(pod_file), "node-1"):
            words = shlex.split(command)
            assert words[0] == "kubectl"
            told.append(await kubectl(*words[1:]))
            if words[1] == "apply":
                await kubectl("wait", "--for=condition=Ready", "pod/mine")

    applied, listed, pod, config_map, deleted = told
    assert applied == "pod/mine created\n"
    header, row = _words(listed)
    assert header.endswith("READINESS GATES CHIPS WHY")
    assert "node-1 <none> <none> 0,1 chips 0,1 of node-1: 2 of the 4 free" in row
    assert "huawei.com/AscendReal: Ascend910-0,Ascend910-1" in _words(pod)
    assert "DeviceInfoCfg:" in _words(config_map)
    assert deleted.startswith('pod "mine" deleted')


async def test_a_job_is_applied_created_shown_and_deleted(kubectl: Kubectl) -> None:
    body = pods.job("train", 2, 1)
    await kubectl("apply", "-f", "-", body=body)
    await kubectl("apply", "-f", "-", body=body)
    await kubectl("create", "job", "hello", "--image=busybox", "--", "echo", "hello")

    listed = _words(await kubectl("get", "jobs", "-o", "wide"))
    command = await kubectl(
        *("get", "job", "hello", "-o"),
        "jsonpath={.spec.template.spec.containers[0].command}",
    )
    told = _words(await kubectl("describe", "job", "train"))
    await kubectl("delete", "job", "train", "hello")

    assert listed[0].split() == [
        *("NAME", "STATUS", "COMPLETIONS", "DURATION", "AGE"),
        *("CONTAINERS", "IMAGES", "SELECTOR"),
    ]
    assert [line.split()[:3] for line in listed[1:]] == [
        ["hello", "Running", "0/1"],
        ["train", "Running", "0/2"],
    ]
    assert command == '["echo","hello"]'
    assert "Completion Mode: Indexed" in told
    assert await kubectl("get", "jobs", "-o", "name") == ""


async def test_a_mistyped_field_is_refused_and_explained(kubectl: Kubectl) -> None:
    mistyped = json.loads(json.dumps(POD))
    mistyped["spec"]["nodeNmae"] = "node-1"

    with pytest.raises(AssertionError, match=r'unknown field "spec[.]nodeNmae"'):
        await kubectl("apply", "-f", "-", body=mistyped)
    told = _words(await kubectl("explain", "pod.spec.nodeName"))

    assert told[:4] == ["KIND: Pod", "VERSION: v1", "", "FIELD: nodeName <string>"]


async def test_commands_that_send_protobuf_work(kubectl: Kubectl) -> None:
    await kubectl("create", "namespace", "team")
    await kubectl("create", "configmap", "c", "--from-literal=a=b", "-n", "team")
    await kubectl("create", "-f", "-", body=NODE)
    await kubectl("create", "-f", "-", body=POD)
    await kubectl("create", "--raw", BINDING_PATH, "-f", "-", body=BINDING)
    # Nobody is its kubelet, which would let go of it.
    await kubectl(
        *("drain", "node-1", "--force", "--grace-period=0", "--disable-eviction=false")
    )

    data = await kubectl("get", "cm", "c", "-n", "team", "-o", "jsonpath={.data}")
    left = await kubectl("get", "pods", "-o", "name")

    assert (data, left) == ('{"a":"b"}', "")
