"""Pods for tests: what they ask for, and nothing more."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from tests.e2e.configurations import RESOURCE
from tests.e2e.images import BASE_IMAGE

#: Sleeps, and ends as soon as it is asked to, which a bare `sleep` does not as the
#: first process of a container.
_SLEEP = ["sh", "-c", "trap 'exit 0' TERM; sleep infinity & wait"]

#: A container's variable that has its pod's chips, as the scheduler wrote them.
READS = {
    "name": "ASCEND_VISIBLE_DEVICES",
    "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{RESOURCE}']"}},
}


def container(name: str, chips: int = 0, **rest: Any) -> dict[str, Any]:
    """A container that sleeps, with so many chips."""
    limits = {RESOURCE: str(chips)} if chips else {}
    return {
        "name": name,
        "image": BASE_IMAGE,
        "imagePullPolicy": "Never",
        "command": _SLEEP,
        "resources": {"limits": limits},
        **rest,
    }


def first_container(chips: int = 1) -> dict[str, Any]:
    """An init container with so many chips, which ends at once."""
    return container("init", chips, command=["true"])


def pod(
    name: str,
    chips: int = 0,
    *,
    labels: Mapping[str, str] = MappingProxyType({}),
    **spec: Any,
) -> dict[str, Any]:
    """A pod that sleeps and ends soon after it is deleted.

    Args:
        name: Its name.
        chips: For its one container, `main`.
        labels: Its labels.
        spec: More of its specification; `containers` replaces the one.
    """
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": dict(labels)},
        "spec": {
            "terminationGracePeriodSeconds": 5,
            "automountServiceAccountToken": False,
            "containers": [container("main", chips)],
            **spec,
        },
    }
