"""What `kubectl apply -k` would send: whole, and in step with the programs."""

import re
import tomllib
from typing import Any

import pytest
import yaml

import extender.kube_scheduler.binder
import service.endpoints
from agent.devices.simulated import file
from agent.plugin import server
from agent.report import reporter
from agent.settings import Settings as AgentSettings
from extender.cache import decode
from extender.settings import Settings as ExtenderSettings
from service import settings
from tests.daemonset.rendered import (
    DAEMONSET,
    RENDERED,
    ROOT,
    Object,
    containers,
    needs_kubectl,
    objects,
    of_kind,
    pod_templates,
    unknown_fields,
)

pytestmark = needs_kubectl

#: Comes with every cluster: bootstrap policy, and priority classes.
BUILT_IN = {
    "system:kube-scheduler",
    "system:volume-scheduler",
    "extension-apiserver-authentication-reader",
}
#: Of the design of the 910 algorithm: filter nodes, score them, allocate and commit.
#: Filter leaves only nodes of the best score, so that scores would all be equal.
STEPS = ("filter", "preempt", "bind")
PROGRAMS = {"agent": AgentSettings, "extender": ExtenderSettings}


def programs(name: str) -> list[str]:
    """Which of ours are in the base or an overlay."""
    return [each for each in PROGRAMS if f"ascend-{each}" in containers(name)]


@pytest.mark.parametrize("name", RENDERED)
def test_kubernetes_knows_every_field(name: str) -> None:
    assert [unknown_fields(each) for each in objects(name)] == [[]] * len(objects(name))


def test_a_misspelt_field_would_be_noticed() -> None:
    container = {"name": "c", "securityContext": {"readOnlyRootFileSystem": True}}
    template = {"spec": {"containers": [container]}}
    deployment = {"kind": "Deployment", "spec": {"template": template}}

    within = "spec.template.spec.containers[0].securityContext"
    assert unknown_fields(deployment) == [f"Deployment.{within}.readOnlyRootFileSystem"]


@pytest.mark.parametrize("name", RENDERED)
def test_everything_with_a_namespace_is_in_kube_system(name: str) -> None:
    elsewhere = [
        each["metadata"]["name"]
        for each in objects(name)
        if not each["kind"].startswith("Cluster")
        and each["metadata"].get("namespace") != "kube-system"
    ]

    assert elsewhere == []


@pytest.mark.parametrize("name", RENDERED)
def test_selectors_match_the_pods(name: str) -> None:
    labels = {each: t["metadata"]["labels"] for each, t in pod_templates(name).items()}

    for kind in ("DaemonSet", "Deployment", "Service"):
        for each, found in of_kind(name, kind).items():
            selector = found["spec"]["selector"]
            chosen = selector if kind == "Service" else selector["matchLabels"]
            assert [n for n in labels if chosen.items() <= labels[n].items()] == [each]


@pytest.mark.parametrize("name", RENDERED)
def test_every_name_that_is_referred_to_exists(name: str) -> None:
    accounts = of_kind(name, "ServiceAccount")
    maps = of_kind(name, "ConfigMap")
    for template in pod_templates(name).values():
        spec = template["spec"]
        assert spec["serviceAccountName"] in accounts
        assert spec["priorityClassName"].startswith("system-")
        volumes = {each["name"]: each for each in spec.get("volumes", [])}
        mounts = spec["containers"][0].get("volumeMounts", [])
        assert {each["name"] for each in mounts} == volumes.keys()
        named = [v["configMap"]["name"] for v in volumes.values() if "configMap" in v]
        assert [each for each in named if each not in maps] == []


@pytest.mark.parametrize("name", RENDERED)
def test_every_binding_joins_a_role_with_an_account(name: str) -> None:
    roles = of_kind(name, "Role", "ClusterRole").keys() | BUILT_IN
    accounts = of_kind(name, "ServiceAccount")
    bound: set[str] = set()
    for binding in objects(name):
        if binding["kind"] not in ("RoleBinding", "ClusterRoleBinding"):
            continue
        assert binding["roleRef"]["name"] in roles
        (subject,) = binding["subjects"]
        assert (subject["kind"], subject["namespace"]) == (
            "ServiceAccount",
            "kube-system",
        )
        bound.add(subject["name"])

    assert bound == accounts.keys()


@pytest.mark.parametrize("name", RENDERED)
def test_probes_ask_a_port_that_is_there(name: str) -> None:
    for container in containers(name).values():
        ports = {port["name"] for port in container["ports"]}
        for probe in ("livenessProbe", "readinessProbe"):
            assert container[probe]["httpGet"]["port"] in ports


@pytest.mark.parametrize("name", RENDERED)
def test_images_have_a_version(name: str) -> None:
    images = {each["image"] for each in containers(name).values()}

    assert [
        each for each in images if not re.fullmatch(r".+:v?\d+\.\d+\.\d+", each)
    ] == []


@pytest.mark.parametrize("name", RENDERED)
def test_the_image_is_of_this_version(name: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    for program in programs(name):
        container = containers(name)[f"ascend-{program}"]
        assert container["image"] == f"ascend-affinity:{project['version']}"
        assert container["command"][0] in project["scripts"]


@pytest.mark.parametrize("name", RENDERED)
def test_the_programs_understand_their_arguments(name: str) -> None:
    for program in programs(name):
        container = containers(name)[f"ascend-{program}"]
        environ = {each["name"]: "n1" for each in container.get("env", [])}

        told: Any = settings.load(PROGRAMS[program], container["args"], environ)

        (port,) = container["ports"]
        everywhere = service.endpoints.parse_listen(f":{port['containerPort']}")
        assert service.endpoints.parse_listen(told.listen) == everywhere


def test_without_an_extender_the_agent_chooses_by_itself() -> None:
    alone = {name for name in RENDERED if programs(name) == ["agent"]}
    modes = {
        name: settings.load(
            AgentSettings,
            containers(name)["ascend-agent"]["args"],
            {"NODE_NAME": "n1"},
        ).mode
        for name in RENDERED
    }

    assert alone == {"overlays/standalone"}
    assert modes == {
        name: "standalone" if name in alone else "scheduled" for name in RENDERED
    }


def test_the_agent_finds_the_kubelet_where_it_is_mounted() -> None:
    spec = pod_templates("base")["ascend-agent"]["spec"]
    mounts = {m["name"]: m["mountPath"] for m in spec["containers"][0]["volumeMounts"]}
    hosts = {v["name"]: v["hostPath"]["path"] for v in spec["volumes"]}
    told = settings.load(AgentSettings, (), {"NODE_NAME": "n1"})

    assert mounts == {
        "device-plugins": str(told.kubelet_dir),
        "pod-resources": str(told.pod_resources_socket.parent),
        "state": str(told.state_dir),
    }
    assert hosts == mounts | {"state": "/run/ascend-agent"}


def test_the_grace_is_long_enough_to_end_in_order() -> None:
    endpoints_s = service.endpoints._STOP_S
    agent_s = server.DRAIN_S + server.FLUSH_S + reporter._FAREWELL_S + endpoints_s
    extender_s = extender.kube_scheduler.binder.STOP_S + endpoints_s
    graces = {
        name: template["spec"]["terminationGracePeriodSeconds"]
        for name, template in pod_templates("base").items()
    }

    assert graces["ascend-agent"] > agent_s
    assert graces["ascend-extender"] > extender_s


def test_only_the_agent_is_root() -> None:
    users = {
        each: container["securityContext"]["runAsUser"]
        for each, container in containers("overlays/second-scheduler").items()
    }

    assert {each for each, user in users.items() if user == 0} == {"ascend-agent"}


@pytest.mark.parametrize("name", RENDERED)
def test_no_container_can_gain_rights(name: str) -> None:
    for container in containers(name).values():
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert context["readOnlyRootFilesystem"] is True
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}


def configurations() -> dict[str, Object]:
    return {
        path.parent.name: yaml.safe_load(path.read_text())
        for path in DAEMONSET.glob("overlays/*/scheduler-configuration.yaml")
    }


@pytest.mark.seed("004-15")
@pytest.mark.parametrize("name", ["kube-scheduler", "second-scheduler"])
def test_the_scheduler_asks_the_extender_at_each_step_and_never_goes_round_it(
    name: str,
) -> None:
    configuration = configurations()[name]
    [extender_] = configuration["extenders"]
    told = settings.load(ExtenderSettings, (), {})
    timeout_s = float(extender_["httpTimeout"].removesuffix("s"))
    verbs = {verb: extender_[f"{verb}Verb"] for verb in STEPS}

    assert configuration["percentageOfNodesToScore"] == 100
    assert verbs == {verb: verb for verb in STEPS}
    assert "prioritizeVerb" not in extender_
    assert (extender_["nodeCacheCapable"], extender_["ignorable"]) == (True, False)
    assert timeout_s >= told.permit_s + 10
    assert not any(r["ignoredByScheduler"] for r in extender_["managedResources"])


def test_both_schedulers_call_the_extender_alike() -> None:
    found = configurations()
    extenders = [each["extenders"][0] for each in found.values()]
    urls = [each.pop("urlPrefix") for each in extenders]

    assert len(found) == len(set(urls)) == 2
    assert extenders[0] == extenders[1]
    managed = [each["name"] for each in extenders[0]["managedResources"]]
    assert managed == list(decode.RESOURCES)


def test_the_schedulers_find_the_extender() -> None:
    url = {
        name: each["extenders"][0]["urlPrefix"]
        for name, each in configurations().items()
    }
    service_ = of_kind("overlays/kube-scheduler", "Service")["ascend-extender"]
    (port,) = service_["spec"]["ports"]

    assert url == {
        "kube-scheduler": f"http://{service_['spec']['clusterIP']}:{port['port']}",
        "second-scheduler": f"http://ascend-extender.kube-system.svc:{port['port']}",
    }


def test_the_second_scheduler_has_the_configuration_and_the_lease() -> None:
    name = "overlays/second-scheduler"
    (config,) = of_kind(name, "ConfigMap").values()
    (path,) = containers(name)["ascend-scheduler"]["args"]
    told = configurations()["second-scheduler"]
    (lease,) = of_kind(name, "Role")["ascend-scheduler"]["rules"]

    assert path == f"--config=/etc/ascend-scheduler/{next(iter(config['data']))}"
    assert yaml.safe_load(next(iter(config["data"].values()))) == told
    assert lease["resourceNames"] == [told["leaderElection"]["resourceName"]]


def test_the_simulated_driver_reads_what_is_mounted() -> None:
    name = "overlays/simulated"
    config = of_kind(name, "ConfigMap")["ascend-simulated-npus"]
    spec = pod_templates(name)["ascend-agent"]["spec"]
    told = settings.load(AgentSettings, (), {"NODE_NAME": "n1"})
    mounts = {m["name"]: m["mountPath"] for m in spec["containers"][0]["volumeMounts"]}

    reading = file.parse(config["data"][told.driver_file.name])

    assert mounts["simulated-npus"] == str(told.driver_file.parent)
    assert (reading.chips, reading.stand_in) == (tuple(range(8)), "/dev/null")
