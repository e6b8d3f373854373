"""The row of a pod: how many of its containers are ready, and what it is up to.

Source: Kubernetes v1.36.3, `printPod` in `pkg/printers/internalversion/printers.go`.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from sandbox.apiserver.objects import Object, is_true
from sandbox.apiserver.tables import ages
from sandbox.apiserver.tables.columns import AGE, NAME, Column

_NONE = "<none>"
_ENDED = ("Succeeded", "Failed")

COLUMNS = (
    NAME,
    Column(
        name="Ready",
        text="The aggregate readiness state of this pod for accepting traffic.",
    ),
    Column(name="Status", text="The aggregate status of the containers in this pod."),
    Column(
        name="Restarts",
        text="The number of times the containers in this pod have been restarted and "
        "when the last container in this pod has restarted.",
    ),
    AGE,
    Column(name="IP", is_wide=True, of=("api.core.v1.PodStatus", "podIP")),
    Column(name="Node", is_wide=True, of=("api.core.v1.PodSpec", "nodeName")),
    Column(
        name="Nominated Node",
        is_wide=True,
        of=("api.core.v1.PodStatus", "nominatedNodeName"),
    ),
    Column(
        name="Readiness Gates",
        is_wide=True,
        of=("api.core.v1.PodSpec", "readinessGates"),
    ),
)

_COMPLETED = {
    "Succeeded": "The pod has completed successfully.",
    "Failed": "The pod failed.",
}


@dataclasses.dataclass(slots=True)
class _Tally:
    """What the containers looked at so far add up to."""

    reason: str
    ready: int = 0
    restarts: int = 0
    last_restart: str = ""

    def count_restarts(self, container: Mapping[str, Any]) -> None:
        self.restarts += container.get("restartCount", 0)
        last = (container.get("lastState") or {}).get("terminated") or {}
        self.last_restart = max(self.last_restart, last.get("finishedAt") or "")


def cells(pod: Object, now_s: float) -> list[Any]:
    """Return the cells of a pod's row."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    sidecars = {
        container["name"]
        for container in spec.get("initContainers") or ()
        if container.get("restartPolicy") == "Always"
    }
    tally = _Tally(_first_reason(status))
    if _initialise(spec, status, sidecars, tally) or is_true(status, "Initialized"):
        _run(status, sidecars, tally)
    restarts = str(tally.restarts)
    if tally.restarts and tally.last_restart:
        restarts += f" ({ages.since(tally.last_restart, now_s)} ago)"
    addresses = status.get("podIPs") or [{}]
    return [
        f"{tally.ready}/{len(spec.get('containers') or ()) + len(sidecars)}",
        _final_reason(pod, tally.reason),
        restarts,
        addresses[0].get("ip") or _NONE,
        spec.get("nodeName") or _NONE,
        status.get("nominatedNodeName") or _NONE,
        _gates(spec, status),
    ]


def conditions(pod: Object) -> list[Object]:
    """Return what is said of the whole row: that the pod has ended."""
    phase = (pod.get("status") or {}).get("phase", "")
    if phase not in _ENDED:
        return []
    return [
        {
            "type": "Completed",
            "status": "True",
            "reason": phase,
            "message": _COMPLETED[phase],
        }
    ]


def _first_reason(status: Object) -> str:
    gated = any(
        condition.get("type") == "PodScheduled"
        and condition.get("reason") == "SchedulingGated"
        for condition in status.get("conditions") or ()
    )
    if gated:
        return "SchedulingGated"
    reason: str = status.get("reason") or status.get("phase") or ""
    return reason


def _initialise(
    spec: Object, status: Object, sidecars: set[str], tally: _Tally
) -> bool:
    """Go through the init containers; say whether all have done their part."""
    count = len(spec.get("initContainers") or ())
    for place, container in enumerate(status.get("initContainerStatuses") or ()):
        tally.count_restarts(container)
        state = container.get("state") or {}
        ended = state.get("terminated")
        if ended is not None and not ended.get("exitCode"):
            continue
        if container.get("name") in sidecars and container.get("started"):
            tally.ready += bool(container.get("ready"))
            continue
        waits = (state.get("waiting") or {}).get("reason", "")
        if ended is not None:
            tally.reason = f"Init:{_end(ended)}"
        elif waits and waits != "PodInitializing":
            tally.reason = f"Init:{waits}"
        else:
            tally.reason = f"Init:{place}/{count}"
        return False
    return True


def _run(status: Object, sidecars: set[str], tally: _Tally) -> None:
    """Go through the containers, the last first; init containers count no more."""
    tally.restarts, tally.last_restart = 0, ""
    for container in status.get("initContainerStatuses") or ():
        if container.get("name") in sidecars:
            tally.count_restarts(container)
    running, error = False, ""
    for container in reversed(status.get("containerStatuses") or ()):
        tally.count_restarts(container)
        state = container.get("state") or {}
        ended = state.get("terminated")
        if waits := (state.get("waiting") or {}).get("reason"):
            tally.reason = waits
        elif ended is not None:
            tally.reason = _end(ended)
            error = tally.reason if ended.get("exitCode") else error
        elif container.get("ready") and "running" in state:
            running = True
            tally.ready += 1
    if tally.reason == "Completed":
        tally.reason = _completed(status, error, running=running)


def _completed(status: Object, error: str, *, running: bool) -> str:
    """Return what to say of a pod of which a container has ended well."""
    if running and is_true(status, "Ready"):
        return "Running"
    if error:
        return error
    return "NotReady" if running else "Completed"


def _end(ended: Mapping[str, Any]) -> str:
    if reason := ended.get("reason"):
        return str(reason)
    if ended.get("signal"):
        return f"Signal:{ended['signal']}"
    return f"ExitCode:{ended.get('exitCode', 0)}"


def _final_reason(pod: Object, reason: str) -> str:
    if "deletionTimestamp" not in pod["metadata"]:
        return reason
    status = pod.get("status") or {}
    if status.get("reason") == "NodeLost":
        return "Unknown"
    return reason if status.get("phase") in _ENDED else "Terminating"


def _gates(spec: Object, status: Object) -> str:
    gates: Sequence[Object] = spec.get("readinessGates") or ()
    if not gates:
        return _NONE
    passed = sum(is_true(status, gate.get("conditionType", "")) for gate in gates)
    return f"{passed}/{len(gates)}"
