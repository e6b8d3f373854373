"""Two columns that no Kubernetes has: which chips a pod has, and why.

They stand behind all others and only where more is asked for (`kubectl get pods -o
wide`), so that nobody who counts columns is led astray.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from sandbox.apiserver.objects import Object
from sandbox.apiserver.tables.columns import Column

_NONE = "<none>"
#: What was mounted; see `scheduler_core.wire.annotations`.
_HELD = "huawei.com/AscendReal"
_CLAIMS = ("huawei.com/Ascend", "huawei.com/npu")
_ENDED = ("Succeeded", "Failed")
#: The event with which the extender says why a pod is where it is.
_TOLD = "AscendScheduled"

COLUMNS = (
    Column(
        name="Chips",
        is_wide=True,
        text="The Ascend chips that are mounted into the pod; (claimed) while the "
        "scheduler has chosen them and no container has them yet, (ended) when the "
        "pod is over and had them.",
    ),
    Column(
        name="Why",
        is_wide=True,
        text="Why the pod waits, has failed, or is on this node.",
    ),
)


def cells(pod: Object, told: Mapping[str, str]) -> list[Any]:
    """Return the cells of a pod.

    Args:
        pod: The pod.
        told: {uid: why the pod is where it is}
    """
    return [_chips(pod), _why(pod, told) or _NONE]


def reasons(events: Iterable[Object]) -> dict[str, str]:
    """Return what events say about the places of pods, {uid: the last word}."""
    found = {}
    for event in events:
        if event.get("reason") == _TOLD:
            uid = (event.get("involvedObject") or {}).get("uid", "")
            found[uid] = event.get("message", "")
    return found


def _chips(pod: Object) -> str:
    annotations: Mapping[str, str] = pod["metadata"].get("annotations") or {}
    held = annotations.get(_HELD)
    claimed = [
        value
        for key, value in annotations.items()
        if key.startswith(_CLAIMS) and key != _HELD
    ]
    names = held or (claimed[0] if claimed else "")
    if not names:
        return _NONE
    ids = (name.rpartition("-")[2] for name in names.split(","))
    # What was mounted is listed by letters: 0, 1, 10, 2.
    chips = ",".join(sorted(ids, key=lambda text: (len(text), text)))
    if (pod.get("status") or {}).get("phase") in _ENDED:
        return f"{chips} (ended)"
    return chips if held else f"{chips} (claimed)"


def _why(pod: Object, told: Mapping[str, str]) -> str:
    status = pod.get("status") or {}
    if message := status.get("message"):
        return str(message)
    for condition in status.get("conditions") or ():
        if (
            condition.get("type") == "PodScheduled"
            and condition.get("status") != "True"
        ):
            return str(condition.get("message", ""))
    return told.get(pod["metadata"].get("uid", ""), "")
