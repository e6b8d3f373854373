"""Valid documents of every kind, from which hostile ones are made."""

from typing import Any

from agent.devices.board_size import fit_row
from agent.devices.dcmi.memory import Known
from agent.journal import file
from kubelet_api.deviceplugin.v1beta1 import api_pb2 as deviceplugin
from kubelet_api.podresources.v1 import api_pb2 as podresources
from scheduler_core.products.table import ATLAS_800_TRAINING as PRODUCT
from scheduler_core.wire import deviceinfo
from scheduler_core.wire.deviceinfo import Affinity, DeviceInfo, Fault
from tests.agent.devices.played_library import A3_SUPERPOD
from tests.agent.journal.test_file import HOLD
from tests.agent.node import NODE, ids
from tests.e2e.pods import READS
from tests.scheduler_core.snapshot.test_batch import asked
from tests.scheduler_core.snapshot.test_schema import FULL
from tests.scheduler_core.wire.test_switches import TWO
from tests.support import objects

REPORT = deviceinfo.render(
    DeviceInfo(
        available=(0, 1, 2),
        unhealthy=(7,),
        faults=(Fault(chip=7, code="80E01801", level="SeparateNPU", time_ms=5),),
        update_time=1_790_000_000,
    ),
    Affinity(held=(3,), releasing=(4,), lost=(5,), sequence=9),
    PRODUCT,
)
#: Some chips of a server, with all that they tell.
CHIPS = Known((fit_row("atlas-a3-16-superpod", 15),), A3_SUPERPOD[:2])
SNAPSHOT = FULL
JOB = {
    "version": 1,
    "resource": "huawei.com/Ascend910",
    "chips": 8,
    "pods": 2,
    "labels": {"tor-affinity": "large-model-schema", "super-pod-affinity": "soft"},
    "annotations": {"sp-block": "32"},
    "node_selector": {"accelerator-type": "module"},
    "priority": 0,
}
CASE = asked(
    labels={"a": "b"},
    annotations={"sp-block": "8"},
    node={"chips": 8, "free": [0, 1, 4], "unhealthy": [2], "network_unhealthy": []},
)
TORS = TWO
DRIVER_FILE = b"""
product: atlas-800-training
faults:
  - {chip: 3, code: "80E01801", level: SeparateNPU}
  - {chip: 0, code: "81078603", level: PreSeparateNPU, network: true}
processes:
  - {chip: 0, pid: 4711}
vanished: [5]
stand_in: /dev/null
numa: [0, 0, 0, 0, 1, 1, 1, 1]
"""
SCENARIO = b"""
title: One
nodes: [a, b]
steps:
  - pods: {name: p, chips: 2, count: 2, node: b}
  - fault: {name: agent-killed, node: a, at: asked, nth: 2, for: 2s}
  - fault: api-down
  - end: api-down
  - wait: 1.5s
  - delete: p-1
  - expect: {pods: "p-*", phase: Running, count: 2, within: 20s}
  - expect: {node: a, free: 6, unhealthy: [5]}
"""
SETTINGS = b"""
node-name: n1
numa-topology: true
mode: standalone
driver-poll-s: 0.5
state-dir: /var/lib/ascend-agent
log-level: info
"""
JOURNAL = file.encode([HOLD], boot_id="boot-1", node="n1")
TOKEN = b"eyJhbGciOi.eyJpc3MiOi.c2ln\n"
KUBECONFIG = b"""
apiVersion: v1
kind: Config
current-context: here
clusters:
- name: here
  cluster: {server: "http://127.0.0.1:8001"}
contexts:
- name: here
  context: {cluster: here, user: me}
users:
- name: me
  user: {token: abc}
"""
CA = """\
-----BEGIN CERTIFICATE-----
MIIBczCCARmgAwIBAgIUMxPHxq1MgmqSW3Ng2tK7a9DRGQIwCgYIKoZIzj0EAwIw
DzENMAsGA1UEAwwEdGVzdDAeFw0yNjExMjExNDU2MjVaFw0zNjExMTgxNDU2MjVa
MA8xDTALBgNVBAMMBHRlc3QwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAATWfTeN
nt6WWhozkDuUTcGxT36A7sdKSBBp1Odsw/hB5MoVBtiOgEyFMzyV/PUChgmHTmDk
VI/K3VM0w9bVBbkho1MwUTAdBgNVHQ4EFgQUFeJsklSht1DaNDFEMtSHLVlOYsIw
HwYDVR0jBBgwFoAUFeJsklSht1DaNDFEMtSHLVlOYsIwDwYDVR0TAQH/BAUwAwEB
/zAKBggqhkjOPQQDAgNIADBFAiEA2IwU6th5rq01fwFVQA55d/ZwLLVRqSSs+3dp
VKGgNf4CID66Qqwy28J3jfVLPVEnqNhBi3T4WK/WRCSnZ4TVOVA+
-----END CERTIFICATE-----
"""
POD: dict[str, Any] = {
    "metadata": {
        "name": "train-0",
        "namespace": "default",
        "uid": "uid-1",
        "resourceVersion": "17",
        "labels": {"a": "b"},
        "annotations": {
            "huawei.com/Ascend910": "Ascend910-0,Ascend910-1",
            "predicate-time": "1790000000000000000",
            "huawei.com/AscendReal": "Ascend910-0,Ascend910-1",
            "huawei.com/kltDev": "Ascend910-0,Ascend910-1",
            "huawei.com/schedule_policy": "chip8-node8",
        },
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "Job", "name": "j", "controller": True}
        ],
        "creationTimestamp": "2026-11-21T10:00:00Z",
        "deletionTimestamp": None,
    },
    "spec": {
        "nodeName": NODE,
        "initContainers": [objects.container("prepare", 1, restartPolicy="Always")],
        "containers": [objects.container("main", 1, env=[READS])],
    },
    "status": {
        "phase": "Pending",
        "startTime": "2026-11-21T10:00:00Z",
        "extendedResourceClaimStatus": {
            "requestMappings": [{"containerName": "x", "resourceName": "y"}]
        },
    },
}
NODE_OBJECT = {
    "metadata": {
        "name": NODE,
        "uid": "uid-n",
        "resourceVersion": "18",
        "labels": {"accelerator": "huawei-Ascend910", "accelerator-type": "module"},
        "annotations": {
            "baseDeviceInfos": '{"Ascend910-0": {"IP": "", "SuperDeviceID": -2}}'
        },
    },
    "spec": {"unschedulable": False},
    "status": {
        **objects.offered(**{"huawei.com/Ascend910": "8", "cpu": "4"})["status"],
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
    },
}
GIVEN = podresources.GetPodResourcesResponse(
    pod_resources=podresources.PodResources(
        name="other",
        namespace="default",
        containers=[
            podresources.ContainerResources(
                name="main",
                devices=[
                    podresources.ContainerDevices(
                        resource_name=PRODUCT.resource, device_ids=ids(4, 5)
                    )
                ],
            )
        ],
    )
)
WANTED = deviceplugin.AllocateRequest(
    container_requests=[deviceplugin.ContainerAllocateRequest(devices_ids=ids(4, 5))]
)
LIKED = deviceplugin.PreferredAllocationRequest(
    container_requests=[
        deviceplugin.ContainerPreferredAllocationRequest(
            available_deviceIDs=ids(*range(8)), allocation_size=2
        )
    ]
)
