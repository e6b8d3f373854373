"""What does the kubelet say about a pod in its status?"""

from dataclasses import dataclass

from sandbox.apiclient import Object
from sandbox.kubelet.runtime import Run
from sandbox.pods import HOST_IP, Container, Pod
from scheduler_core.wire.shapes import ContainerKind
from service import clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why a container does not run yet, or a pod was not admitted."""

    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What the kubelet sees of one pod."""

    phase: str
    runs: dict[str, Run]
    waiting: dict[str, Reason]
    started_s: float
    pod_ip: str


def rejected(refusal: Reason) -> Object:
    """Return the status of a pod that was not admitted (kubelet.go:2589)."""
    return {
        "phase": "Failed",
        "reason": refusal.reason,
        "message": f"Pod was rejected: {refusal.message}",
        "startTime": clock.rfc3339(clock.wall_s()),
    }


def render(pod: Pod, seen: Observed) -> Object:
    """Return the status of a pod that was admitted."""
    init = [c for c in pod.containers if c.kind is not ContainerKind.APP]
    initialized = all(_is_initialized(c, seen.runs.get(c.name)) for c in init)
    lasting = [c for c in pod.containers if c.kind is not ContainerKind.INIT]
    ready = initialized and all(_is_ready(c, seen.runs.get(c.name)) for c in lasting)
    apps = [c for c in pod.containers if c.kind is ContainerKind.APP]
    status: Object = {
        "phase": seen.phase,
        "startTime": clock.rfc3339(seen.started_s),
        "hostIP": HOST_IP,
        "hostIPs": [{"ip": HOST_IP}],
        "podIP": seen.pod_ip,
        "podIPs": [{"ip": seen.pod_ip}],
        "conditions": _conditions(pod, seen, initialized=initialized, ready=ready),
        "containerStatuses": [_container(c, seen) for c in apps],
    }
    if init:
        status["initContainerStatuses"] = [_container(c, seen) for c in init]
    return status


def _is_initialized(container: Container, run: Run | None) -> bool:
    if container.kind is ContainerKind.SIDECAR:
        return run is not None
    return _is_ready(container, run)


def _conditions(
    pod: Pod, seen: Observed, *, initialized: bool, ready: bool
) -> list[Object]:
    before = {
        condition["type"]: condition
        for condition in pod.source.get("status", {}).get("conditions") or ()
    }
    states = {
        "Initialized": initialized,
        "Ready": ready,
        "ContainersReady": ready,
        "PodReadyToStartContainers": True,
    }
    mine = []
    for kind, state in states.items():
        status = "True" if state else "False"
        old = before.get(kind, {})
        since = clock.rfc3339(seen.started_s)
        if old.get("status") == status:
            since = old.get("lastTransitionTime") or since
        elif old:
            since = clock.rfc3339(clock.wall_s())
        mine.append({"type": kind, "status": status, "lastTransitionTime": since})
    return mine


def _container(container: Container, seen: Observed) -> Object:
    run = seen.runs.get(container.name)
    waiting = seen.waiting.get(container.name)
    status: Object = {
        "name": container.name,
        "image": container.image,
        "imageID": "",
        "restartCount": 0 if run is None else run.restarts,
        "ready": _is_ready(container, run),
        "started": run is not None and run.is_running,
    }
    if run is not None:
        status["containerID"] = _container_id(run)
    if run is None or (waiting is not None and not run.is_running):
        blank = Reason(reason="PodInitializing")
        if container.kind is not ContainerKind.APP:
            blank = Reason(reason="ContainerCreating")
        state = waiting or blank
        status["state"] = {"waiting": {"reason": state.reason}}
        if state.message:
            status["state"]["waiting"]["message"] = state.message
        status["lastState"] = {} if run is None else _state(run)
    else:
        status["state"] = _state(run)
    return status


def _is_ready(container: Container, run: Run | None) -> bool:
    if run is None:
        return False
    if container.kind is ContainerKind.INIT:
        return not run.is_running and run.exit_code == 0
    return run.is_running


def _state(run: Run) -> Object:
    started = clock.rfc3339(run.started_s)
    if run.is_running:
        return {"running": {"startedAt": started}}
    return {
        "terminated": {
            "exitCode": run.exit_code,
            "reason": "Completed" if run.exit_code == 0 else "Error",
            "startedAt": started,
            "finishedAt": clock.rfc3339(run.ended_s),
            "containerID": _container_id(run),
        }
    }


def _container_id(run: Run) -> str:
    return f"sandbox://{run.serial:064x}"
