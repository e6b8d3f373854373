"""Components, put on an overlay as their first lines say."""

import os
import subprocess
from pathlib import Path

import yaml

from tests.daemonset.rendered import DAEMONSET, KUBECTL, needs_kubectl, unknown_fields


@needs_kubectl
def test_with_chips_the_agent_may_load_the_drivers_library(tmp_path: Path) -> None:
    base = os.path.relpath(DAEMONSET / "overlays/kube-scheduler", tmp_path)
    chips = os.path.relpath(DAEMONSET / "components/chips", tmp_path)
    (tmp_path / "kustomization.yaml").write_text(
        yaml.safe_dump({"resources": [base], "components": [chips]})
    )
    shown = subprocess.run(  # noqa: S603  # our own manifests
        [str(KUBECTL), "kustomize", str(tmp_path)],
        capture_output=True,
        check=True,
        text=True,
    )

    (agent,) = [
        each for each in yaml.safe_load_all(shown.stdout) if each["kind"] == "DaemonSet"
    ]
    pod = agent["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    mounts = {each["mountPath"] for each in container["volumeMounts"]}
    assert unknown_fields(agent) == []
    assert pod["hostPID"] is True
    assert container["securityContext"]["privileged"] is True
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert {"/usr/local/Ascend/driver", "/usr/local/dcmi", "/dev"} <= mounts
    assert {"/var/lib/ascend-agent", "/var/lib/kubelet/pod-resources"} <= mounts
