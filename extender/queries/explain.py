"""Explanation of one pod: why it is on its node, or why each node refuses it."""

from collections.abc import Iterable, Mapping
from typing import Any

from extender.cache import node_state
from extender.cache.cache import Cache
from extender.cache.node_state import ResourceState, Tenant
from extender.gang.job_plan import Phase
from extender.planning import elastic, units
from extender.refusals import describe_clock
from extender.scheduling import node_filter
from extender.scheduling.decisions import LastDecision, LastDecisions
from scheduler_core.node import chips, reasons
from scheduler_core.node.reasons import Reason
from scheduler_core.placement import one_kind
from scheduler_core.products import lookup
from scheduler_core.wire import annotations
from scheduler_core.wire.chip_faults import ChipFault, Effect
from scheduler_core.wire.pods import NpuPod
from service import clock

#: {effect of a pod's worst fault: what follows for the pod, and what to do}
_ADVICE: Mapping[str, str] = {
    Effect.OUT_OF_SERVICE.value: "the pod keeps its chips until it ends, and nothing "
    "moves it by itself; delete it, or have its job restart it",
    Effect.RECOVERING.value: "the chip comes back by itself once its fault stays away; "
    "if the pod does not go on by then, delete it, or have its job restart it",
    Effect.NETWORK.value: "the chip works, but a job of several pods may hang or slow "
    "down, and nothing moves it by itself; to get other chips, delete the pod, or have "
    "its job restart it",
    Effect.NONE.value: "the pod can go on; nothing to do now",
}


def render_text(answer: Mapping[str, Any]) -> str:
    """Return the explanation of one pod as lines of text, for people."""
    lines = [f"{answer['pod']}: {answer['state']}"]
    keys = (
        "job",
        "job_state",
        "node",
        "chips",
        "part",
        "report_problem",
        "making_room",
        "problem",
        "reason",
        "at",
    )
    shown = [key for key in keys if key in answer]
    lines += [f"  {key}: {_render_value(answer[key])}" for key in shown]
    lines += _render_faults(answer.get("faults", ()))
    if "rescheduling" in answer:
        lines.append(f"  rescheduling: {answer['rescheduling']['text']}")
    nodes = answer.get("nodes", {})
    if nodes:
        lines.append("  now, node by node:")
        lines += [f"    {name}: {text}" for name, text in sorted(nodes.items())]
    return "\n".join(lines) + "\n"


def explain(  # what an explanation is about
    cache: Cache,
    notes: LastDecisions,
    pod: NpuPod | None,
    *,
    name: str,
    now_s: float,
    move: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the explanation of a pod as JSON: state, job, node, chips, last decision.

    Args:
        move: The assessment of its job, where a chip broke; empty if there is none.
        pod: The pod; None if no pod that asks for NPUs has this name.
        name: "namespace/name" from the request.
    """
    if pod is None:
        state = "unknown: no such pod, or it asks for no NPU"
        return {"pod": name, "state": state}
    answer: dict[str, Any] = {
        "pod": name,
        "uid": pod.uid,
        "resource": pod.shape.resource,
        "count": pod.total,
    }
    answer |= _describe_job(cache, pod)
    if pod.terminal or pod.node:
        answer |= _describe_placed(cache, pod)
        answer |= {"rescheduling": dict(move)} if move else {}
    else:
        answer |= _describe_pending(cache, pod, now_s)
        # an assessment is about pods that run; a move also about their successors
        answer |= {"rescheduling": dict(move)} if move and "move" in move else {}
    return answer | _describe_last_decision(notes.get(pod.uid), pod)


def _describe_last_decision(note: LastDecision | None, pod: NpuPod) -> dict[str, Any]:
    """Return the JSON fields of a pod's last decision; {} if `note` is None.

    Also {} if the decision refused all nodes and the pod is bound by now.
    """
    if note is None or (note.counts and pod.node):
        return {}
    answer: dict[str, Any] = {"reason": note.text, "at": clock.rfc3339(note.at_s)}
    if note.counts:
        answer["counts"] = [{"text": text, "nodes": n} for text, n in note.counts]
    return answer


def _describe_job(cache: Cache, pod: NpuPod) -> dict[str, Any]:
    """Return the JSON fields of a pod's job: name, state and planned nodes.

    Return {} if the pod has no job that is planned as a whole.
    """
    gang = cache.gang_of(pod.uid)
    if gang is None:
        return {}
    answer: dict[str, Any] = {"job": gang.title, "job_state": gang.state}
    if gang.plan.places:
        plan = {gang.members[uid].name: node for uid, node in gang.plan.places.items()}
        answer["job_plan"] = dict(sorted(plan.items()))
    return answer


def _describe_placed(cache: Cache, pod: NpuPod) -> dict[str, Any]:
    state = cache.index.nodes(pod.shape.resource).get(pod.node)
    claimed = node_state.tenant_of(pod, state.product if state else None)
    answer: dict[str, Any] = {
        "state": "ended" if pod.terminal else "bound",
        "node": pod.node,
        "chips": list(chips.ids_of(claimed.chips)),
        "confirmed": bool(claimed.chips) and not claimed.is_unconfirmed,
        **_name_part(cache, pod, pod.node, claimed.chips),
    }
    resource_state = cache.resource_state(pod.node, pod.shape.resource)
    if pod.terminal or resource_state is None:
        return answer
    return answer | _describe_health(resource_state, claimed)


def _describe_health(resource_state: ResourceState, tenant: Tenant) -> dict[str, Any]:
    """Return the JSON fields of a pod's faults; {} without any and with a good report.

    Faults are those of the last report if the agent is silent.
    """
    answer: dict[str, Any] = {}
    if resource_state.unreadable_report is not None:
        answer["report_problem"] = resource_state.unreadable_report.text
    elif resource_state.is_silent:
        answer["report_problem"] = reasons.reason_text(Reason.AGENT_SILENT)
    faults = resource_state.faults_of(tenant)
    if faults:
        answer["faults"] = [_describe_fault(fault) for fault in faults]
    return answer


def _describe_fault(fault: ChipFault) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "chip": fault.chip,
        "network": fault.network,
        "effect": fault.effect.value,
        "codes": list(fault.codes),
    }
    if fault.level is not None:
        answer["level"] = fault.level
    if fault.since_ms is not None:
        answer["since"] = clock.rfc3339(fault.since_ms / 1000)
    return answer


def _describe_pending(cache: Cache, pod: NpuPod, now_s: float) -> dict[str, Any]:
    names, gang = cache.index.names, cache.gang_of(pod.uid)
    if (
        gang is not None
        and gang.plan.phase is Phase.GATHERING
        and gang.plan.text
        and node_filter.pod_refusal(cache, pod, now_s) is None
    ):
        why = elastic.why_unplanned(gang, pod.uid, units.read_waiting(gang))
        result = node_filter.refuse_unplanned(cache, pod, names, why)
    else:
        result = node_filter.judge_nodes(cache, pod, names, now_s)
    nodes = dict.fromkeys(result.fitting, "fits")
    nodes |= result.texts(is_resolvable=True) | result.texts(is_resolvable=False)
    nodes = {name: _in_full(cache, pod, name, text) for name, text in nodes.items()}
    answer: dict[str, Any] = {"state": "pending", "nodes": nodes}
    if pod.problem:
        answer["problem"] = pod.problem
    job = cache.job_of(pod.uid)
    reservations = [*(cache.kept_for(job) if job else ()), *cache.kept_for(pod.uid)]
    freed = next(
        (reservation for reservation in reservations if reservation.claim is None), None
    )
    if freed is not None:
        answer["making_room"] = freed.text
    reservation = cache.reservation(pod.uid)
    if reservation is not None:
        answer |= {
            "node": reservation.node,
            "chips": list(chips.ids_of(reservation.chips)),
            **_name_part(cache, pod, reservation.node, reservation.chips),
        }
        answer["state"] = "being bound" if reservation.is_sent else "planned"
    return answer


def _name_part(cache: Cache, pod: NpuPod, node: str, mask: int) -> dict[str, str]:
    """Return the JSON field with the name of a pod's part of a chip; {} for chips.

    Also {} on a node where the kubelet chooses the part.
    """
    row = lookup.find_virtual_row(pod.shape.resource)
    resource_state = cache.resource_state(node, pod.shape.resource)
    is_counted = resource_state is None or resource_state.is_counted
    if row is None or is_counted or not mask:
        return {}
    return {"part": annotations.render_chips(chips.ids_of(mask), row)}


def _in_full(cache: Cache, pod: NpuPod, name: str, text: str) -> str:
    """Return what a node answers to a pod, with details that schedulers do not get."""
    resource_state = cache.resource_state(name, pod.shape.resource)
    unreadable = resource_state.find_unreadable() if resource_state else None
    if unreadable is not None and unreadable.refusal == text:
        return unreadable.text
    ahead_s = resource_state.node_info.clock_ahead_s if resource_state else 0.0
    if ahead_s and text != "fits":
        text = f"{text}; {describe_clock(name, ahead_s)}"
    row = cache.row_asked_for(pod.uid)
    server = resource_state.product if resource_state else None
    if row is None or server is None or server == row:
        return text
    return f"{text}; {one_kind.describe_other(row, [server])}"


def _render_faults(faults: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a line for each fault, then what to do about the first, which is worst."""
    lines = [f"  fault: {_render_fault(fault)}" for fault in faults]
    advice = [f"  advice: {_ADVICE[fault['effect']]}" for fault in faults]
    return lines + advice[:1]


def _render_fault(fault: Mapping[str, Any]) -> str:
    part = f"chip {fault['chip']}" + (", its network" if fault["network"] else "")
    words = [fault.get("level", "level unknown"), ",".join(fault["codes"])]
    words += [f"since {fault['since']}"] if "since" in fault else []
    return f"{part}: {' '.join(filter(None, words))}; {fault['effect']}"


def _render_value(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
