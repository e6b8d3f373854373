"""What containers say of themselves: each writes down what it got when it began.

A look from outside misses the pods that live for a second; this does not. And each
container locks a file for each of its chips for as long as it lives, so a chip that two
have at once is found by the kernel, at the very moment, however short it was.
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.e2e import pods
from tests.e2e.places import RUNTIME
from tests.e2e.truth import numbers

_FOLDER = RUNTIME / "witness"
_RECORD = _FOLDER / "record"

# Locks and lines go with their process: an exit of whatever kind ends them.
_SCRIPT = r"""
trap 'exit 0' TERM
taken=
for chip in ${ASCEND_VISIBLE_DEVICES//,/ }; do
  exec {lock}>>/witness/chip-$chip
  flock -n $lock || taken=$taken,$chip
done
devices=$(cd /dev && echo davinci*)
devices=${devices//davinci/}
line="$POD_UID|$CONTAINER|$ASCEND_VISIBLE_DEVICES|${devices// /,}|$taken"
echo "$line" >>/witness/record
until [ -z "$PATIENT" ] || [ -e "/witness/served-$POD_UID" ]; do sleep 0.1; done
sleep "$LIFE" & wait
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What one container wrote down."""

    pod_uid: str
    container: str
    #: ASCEND_VISIBLE_DEVICES
    environment: tuple[int, ...]
    #: N of each /dev/davinciN
    devices: tuple[int, ...]
    #: chips that another container had at that moment
    taken: tuple[int, ...]


def begin() -> None:
    """Make an empty record."""
    shutil.rmtree(_FOLDER, ignore_errors=True)
    _FOLDER.mkdir(parents=True)


def served(pod_uid: str) -> None:
    """Tell the patient containers of a pod that everybody knows whose its chips are."""
    (_FOLDER / f"served-{pod_uid}").touch()


def lines() -> list[Line]:
    """Read what has been written down since `begin`."""
    if not _RECORD.exists():
        return []
    return [_line(text) for text in _RECORD.read_text(encoding="utf-8").splitlines()]


def container(
    name: str,
    chips: int,
    *,
    life: str = "infinity",
    is_patient: bool = False,
    **rest: Any,
) -> dict[str, Any]:
    """A container that writes down what it got, and lives so long.

    Args:
        name: Its name.
        chips: How many it asks for.
        life: For `sleep`.
        is_patient: Whether its life begins only when it is told that it is `served`:
            nobody ever says whose chips a pod had that ended before.
        rest: More of its specification; `env` is added to ours.
    """
    env = [
        {"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
        {"name": "CONTAINER", "value": name},
        {"name": "LIFE", "value": life},
        {"name": "PATIENT", "value": "yes" if is_patient else ""},
        *rest.pop("env", ()),
    ]
    mounts = [{"name": "witness", "mountPath": "/witness"}]
    ours = {"command": ["bash", "-c", _SCRIPT], "env": env, "volumeMounts": mounts}
    return pods.container(name, chips, **ours, **rest)


def pod(
    name: str, *containers: Mapping[str, Any], labels: Mapping[str, str], **spec: Any
) -> dict[str, Any]:
    """A pod of such containers, on the node's network: half the work of a start."""
    ours: dict[str, Any] = {
        "hostNetwork": True,
        "restartPolicy": "Never",
        "containers": list(containers),
        "volumes": [{"name": "witness", "hostPath": {"path": str(_FOLDER)}}],
    }
    return pods.pod(name, labels=labels, **(ours | spec))


def _line(text: str) -> Line:
    uid, name, environment, devices, taken = text.split("|")
    return Line(
        pod_uid=uid,
        container=name,
        environment=numbers(environment),
        devices=numbers(devices),
        taken=numbers(taken),
    )
