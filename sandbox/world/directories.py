"""What of a world lies where on disk?

One directory holds everything. It is kept short, because the path of a unix
socket must stay below 108 bytes.
"""

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sandbox import clock
from sandbox.world.machines import Machine

RESOURCE = "huawei.com/Ascend910"
#: Chips of an Atlas 800 training server (MindCluster, "Affinity Scheduling
#: Description", Table 1).
CHIP_COUNT = 8
#: MindCluster's code for a chip that fell off the bus (faultCode.json).
FAULT_CODE = "80818C00"

#: sockaddr_un.sun_path, with its terminating zero (unix(7)).
_SOCKET_PATH_BYTES = 108
#: What lies below the root at most, with room for a long node name.
_BELOW_ROOT_BYTES = 64
_PREFIX = "ascend-"
#: What the simulated driver of a node reads, below the node's root. It finds the second
#: one, the processes of containers, by the name of the first.
_DRIVER_FILE = "driver.yaml"
PROCESS_FILE = "driver.processes.yaml"
#: How often to try to remove it, and how long to wait in between.
_REMOVALS, _PAUSE_S = 10, 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPlane:
    """An API server to join, and how everybody shows it who they are."""

    url: str
    #: what its certificate is checked with, if it has one
    authority: Path | None = None
    #: {user name: bearer token}; by default the sandbox's own form
    token_of: Callable[[str], str] = "user:{}".format
    #: of an extender that is up as well; "": the world starts its own
    extender_url: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """What an agent has to be told about its node."""

    name: str
    #: the kubelet's sockets, and everything below
    root: Path
    api_url: str
    #: of the kubelet, for /pods
    kubelet_url: str
    service_account_dir: Path
    #: what kind of server it is
    machine: Machine

    @property
    def kubelet_dir(self) -> Path:
        """Where plugins put their sockets."""
        return self.root / "device-plugins"

    @property
    def pod_resources_socket(self) -> Path:
        """Where the kubelet tells which pod has which device."""
        return self.root / "pod-resources" / "kubelet.sock"

    @property
    def state_dir(self) -> Path:
        """Where the agent keeps its journal."""
        return self.root / "agent"

    @property
    def driver_file(self) -> Path:
        """What the simulated driver reads, again and again."""
        return self.root / _DRIVER_FILE

    @property
    def address_file(self) -> Path:
        """Where the agent says where it listens."""
        return self.root / "address"

    @property
    def clock_file(self) -> Path:
        """How far the clock on the agent's wall has been stepped."""
        return self.root / "clock"

    def set_faults(self, chips: Iterable[int]) -> None:
        """Break these chips and mend all others, by editing the driver's file.

        Args:
            chips: Physical ids; may be empty.
        """
        lines = ["faults:"]
        lines += [f'  - {{chip: {chip}, code: "{FAULT_CODE}"}}' for chip in chips]
        self.describe(self.machine.description + "\n".join(lines) + "\n")

    def begin(self) -> None:
        """Write the driver's file for the first time, and set the clock."""
        clock.begin(self.clock_file)
        if self.machine.driver_file is None:
            self.set_faults(())
        else:
            self.describe(self.machine.driver_file.read_text(encoding="utf-8"))

    def describe(self, text: str) -> None:
        """Put a text in the place of the driver's file, at once."""
        draft = self.driver_file.with_suffix(".draft")
        draft.write_text(text, encoding="utf-8")
        draft.replace(self.driver_file)


@dataclass(frozen=True, slots=True, kw_only=True)
class Premises:
    """The directory of one world."""

    root: Path

    @property
    def logs(self) -> Path:
        """What the child processes say."""
        return self.root / "logs"

    @property
    def kubeconfig(self) -> Path:
        """How kubectl finds the API server."""
        return self.root / "kubeconfig"

    def service_account(self, user: str, control: ControlPlane) -> Path:
        """Make a service account's directory, as a pod would have it mounted.

        Args:
            user: Whom the API server shall know by its token.
            control: That API server.
        """
        directory = self.root / "accounts" / user
        directory.mkdir(parents=True)
        token = control.token_of(user)
        (directory / "token").write_text(f"{token}\n", encoding="utf-8")
        if control.authority is not None:
            shutil.copy(control.authority, directory / "ca.crt")
        return directory

    def write_kubeconfig(self, api_url: str) -> None:
        """Let kubectl in as an administrator."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "sandbox",
            "clusters": [{"name": "sandbox", "cluster": {"server": api_url}}],
            "users": [{"name": "admin", "user": {"token": "user:admin"}}],
            "contexts": [
                {"name": "sandbox", "context": {"cluster": "sandbox", "user": "admin"}}
            ],
        }
        # JSON is YAML.
        self.kubeconfig.write_text(json.dumps(config, indent=2), encoding="utf-8")


@contextmanager
def opened(below: Path | None = None) -> Iterator[Premises]:
    """Have a directory that is removed at the end, whatever lies in it then.

    Args:
        below: Where to make it, unless that would make socket paths too long;
            where temporary files go by default.
    """
    parent = below or Path(tempfile.gettempdir())
    if len(bytes(parent)) + _BELOW_ROOT_BYTES > _SOCKET_PATH_BYTES:
        parent = Path("/tmp")  # noqa: S108  # mkdtemp makes its own directory there
    root = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    try:
        premises = Premises(root=root)
        premises.logs.mkdir()
        yield premises
    finally:
        _remove(root)


def _remove(root: Path) -> None:
    """Remove a directory in which a gRPC server may still make or unlink its socket.

    One that is stopped while it begins does so on threads of its own.
    """
    for _ in range(_REMOVALS - 1):
        try:
            shutil.rmtree(root)
        except OSError:
            time.sleep(_PAUSE_S)
        else:
            return
    shutil.rmtree(root)
