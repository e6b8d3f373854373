"""What the agent can be told, and what it says when the machine is not like that."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent import settings as agent_settings
from agent.settings import Settings
from service.settings import SettingsError, load


@pytest.fixture
def machine(tmp_path: Path) -> Settings:
    """Settings that name what is there."""
    for name in ("device-plugins", "state", "account"):
        (tmp_path / name).mkdir()
    (tmp_path / "account" / "token").write_text("user:agent")
    return load(
        Settings,
        [
            "--node-name=node-1",
            f"--kubelet-dir={tmp_path}/device-plugins",
            f"--state-dir={tmp_path}/state",
            f"--service-account-dir={tmp_path}/account",
        ],
        {},
    )


def problems_of(settings: Settings) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as caught:
        agent_settings.verify(settings)
    return caught.value.problems


def test_the_node_name_alone_is_enough() -> None:
    assert load(Settings, [], {"NODE_NAME": "node-1"}) == Settings(
        node_name="node-1",
        mode="scheduled",
        numa_topology=False,
        kubelet_dir=Path("/var/lib/kubelet/device-plugins"),
        pod_resources_socket=Path("/var/lib/kubelet/pod-resources/kubelet.sock"),
        kubelet_url="",
        api_server="",
        kubeconfig=None,
        service_account_dir=Path("/var/run/secrets/kubernetes.io/serviceaccount"),
        state_dir=Path("/var/lib/ascend-agent"),
        memory_dir=None,
        driver="auto",
        dcmi_library=None,
        product="",
        mount="auto",
        cdi_dir=Path("/var/run/cdi"),
        driver_file=Path("/etc/ascend-agent/npu.yaml"),
        driver_poll_s=0.2,
        driver_deadline_s=5.0,
        survey_wait_s=600.0,
        recover_s=1.0,
        listen="127.0.0.1:9410",
        address_file=None,
        pod_name="",
        pod_namespace="",
        namespace="kube-system",
        heartbeat_s=300.0,
        reconcile_period_s=5.0,
        log_level="info",
    )


@pytest.mark.parametrize("name", ["", "Node", "a b", "-a", "a.", "a" * 254])
def test_what_is_no_node_name_is_refused(name: str) -> None:
    with pytest.raises(SettingsError, match="expected a node name"):
        load(Settings, [f"--node-name={name}"], {})


def test_all_wrong_settings_are_named_at_once() -> None:
    with pytest.raises(SettingsError) as caught:
        load(Settings, ["--driver=acl", "--heartbeat-s=0", "--recover-s=x"], {})

    assert caught.value.problems == (
        "--node-name: expected a value, found none anywhere",
        "--driver: expected one of auto, dcmi, simulated, found 'acl'",
        "--recover-s: expected a number, found 'x'",
        "--heartbeat-s: expected 1 or more, found '0'",
    )


def test_a_machine_that_has_everything_is_fine(machine: Settings) -> None:
    agent_settings.verify(machine)


def test_everything_that_is_missing_is_named_at_once(
    machine: Settings, tmp_path: Path
) -> None:
    for name in ("device-plugins", "state"):
        (tmp_path / name).rmdir()
    (tmp_path / "account" / "token").unlink()

    assert problems_of(machine) == (
        (
            "--kubelet-dir: expected a usable directory at "
            f"{tmp_path}/device-plugins, found none"
        ),
        f"--state-dir: expected a usable directory at {tmp_path}/state, found none",
        (
            "--service-account-dir: expected a usable file at "
            f"{tmp_path}/account/token, found none"
        ),
    )


@pytest.mark.parametrize(
    ("field", "name"), [("service_account_dir", "nowhere"), ("kubelet_dir", "file")]
)
def test_what_is_missing_or_no_directory_is_named_once(
    machine: Settings, tmp_path: Path, field: str, name: str
) -> None:
    (tmp_path / "file").touch()
    told: dict[str, Any] = {field: tmp_path / name}
    flag = f"--{field.replace('_', '-')}"

    assert problems_of(replace(machine, **told)) == (
        f"{flag}: expected a usable directory at {tmp_path}/{name}, found none",
    )


def test_with_a_kubeconfig_no_service_account_is_needed(
    machine: Settings, tmp_path: Path
) -> None:
    machine = replace(
        machine,
        service_account_dir=tmp_path / "nowhere",
        kubeconfig=tmp_path / "config",
    )
    assert problems_of(machine) == (
        f"--kubeconfig: expected a usable file at {tmp_path}/config, found none",
    )

    (tmp_path / "config").touch()

    agent_settings.verify(machine)


def test_a_disk_that_became_read_only_does_not_keep_an_agent_from_starting(
    machine: Settings,
) -> None:
    # Who is root may write whatever its mode, but not there: `make e2e-faults`.
    machine.state_dir.chmod(0o500)

    agent_settings.verify(machine, is_read_only=lambda path: path == machine.state_dir)


def test_what_is_missing_ends_the_program_with_2_and_a_sentence(
    machine: Settings, tmp_path: Path
) -> None:
    (tmp_path / "device-plugins").rmdir()

    ended = subprocess.run(  # noqa: S603  # our own interpreter
        [
            sys.executable,
            "-m",
            "agent",
            f"--node-name={machine.node_name}",
            f"--kubelet-dir={machine.kubelet_dir}",
            f"--state-dir={machine.state_dir}",
            f"--service-account-dir={machine.service_account_dir}",
        ],
        check=False,
        capture_output=True,
        text=True,
        timeout=30,
    )

    assert (ended.returncode, ended.stderr) == (
        2,
        (
            "--kubelet-dir: expected a usable directory at "
            f"{tmp_path}/device-plugins, found none\n"
        ),
    )


def test_the_boot_id_is_the_kernels(tmp_path: Path) -> None:
    (tmp_path / "boot_id").write_text("b-1\n")

    assert agent_settings.boot_id(tmp_path / "boot_id") == "b-1"


def test_reading_the_settings_costs_no_kubernetes_package() -> None:
    code = "import agent.settings, sys; sys.exit('kubernetes' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0  # noqa: S603  # our own interpreter


def test_numa_topology_is_for_standalone_mode(machine: Settings) -> None:
    aligned = replace(machine, numa_topology=True)

    agent_settings.verify(replace(aligned, mode="standalone"))
    assert problems_of(aligned) == (
        "--numa-topology: expected --mode standalone, found scheduled",
    )
