"""The running cluster, as tests see it."""

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import kubernetes.client
import kubernetes.config

from tests.e2e import configurations, images, machine
from tests.e2e.assembly import Assembly, assemble, token
from tests.e2e.commands import run, until
from tests.e2e.places import (
    API_PORT,
    DEVICE_PLUGIN_DIR,
    KUBELET_PORT,
    NODE,
    POD_RESOURCES_SOCKET,
    Places,
)
from tests.e2e.stages import CannotError


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """One real cluster with one node."""

    places: Places
    #: the node's, at which the API server serves
    address: str
    #: the six programs: `cluster.programs.kubelet.kill()`
    programs: Assembly

    node: str = NODE
    device_plugin_dir: Path = DEVICE_PLUGIN_DIR
    pod_resources_socket: Path = POD_RESOURCES_SOCKET
    base_image: str = images.BASE_IMAGE

    @classmethod
    def at(cls, places: Places, address: str) -> Self:
        """Describe the cluster at these places; nothing is started."""
        return cls(places=places, address=address, programs=assemble(places, address))

    @classmethod
    def attach(cls) -> Self:
        """Take over the cluster that is up.

        Raises:
            CannotError: None is.
        """
        recorded = machine.read_record()
        if recorded is None or not recorded[0].kubeconfig().exists():
            raise CannotError("no cluster is up: `KEEP=1 make e2e` leaves one")
        places, _ = recorded
        document = json.loads(places.kubeconfig().read_text(encoding="utf-8"))
        server = document["clusters"][0]["cluster"]["server"]
        return cls.at(places, server.removeprefix("https://").split(":")[0])

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.places.kubeconfig()

    @property
    def api_url(self) -> str:
        """Where the API server is."""
        return f"https://{self.address}:{API_PORT}"

    @property
    def kubelet_url(self) -> str:
        """Where the kubelet's own API is."""
        return f"https://{self.address}:{KUBELET_PORT}"

    @property
    def token(self) -> str:
        """The administrator's bearer token."""
        return token(self.kubeconfig)

    @functools.cached_property
    def client(self) -> Any:
        """The official client, as the administrator."""
        return kubernetes.config.new_client_from_config(  # type: ignore[no-untyped-call]
            str(self.kubeconfig)
        )

    @property
    def core(self) -> Any:
        """The official client's CoreV1Api."""
        return kubernetes.client.CoreV1Api(self.client)

    @property
    def apps(self) -> Any:
        """The official client's AppsV1Api."""
        return kubernetes.client.AppsV1Api(self.client)

    @property
    def batch(self) -> Any:
        """The official client's BatchV1Api."""
        return kubernetes.client.BatchV1Api(self.client)

    def kubectl(self, *arguments: str | Path, stdin: str | None = None) -> str:
        """Run kubectl and return what it prints."""
        program = self.places.programs / "kubectl"
        ours = (
            "--kubeconfig",
            self.kubeconfig,
            "--cache-dir",
            self.places.run / "kubectl",
        )
        return run(program, *ours, *arguments, stdin=stdin)

    def events(self, namespace: str, reason: str) -> list[Any]:
        """The events of a namespace that have this reason."""
        return list(
            self.core.list_namespaced_event(
                namespace, field_selector=f"reason={reason}"
            ).items
        )

    def report(self) -> Any:
        """The ConfigMap that the agent writes about the node."""
        name = f"mindx-dl-deviceinfo-{self.node}"
        return self.core.read_namespaced_config_map(name, "kube-system")

    def exists(self, kind: str, name: str, namespace: str) -> bool:
        """Whether there is such an object."""
        found = self.kubectl(
            "get", kind, name, "-n", namespace, "--ignore-not-found", "-o", "name"
        )
        return bool(found)

    def ctr(self, *arguments: str | Path) -> str:
        """Ask containerd about the kubelet's containers."""
        return images.ctr(*arguments)

    def load_image(self, archive: Path) -> None:
        """Import a docker archive into the node's containerd."""
        images.load(archive)

    def container_pids(self) -> dict[str, int]:
        """The first process of each running container, by the container's id."""
        rows = (line.split() for line in self.ctr("tasks", "ls").splitlines()[1:])
        # One that has ended is listed, by its old number, until somebody removes it.
        return {name: int(pid) for name, pid, state in rows if state == "RUNNING"}

    def container_pid(self, container_id: str) -> int:
        """The number of a container's first process on this machine.

        Args:
            container_id: As in the pod's status, `containerd://…`.
        """
        return self.container_pids()[container_id.removeprefix("containerd://")]

    def use_extender(self, url: str) -> None:
        """Give the scheduler another extender (none: ""), and restart it."""
        text = configurations.scheduler(self.places, url)
        self.places.configuration("scheduler").write_text(text, encoding="utf-8")
        self.programs.scheduler.restart()

    def heal(self) -> None:
        """Start whatever does not run, thaw whatever is frozen."""
        for program in self.programs.all:
            program.thaw()
            if not program.is_running:
                program.start()
        self.wait_node_ready()

    def wait_node_ready(self) -> None:
        """Wait until pods can run: the node is ready, and so is their account."""

        def ready() -> bool:
            try:
                node = self.core.read_node(self.node)
                self.core.read_namespaced_service_account("default", "default")
            except kubernetes.client.ApiException as error:
                if error.status == 404:
                    return False
                raise
            return any(
                condition.type == "Ready" and condition.status == "True"
                for condition in node.status.conditions
            )

        until(ready, f"{self.node} ready", within_s=240, every_s=0.2)
