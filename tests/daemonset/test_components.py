"""Components, put on an overlay as their first lines say."""

import os
from collections.abc import Iterable
from pathlib import Path

import yaml

from tests.daemonset.rendered import (
    DAEMONSET,
    Object,
    kustomize,
    needs_kubectl,
    unknown_fields,
)

pytestmark = needs_kubectl


def rendered(at: Path, *components: str) -> list[Object]:
    """What `kubectl apply -k` would send."""

    def path(name: str) -> str:
        return os.path.relpath(DAEMONSET / name, at)

    (at / "kustomization.yaml").write_text(
        yaml.safe_dump(
            {
                "resources": [path("overlays/kube-scheduler")],
                "components": [path(f"components/{name}") for name in components],
            }
        )
    )
    return list(kustomize(at))


def one(found: Iterable[Object], kind: str, name: str = "") -> Object:
    """The only object of a kind, or of that kind and name; Kubernetes knows it."""
    (each,) = [
        each
        for each in found
        if each["kind"] == kind and name in ("", each["metadata"]["name"])
    ]
    assert unknown_fields(each) == []
    return each


def agent_pod(at: Path, *components: str) -> Object:
    """The specification of the agent's pods with these components."""
    agent = one(rendered(at, *components), "DaemonSet")
    pod: Object = agent["spec"]["template"]["spec"]
    return pod


def test_a_second_extender_stands_by_on_another_node(tmp_path: Path) -> None:
    found = rendered(tmp_path, "standby")

    extender = one(found, "Deployment")
    spec = extender["spec"]
    anti = spec["template"]["spec"]["affinity"]["podAntiAffinity"]
    (rule,) = anti["requiredDuringSchedulingIgnoredDuringExecution"]
    # a rolling update would wait for a replica that stands by to become ready
    assert (spec["replicas"], spec["strategy"]) == (2, {"type": "Recreate"})
    assert rule["topologyKey"] == "kubernetes.io/hostname"
    labels = spec["template"]["metadata"]["labels"]
    assert rule["labelSelector"]["matchLabels"].items() <= labels.items()
    # what tells them apart: of no other pod, ever
    (container,) = spec["template"]["spec"]["containers"]
    assert "--identity=$(POD_NAME)_$(POD_UID)" in container["args"]


def environment(container: Object) -> dict[str, str]:
    """{environment variable: its text} of a container."""
    return {each["name"]: each["value"] for each in container["env"] if "value" in each}


def test_who_only_reads_does_not_reach_where_is_decided(tmp_path: Path) -> None:
    found = rendered(tmp_path, "closed")

    extender = one(found, "Deployment")
    policy = one(found, "NetworkPolicy")
    template = extender["spec"]["template"]
    (container,) = template["spec"]["containers"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    probes = ("livenessProbe", "readinessProbe")
    assert [container[each]["httpGet"]["port"] for each in probes] == ["read"] * 2
    assert f"--listen=:{ports['http']}" in container["args"]
    assert environment(container)["ASCEND_EXTENDER_READ_LISTEN"] == f":{ports['read']}"
    chosen = policy["spec"]["podSelector"]["matchLabels"]
    assert chosen.items() <= template["metadata"]["labels"].items()
    # at the schedulers' port only those who are named
    assert {
        each["ports"][0]["port"]: "from" in each for each in policy["spec"]["ingress"]
    } == {"http": True, "read": False}


def mounts(pod: Object) -> dict[str, str]:
    """{folder of the container: folder of the host}."""
    hosts = {
        each["name"]: each["hostPath"]["path"]
        for each in pod["volumes"]
        if "hostPath" in each
    }
    return {
        each["mountPath"]: hosts[each["name"]]
        for each in pod["containers"][0]["volumeMounts"]
        if each["name"] in hosts
    }


BASE = {
    "/var/lib/kubelet/device-plugins": "/var/lib/kubelet/device-plugins",
    "/var/lib/kubelet/pod-resources": "/var/lib/kubelet/pod-resources",
    "/var/lib/ascend-agent": "/run/ascend-agent",
}


def test_with_chips_the_agent_may_load_the_drivers_library(tmp_path: Path) -> None:
    pod = agent_pod(tmp_path, "chips")

    assert pod["hostPID"] is True
    assert pod["containers"][0]["securityContext"]["privileged"] is True
    assert pod["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True
    assert mounts(pod) == {
        **BASE,
        "/usr/local/Ascend/driver": "/usr/local/Ascend/driver",
        "/usr/local/dcmi": "/usr/local/dcmi",
        "/dev": "/dev",
        "/var/lib/ascend-agent-chips": "/var/lib/ascend-agent",
    }
    assert "--memory-dir=/var/lib/ascend-agent-chips" in pod["containers"][0]["args"]


def test_with_cdi_the_agent_may_write_the_spec(tmp_path: Path) -> None:
    pod = agent_pod(tmp_path, "simulated", "cdi")

    assert "--mount=cdi" in pod["containers"][0]["args"]
    assert mounts(pod) == {**BASE, "/var/run/cdi": "/var/run/cdi"}


ACCOUNT = {
    "kind": "ServiceAccount",
    "name": "ascend-extender",
    "namespace": "kube-system",
}
#: Each sets the setting of its name and gives the right as well; they go together.
EVICTING = ("preemption", "incomplete")


def test_only_with_these_components_may_the_extender_evict(tmp_path: Path) -> None:
    found = rendered(tmp_path, *EVICTING)

    extender = one(found, "Deployment")
    assert extender["metadata"]["name"] == "ascend-extender"
    (container,) = extender["spec"]["template"]["spec"]["containers"]
    rule = {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]}
    for component in EVICTING:
        assert environment(container)[f"ASCEND_EXTENDER_{component.upper()}"] == "evict"
        name = f"ascend-extender-{component}"
        role = one(found, "ClusterRole", name)
        binding = one(found, "ClusterRoleBinding", name)
        assert role["rules"] == [rule]
        assert binding["roleRef"]["name"] == name
        assert binding["subjects"] == [ACCOUNT]
    without = [rule for each in rendered(tmp_path) for rule in each.get("rules", ())]
    assert not any("pods/eviction" in rule["resources"] for rule in without)


def test_only_with_rescheduling_may_the_extender_delete_pods(tmp_path: Path) -> None:
    found = rendered(tmp_path, "rescheduling")

    extender = one(found, "Deployment")
    (container,) = extender["spec"]["template"]["spec"]["containers"]
    assert environment(container)["ASCEND_EXTENDER_RESCHEDULING"] == "evict"
    name = "ascend-extender-rescheduling"
    rules = [
        {"apiGroups": [""], "resources": [resource], "verbs": [verb]}
        for resource, verb in (
            ("pods/eviction", "create"),
            ("pods/status", "patch"),
            ("pods", "delete"),
        )
    ]
    records = {"apiGroups": [""], "resources": ["configmaps"]}
    assert one(found, "ClusterRole", name)["rules"] == rules
    role = one(found, "Role", name)
    assert role["rules"] == [records | {"verbs": ["create", "get", "patch", "delete"]}]
    assert role["metadata"]["namespace"] == "kube-system"
    for kind in ("ClusterRoleBinding", "RoleBinding"):
        binding = one(found, kind, name)
        assert binding["roleRef"]["name"] == name
        assert binding["subjects"] == [ACCOUNT]
    without = [rule for each in rendered(tmp_path) for rule in each.get("rules", ())]
    assert not any("delete" in rule["verbs"] for rule in without)


def test_only_with_tor_share_may_the_extender_write_configmaps(tmp_path: Path) -> None:
    found = rendered(tmp_path, "tor-share")

    extender = one(found, "Deployment")
    [container] = extender["spec"]["template"]["spec"]["containers"]
    told = environment(container)["ASCEND_EXTENDER_TOR_SHARE_NAMESPACE"]
    assert told == "volcano-system"
    role = one(found, "Role", "ascend-extender-tor-share")
    binding = one(found, "RoleBinding", "ascend-extender-tor-share")
    configmaps = {"apiGroups": [""], "resources": ["configmaps"]}
    assert role["rules"] == [
        configmaps | {"verbs": ["create"]},
        configmaps | {"resourceNames": ["tor-share-cm"], "verbs": ["patch"]},
    ]
    assert {each["metadata"]["namespace"] for each in (role, binding)} == {
        "volcano-system"
    }
    assert binding["subjects"] == [ACCOUNT]


def test_a_shadow_may_only_look(tmp_path: Path) -> None:
    found = rendered(tmp_path, "shadow")

    role = one(found, "ClusterRole", "ascend-extender")
    verbs = {verb for rule in role["rules"] for verb in rule["verbs"]}
    assert verbs == {"list", "watch"}
    extender = one(found, "Deployment")
    (container,) = extender["spec"]["template"]["spec"]["containers"]
    assert environment(container)["ASCEND_EXTENDER_SHADOW"] == "true"
