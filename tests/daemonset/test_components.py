"""Components, put on an overlay as their first lines say."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.daemonset.rendered import (
    DAEMONSET,
    KUBECTL,
    Object,
    needs_kubectl,
    unknown_fields,
)

pytestmark = needs_kubectl

AgentWith = Callable[..., Object]


@pytest.fixture
def agent_with(tmp_path: Path) -> AgentWith:
    def rendered(*components: str) -> Object:
        def at(path: str) -> str:
            return os.path.relpath(DAEMONSET / path, tmp_path)

        (tmp_path / "kustomization.yaml").write_text(
            yaml.safe_dump(
                {
                    "resources": [at("overlays/kube-scheduler")],
                    "components": [at(f"components/{name}") for name in components],
                }
            )
        )
        shown = subprocess.run(  # noqa: S603  # our own manifests
            [str(KUBECTL), "kustomize", str(tmp_path)],
            capture_output=True,
            check=True,
            text=True,
        )
        found = yaml.safe_load_all(shown.stdout)
        (agent,) = [each for each in found if each["kind"] == "DaemonSet"]
        assert unknown_fields(agent) == []
        pod: Object = agent["spec"]["template"]["spec"]
        return pod

    return rendered


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


def test_with_chips_the_agent_may_load_the_drivers_library(
    agent_with: AgentWith,
) -> None:
    pod = agent_with("chips")

    assert pod["hostPID"] is True
    assert pod["containers"][0]["securityContext"]["privileged"] is True
    assert pod["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True
    assert mounts(pod) == {
        **BASE,
        "/usr/local/Ascend/driver": "/usr/local/Ascend/driver",
        "/usr/local/dcmi": "/usr/local/dcmi",
        "/dev": "/dev",
    }


def test_with_cdi_the_agent_may_write_the_spec(agent_with: AgentWith) -> None:
    pod = agent_with("simulated", "cdi")

    assert "--mount=cdi" in pod["containers"][0]["args"]
    assert mounts(pod) == {**BASE, "/var/run/cdi": "/var/run/cdi"}
