"""A namespace of the cluster, and pods in it."""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import kubernetes.client

from tests.e2e.cluster import Cluster
from tests.e2e.commands import until
from tests.e2e.stages import CannotError


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """A namespace of the cluster; as a text, its name."""

    cluster: Cluster
    name: str

    @classmethod
    def new(cls, cluster: Cluster, prefix: str) -> Self:
        """Make a namespace in which pods can be made."""
        name = f"{prefix}-{secrets.token_hex(3)}"
        cluster.core.create_namespace({"metadata": {"name": name}})
        until(
            lambda: cluster.exists("serviceaccount", "default", name),
            f"the service account of {name}",
            within_s=60,
        )
        return cls(cluster=cluster, name=name)

    def __str__(self) -> str:
        return self.name

    def create(self, pod: Mapping[str, Any]) -> None:
        """Create a pod."""
        self.cluster.core.create_namespaced_pod(self.name, pod)

    def create_when_free(self, pod: Mapping[str, Any]) -> str:
        """Create a pod as soon as no other has its name; returns its UID."""
        uids: list[str] = []

        def created() -> bool:
            try:
                made = self.cluster.core.create_namespaced_pod(self.name, pod)
            except kubernetes.client.ApiException as error:
                if error.status == 409:  # its predecessor is still going
                    return False
                raise
            uids.append(made.metadata.uid)
            return True

        what = f"pod {pod['metadata']['name']} created"
        until(created, what, within_s=120, every_s=0.02)
        return uids[0]

    def run(self, *pods: Mapping[str, Any]) -> Any:
        """Create pods and wait until all run; returns the last."""
        for pod in pods:
            self.create(pod)
        return [self.wait_running(pod["metadata"]["name"]) for pod in pods][-1]

    def delete(self, name: str) -> None:
        """Delete a pod, which then has its grace."""
        self.cluster.core.delete_namespaced_pod(name, self.name)

    def pods(self, **selector: str) -> list[Any]:
        """The pods, or those selected."""
        found = self.cluster.core.list_namespaced_pod(self.name, **selector)
        return list(found.items)

    def pod(self, name: str) -> Any:
        """The pod of that name."""
        return self.cluster.core.read_namespaced_pod(name, self.name)

    def execute(self, pod: str, *command: str) -> str:
        """Run a command in a pod's first container."""
        return self.cluster.kubectl("exec", "-n", self.name, pod, "--", *command)

    def events(self, reason: str) -> list[Any]:
        """The events that have this reason."""
        return self.cluster.events(self.name, reason)

    def has_event(self, reason: str, name: str) -> bool:
        """Whether an event with this reason is about the object of that name."""
        return name in {each.involved_object.name for each in self.events(reason)}

    def wait_running(self, name: str) -> Any:
        """Wait until all containers of a pod run; returns the pod."""

        def runs(status: Any) -> bool:
            if status.phase in {"Failed", "Succeeded"}:
                raise CannotError(f"{name} has ended: {status.message}")
            statuses = status.container_statuses or []
            return bool(statuses) and all(each.state.running for each in statuses)

        return self._wait_pod(name, "running", runs)

    def wait_rejected(self, name: str) -> str:
        """Wait until the kubelet has rejected a pod; returns what its user reads."""

        def is_rejected(status: Any) -> bool:
            return bool(status.reason == "UnexpectedAdmissionError")

        found = self._wait_pod(name, "rejected", is_rejected)
        return str(found.status.message)

    def wait_empty(self, **selector: str) -> None:
        """Wait until the pods, or those selected, are really gone."""
        until(lambda: not self.pods(**selector), f"pods of {self} gone", within_s=240)

    def _wait_pod(self, name: str, what: str, is_so: Callable[[Any], bool]) -> Any:
        seen: list[Any] = []

        def reached() -> bool:
            seen[:] = [self.pod(name)]
            return is_so(seen[0].status)

        until(reached, lambda: f"{self}/{name} {what}; it is {seen}", within_s=120)
        return seen[0]
