"""What the server itself does to Jobs: defaults, generated labels, rules.

What runs them is `sandbox.jobs`; fields that it does not serve are refused.

Source: Kubernetes v1.36.3, `pkg/apis/batch/v1/defaults.go`,
`pkg/apis/batch/validation/validation.go`, `pkg/registry/batch/job/strategy.go`.
"""

import copy
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sandbox.apiserver.objects import Object, is_true, metadata_of
from sandbox.apiserver.statuses import Problem

_JOB_NAME = ("job-name", "batch.kubernetes.io/job-name")
_UID = "batch.kubernetes.io/controller-uid"
_OWNER_UID = ("controller-uid", _UID)
_MODES = ("NonIndexed", "Indexed")
_ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
_OPERATORS = ("In", "NotIn")
_REPLACEMENTS = ("Failed", "TerminatingOrFailed")
_UNSERVED = ("backoffLimitPerIndex", "maxFailedIndexes", "successPolicy")
_COUNTS = (
    *("parallelism", "completions", "activeDeadlineSeconds"),
    *("backoffLimit", "ttlSecondsAfterFinished"),
)
_MOST_PARALLEL = 100_000
_HOST_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")
_IMMUTABLE = ("selector", "completionMode", "podFailurePolicy", "managedBy")
_FIXED = "field is immutable"
#: Of a suspended Job's template, what others (a queue of jobs) may still set.
_FREE_WHILE_SUSPENDED = ("affinity", "nodeSelector", "schedulingGates", "tolerations")


def default(job: Object) -> None:
    """Fill in what a Job does not say, but for its template's containers."""
    spec = job.setdefault("spec", {})
    template = spec.setdefault("template", {})
    template.setdefault("spec", {})
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    policy = spec.get("podFailurePolicy")
    for key, value in (
        ("parallelism", 1),
        ("backoffLimit", 6),
        ("completionMode", "NonIndexed"),
        ("suspend", False),
        ("manualSelector", False),
        ("podReplacementPolicy", "Failed" if policy else "TerminatingOrFailed"),
    ):
        spec.setdefault(key, value)
    for rule in (policy or {}).get("rules") or ():
        for pattern in rule.get("onPodConditions") or ():
            pattern.setdefault("status", "True")
    labels = metadata_of(template).get("labels")
    if labels and not job["metadata"].get("labels"):
        # The same map as by the real server: what a new template gets, the Job gets.
        job["metadata"]["labels"] = labels


def on_create(job: Object) -> None:
    """Give a new Job its selector, and its template the labels that it selects."""
    metadata, spec = job["metadata"], job["spec"]
    metadata["generation"] = 1
    job["status"] = {}
    labels = spec["template"].setdefault("metadata", {}).setdefault("labels", {})
    for key, value in _own_labels(metadata):
        labels.setdefault(key, value)
    selected = spec.setdefault("selector", {}).setdefault("matchLabels", {})
    selected.setdefault(_UID, metadata["uid"])


def rules(job: Object, of_template: Iterable[Problem]) -> Iterator[Problem]:
    """Yield what is wrong with a Job.

    Args:
        job: With its defaults.
        of_template: What is wrong with its template, as with any pod.
    """
    metadata, spec = job["metadata"], job["spec"]
    labels = metadata_of(spec["template"]).get("labels") or {}
    for key, value in _own_labels(metadata):
        if labels.get(key) != value:
            path = f"spec.template.metadata.labels[{key}]"
            yield Problem.invalid(path, labels, f"must be '{value}'")
    selected = spec.get("selector", {}).get("matchLabels") or {}
    if not selected or any(labels.get(key) != text for key, text in selected.items()):
        text = "`selector` not auto-generated"
        yield Problem.invalid("spec.selector", spec.get("selector"), text)
    for field in _COUNTS:
        if spec.get(field, 0) < 0:
            text = "must be greater than or equal to 0"
            yield Problem.invalid(f"spec.{field}", spec[field], text)
    yield from _mode(metadata.get("name", ""), spec)
    yield from _unserved(spec)
    yield from _failure_policy(spec)
    yield from of_template
    yield from _restarts(spec)


def update_rules(new: Object, old: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield what a change of a Job may not change."""
    spec, before = new["spec"], old["spec"]
    count = spec.get("completions")
    if spec["completionMode"] != "Indexed" and count != before.get("completions"):
        yield Problem.invalid("spec.completions", count, _FIXED)
    elif count != before.get("completions") and count != spec["parallelism"]:
        text = "can only be modified in tandem with spec.parallelism"
        yield Problem.invalid("spec.completions", count, text)
    for field in _IMMUTABLE:
        if spec.get(field) != before.get(field):
            yield Problem.invalid(f"spec.{field}", spec.get(field), _FIXED)
    status = old.get("status") or {}
    has_stopped = is_true(status, "Suspended") or "startTime" not in status
    is_free = before["suspend"] and has_stopped and not status.get("active")
    templates = [spec["template"], before["template"]]
    if is_free:
        templates = [_fixed_part(template) for template in templates]
    if templates[0] != templates[1]:
        yield Problem.invalid("spec.template", spec["template"], _FIXED)


def _own_labels(metadata: Object) -> Iterator[tuple[str, str]]:
    """Yield the labels by which a Job's pods are known as its own."""
    for key in _OWNER_UID:
        yield key, metadata["uid"]
    for key in _JOB_NAME:
        yield key, metadata.get("name", "")


def _mode(name: str, spec: Object) -> Iterator[Problem]:
    mode, count = spec["completionMode"], spec.get("completions")
    if mode not in _MODES:
        yield Problem.unsupported("spec.completionMode", mode, _MODES)
    if mode != "Indexed":
        return
    if count is None:
        text = "when completion mode is Indexed"
        yield Problem.required("spec.completions", text)
    if spec["parallelism"] > _MOST_PARALLEL:
        text = f"must be less than or equal to {_MOST_PARALLEL} when completion mode "
        yield Problem.invalid(
            "spec.parallelism", spec["parallelism"], f"{text}is Indexed"
        )
    if count and not _HOST_NAME.match(host := f"{name}-{count - 1}"):
        text = f"will not able to create pod with invalid DNS label: {host}"
        yield Problem.invalid("metadata.name", name, text)


def _unserved(spec: Object) -> Iterator[Problem]:
    for field in _UNSERVED:
        if field in spec:
            text = "the sandbox's Job controller does not serve this field"
            yield Problem.forbidden(f"spec.{field}", text)
    if spec["manualSelector"]:
        text = "the sandbox's Job controller selects by generated labels only"
        yield Problem.forbidden("spec.manualSelector", text)


def _failure_policy(spec: Object) -> Iterator[Problem]:
    policy, replacement = spec.get("podFailurePolicy"), spec["podReplacementPolicy"]
    allowed = _REPLACEMENTS if policy is None else _REPLACEMENTS[:1]
    for place, rule in enumerate((policy or {}).get("rules") or ()):
        path = f"spec.podFailurePolicy.rules[{place}]"
        yield from _failure_rule(path, rule)
    if replacement not in allowed:
        yield Problem.unsupported("spec.podReplacementPolicy", replacement, allowed)


def _failure_rule(path: str, rule: Object) -> Iterator[Problem]:
    action, codes = rule.get("action", ""), rule.get("onExitCodes")
    if action == "FailIndex":
        text = "requires the backoffLimitPerIndex to be set"
        yield Problem.invalid(f"{path}.action", action, text)
    elif action not in _ACTIONS:
        yield Problem.unsupported(f"{path}.action", action, _ACTIONS)
    if codes is not None:
        operator = codes.get("operator", "")
        if operator not in _OPERATORS:
            field = f"{path}.onExitCodes.operator"
            yield Problem.unsupported(field, operator, _OPERATORS)
        if not codes.get("values"):
            text = "at least one value is required"
            yield Problem.invalid(f"{path}.onExitCodes.values", None, text)
    if (codes is None) is not bool(rule.get("onPodConditions")):
        both = "specifying both OnExitCodes and OnPodConditions is not supported"
        none = "specifying one of OnExitCodes and OnPodConditions is required"
        text = f"Invalid value: {none if codes is None else both}"
        yield Problem(path, "FieldValueInvalid", text)


def _restarts(spec: Object) -> Iterator[Problem]:
    path = "spec.template.spec.restartPolicy"
    policy = spec["template"]["spec"].get("restartPolicy")
    if policy == "Always":
        yield Problem.required(path, 'valid values: "OnFailure", "Never"')
    elif policy not in {"OnFailure", "Never"}:
        yield Problem.unsupported(path, policy, ("OnFailure", "Never"))
    elif policy != "Never" and "podFailurePolicy" in spec:
        text = 'only "Never" is supported when podFailurePolicy is specified'
        yield Problem.invalid(path, policy, text)


def _fixed_part(template: Object) -> Object:
    """Return what of a template nobody may change while its Job is suspended."""
    fixed = copy.deepcopy(template)
    for field in ("annotations", "labels"):
        fixed.get("metadata", {}).pop(field, None)
    for field in _FREE_WHILE_SUSPENDED:
        fixed["spec"].pop(field, None)
    for part in ("initContainers", "containers"):
        for container in fixed["spec"].get(part) or ():
            container.pop("resources", None)
    return fixed
