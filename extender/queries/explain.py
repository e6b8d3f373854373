"""Explanation of one pod: why it is on its node, or why each node refuses it."""

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from heapq import nsmallest
from typing import Any

from extender.cache import node_state
from extender.cache.cache import Cache
from extender.cache.decode import RESOURCES
from extender.cache.node_state import ResourceState, Tenant
from extender.gang import fault_policy
from extender.gang.fault_policy import Switch
from extender.queries.job_state import Sources, describe_job
from extender.refusals import describe_clock
from extender.scheduling.decisions import LastDecision
from extender.scheduling.node_filter import FilterResult
from kube import objects
from scheduler_core.node import chips, reasons
from scheduler_core.node.reasons import Reason
from scheduler_core.placement import one_kind
from scheduler_core.products import lookup
from scheduler_core.wire import annotations
from scheduler_core.wire.chip_faults import ChipFault, Effect, settle_s
from scheduler_core.wire.pods import NpuPod
from service import clock

#: {effect of a pod's worst fault: what follows for the pod, and what to do}
_ADVICE: Mapping[Effect, str] = {
    Effect.OUT_OF_SERVICE: "the pod keeps its chips until it ends, and nothing moves "
    "it by itself; delete it, or have its job restart it",
    Effect.RECOVERING: "the chip comes back by itself once its fault stays away; if "
    "the pod does not go on by then, delete it, or have its job restart it",
    Effect.NETWORK: "the chip works, but a job of several pods may hang or slow down, "
    "and nothing moves it by itself; to get other chips, delete the pod, or have its "
    "job restart it",
    Effect.NONE: "the pod can go on; nothing to do now",
}
#: The same of a pod that is moved after faults, if its job says so.
_IS_MOVED = (
    "its job asks to be moved after faults, and is moved by itself: nothing to do, "
    "unless rescheduling says that no pod goes"
)
#: Keys of an explanation that people see before its faults, in this order.
_SHOWN = (
    *("job", "job_state", "job_since", "job_pods", "why", "needs", "ahead"),
    "kept_places",
    *(
        "node",
        "chips",
        "part",
        "report_problem",
        "making_room",
        "problem",
        "reason",
        "at",
    ),
)
#: Most nodes that are named for one reason.
_NAMED = 3
_UNKNOWN = "unknown: no such pod, or it asks for no NPU"
#: What a node says that would take the pod.
_FITS = "fits"


def render_text(answer: Mapping[str, Any]) -> str:
    """Return the explanation of one pod as lines of text, for people."""
    lines = [f"{answer['pod']}: {answer['state']}"]
    for key in _SHOWN:
        value = answer.get(key, [])
        if key == "chips" and value:
            value = ",".join(map(str, value))
        values = value if isinstance(value, list) else [value]
        lines += [f"  {key}: {one}" for one in values]
    lines += [f"  fault: {_render_fault(fault)}" for fault in answer.get("faults", ())]
    lines += [f"  advice: {advice}" for advice in answer.get("advice", ())]
    if "rescheduling" in answer:
        lines.append(f"  rescheduling: {answer['rescheduling']['text']}")
    if reasons_now := answer.get("reasons"):
        lines.append("  now, by reason:")
        lines += (line for reason in reasons_now for line in _render_reason(reason))
    if nodes := answer.get("nodes"):
        lines.append("  now, node by node:")
        lines += [f"    {name}: {text}" for name, text in sorted(nodes.items())]
    return "\n".join(lines) + "\n"


def explain(
    sources: Sources, pod: NpuPod, *, move: Mapping[str, Any], by_node: bool = False
) -> dict[str, Any]:
    """Return the explanation of one pod as JSON: state, job, node, chips, reasons.

    Args:
        move: Assessment and move of its job after a fault; empty if there is none.
        by_node: Whether each node is told, besides the reasons with counts.
    """
    is_placed = bool(pod.terminal or pod.node)
    result = None if is_placed else sources.judge(pod)
    answer: dict[str, Any] = {
        "pod": f"{pod.namespace}/{pod.name}",
        "uid": pod.uid,
        "resource": pod.shape.resource,
        "count": pod.total,
    }
    answer |= describe_job(sources, pod, result, move)
    of_job = answer.get("advice", [])
    if result is None:
        answer |= _describe_placed(sources, pod, move)
    else:
        answer |= _describe_pending(sources.cache, pod, result, by_node=by_node)
    if of_job:
        answer["advice"] = list(dict.fromkeys((*answer["advice"], *of_job)))
    # an assessment is about pods that run; a move also about their successors
    if move and (result is None or "move" in move):
        answer["rescheduling"] = dict(move)
    return answer | _describe_last_decision(sources.notes.get(pod.uid), pod)


def explain_unknown(name: str, found: objects.Pod | None) -> dict[str, Any]:
    """Return the explanation of a pod that the extender does not know.

    Args:
        name: "namespace/name" from the request.
        found: The pod on the API server; None if it has none, or does not say.
    """
    if found is None or found.spec.node_name:
        return {"pod": name, "state": _UNKNOWN}
    containers = (*(found.spec.init_containers or ()), *(found.spec.containers or ()))
    limits = {key for one in containers for key in one.resources.limits or ()}
    asked = [key for key in sorted(limits) if key.lower().startswith("huawei.com/")]
    if (
        not asked
        or not limits.isdisjoint(RESOURCES)
        or lookup.find_virtual_row(asked[0])
    ):
        return {"pod": name, "state": _UNKNOWN}
    known = {resource.lower(): resource for resource in RESOURCES}
    like = get_close_matches(asked[0].lower(), known, n=1)
    meant = known[like[0]] if like else " or ".join(RESOURCES)
    return {
        "pod": name,
        "uid": found.metadata.uid,
        "resource": asked[0],
        "state": "pending",
        "problem": f"{asked[0]} is no resource of chips, so no node ever offers it",
        "advice": [f"ask for {meant}"],
    }


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


def _describe_placed(
    sources: Sources, pod: NpuPod, move: Mapping[str, Any]
) -> dict[str, Any]:
    cache = sources.cache
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
    wishes = cache.wishes(pod.uid)
    policy = fault_policy.policy_of([wishes.texts] if wishes else ())
    asks = policy.switch is not Switch.OFF or bool(move)
    is_moved = sources.is_evicting and asks
    return answer | _describe_health(resource_state, claimed, is_moved=is_moved)


def _describe_health(
    resource_state: ResourceState, tenant: Tenant, *, is_moved: bool
) -> dict[str, Any]:
    """Return the JSON fields of a pod's faults; {} without any and with a good report.

    Faults are those of the last report if the agent is silent. What to do follows from
    the first, which is the worst.

    Args:
        is_moved: Whether the pod is evicted by itself if a fault is bad enough.
    """
    answer: dict[str, Any] = {}
    if resource_state.unreadable_report is not None:
        answer["report_problem"] = resource_state.unreadable_report.text
    elif resource_state.is_silent:
        answer["report_problem"] = reasons.reason_text(Reason.AGENT_SILENT)
    faults = resource_state.faults_of(tenant)
    if faults:
        answer["faults"] = [_describe_fault(fault) for fault in faults]
        goes = is_moved and settle_s(faults[0]) is not None
        answer["advice"] = [_IS_MOVED if goes else _ADVICE[faults[0].effect]]
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


def _describe_pending(
    cache: Cache, pod: NpuPod, result: FilterResult, *, by_node: bool
) -> dict[str, Any]:
    groups = {_FITS: [*result.fitting]} if result.fitting else {}
    for refusal, names in result.refused:
        groups.setdefault(refusal.text, []).extend(names)
    answer: dict[str, Any] = {"state": "pending"}
    answer["reasons"] = [
        _describe_reason(cache, pod, text, groups[text])
        for text in sorted(groups, key=lambda text: (-len(groups[text]), text))
    ]
    if by_node:
        answer["nodes"] = {
            name: _in_full(cache, pod, name, text)
            for text, names in groups.items()
            for name in names
        }
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


def _describe_reason(
    cache: Cache, pod: NpuPod, text: str, names: Sequence[str]
) -> dict[str, Any]:
    """Return the JSON of nodes with one answer: how many, some names, some details."""
    shown = nsmallest(_NAMED, names)
    in_full = {name: _in_full(cache, pod, name, text) for name in shown}
    details = [f"{name}: {full}" for name, full in in_full.items() if full != text]
    reason: dict[str, Any] = {"nodes": len(names), "text": text, "names": shown}
    return reason | ({"details": details} if details else {})


def _in_full(cache: Cache, pod: NpuPod, name: str, text: str) -> str:
    """Return what a node answers to a pod, with details that schedulers do not get."""
    resource_state = cache.resource_state(name, pod.shape.resource)
    unreadable = resource_state.find_unreadable() if resource_state else None
    if unreadable is not None and unreadable.refusal == text:
        return unreadable.text
    ahead_s = resource_state.node_info.clock_ahead_s if resource_state else 0.0
    if ahead_s and text != _FITS:
        text = f"{text}; {describe_clock(name, ahead_s)}"
    row = cache.row_asked_for(pod.uid)
    server = resource_state.product if resource_state else None
    if row is None or server is None or server == row:
        return text
    return f"{text}; {one_kind.describe_other(row, [server])}"


def _render_reason(reason: Mapping[str, Any]) -> Iterator[str]:
    count, names = reason["nodes"], ", ".join(reason["names"])
    more = count - len(reason["names"])
    yield (
        f"    {count} {'node' if count == 1 else 'nodes'}: {reason['text']} "
        f"({names}{f' and {more} more' if more else ''})"
    )
    yield from (f"      {detail}" for detail in reason.get("details", ()))


def _render_fault(fault: Mapping[str, Any]) -> str:
    part = f"chip {fault['chip']}" + (", its network" if fault["network"] else "")
    words = [fault.get("level", "level unknown"), ",".join(fault["codes"])]
    words += [f"since {fault['since']}"] if "since" in fault else []
    return f"{part}: {' '.join(filter(None, words))}; {fault['effect']}"
