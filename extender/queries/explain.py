"""Why a pod is where it is, or why it is nowhere: for programs and for people."""

from dataclasses import dataclass
from typing import Any

from extender.cache import node_record
from extender.cache.cache import Cache
from extender.scheduling import node_filter
from extender.scheduling.decisions import Note, Notes
from scheduler_core.node import chips
from scheduler_core.wire.pods import NpuPod
from service import clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What is known of a pod: as a JSON object, and as lines for a terminal."""

    json: dict[str, Any]

    @property
    def text(self) -> str:
        """The same for a person."""
        found = self.json
        lines = [f"{found['pod']}: {found['state']}"]
        keys = (
            "job",
            "job_state",
            "node",
            "chips",
            "making_room",
            "problem",
            "reason",
            "at",
        )
        shown = [key for key in keys if key in found]
        lines += [f"  {key}: {_shown(found[key])}" for key in shown]
        nodes = found.get("nodes", {})
        if nodes:
            lines.append("  now, node by node:")
            lines += [f"    {name}: {text}" for name, text in sorted(nodes.items())]
        return "\n".join(lines) + "\n"


def explain(
    cache: Cache, notes: Notes, pod: NpuPod | None, *, name: str, now_s: float
) -> Explanation:
    """Explain what is known of a pod.

    Args:
        cache: the cluster now.
        notes: the decisions that were made.
        pod: None if there is none of that name that asks for NPUs.
        name: namespace/name, as asked.
        now_s: seconds since the epoch.
    """
    if pod is None:
        state = "unknown: no such pod, or it asks for no NPU"
        return Explanation(json={"pod": name, "state": state})
    found: dict[str, Any] = {
        "pod": name,
        "uid": pod.uid,
        "resource": pod.shape.resource,
        "count": pod.total,
    }
    found |= _of_job(cache, pod)
    if pod.terminal or pod.node:
        found |= _placed(cache, pod)
    else:
        found |= _pending(cache, pod, now_s)
    return Explanation(json=found | _decided(notes.get(pod.uid), pod))


def _decided(note: Note | None, pod: NpuPod) -> dict[str, Any]:
    """The last decision; not a refusal of a pod that somebody has bound since."""
    if note is None or (note.counts and pod.node):
        return {}
    found: dict[str, Any] = {"reason": note.text, "at": clock.rfc3339(note.at_s)}
    if note.counts:
        found["counts"] = [{"text": text, "nodes": n} for text, n in note.counts]
    return found


def _of_job(cache: Cache, pod: NpuPod) -> dict[str, Any]:
    """How far its job is, and where the plan has its pods."""
    gang = cache.gangs.of(pod.uid)
    if gang is None:
        return {}
    found: dict[str, Any] = {"job": gang.title, "job_state": gang.state}
    if gang.places:
        plan = {gang.seats[uid].name: node for uid, node in gang.places.items()}
        found["job_plan"] = dict(sorted(plan.items()))
    return found


def _placed(cache: Cache, pod: NpuPod) -> dict[str, Any]:
    state = cache.cluster.line(pod.shape.resource).get(pod.node)
    claimed = node_record.tenant_of(pod, state.product if state else None)
    return {
        "state": "ended" if pod.terminal else "bound",
        "node": pod.node,
        "chips": list(chips.ids_of(claimed.chips)),
        "confirmed": bool(claimed.chips) and not claimed.is_unconfirmed,
    }


def _pending(cache: Cache, pod: NpuPod, now_s: float) -> dict[str, Any]:
    judged = node_filter.judge(cache, pod, cache.cluster.names, now_s)
    nodes = dict.fromkeys(judged.fitting, "fits")
    nodes |= judged.texts(is_resolvable=True) | judged.texts(is_resolvable=False)
    found: dict[str, Any] = {"state": "pending", "nodes": nodes}
    if pod.problem:
        found["problem"] = pod.problem
    owner = cache.gangs.job_of.get(pod.uid, "")
    room = cache.rooms.get(owner) or cache.rooms.get(pod.uid)
    if room is not None:
        found["making_room"] = room.said
    promise = cache.assumed.get(pod.uid)
    if promise is not None:
        found |= {"node": promise.node, "chips": list(chips.ids_of(promise.chips))}
        found["state"] = "planned" if promise.planned else "being bound"
    return found


def _shown(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
