"""Which objects the server refuses, and what it says.

The rules that our programs and users can run into, not all of Kubernetes': names,
labels, containers, extended resources, events' namespaces, what may change later.

Source: Kubernetes v1.36.3, `pkg/apis/core/validation/`.
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any

from sandbox.apiserver import jobs
from sandbox.apiserver.objects import Object, containers_of, metadata_of
from sandbox.apiserver.openapi.strictness import GO_KINDS
from sandbox.apiserver.resources import Resource
from sandbox.apiserver.statuses import Problem
from scheduler_core.wire import quantities

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS_LABEL = re.compile(rf"{_LABEL}$")
_SUBDOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})*$")
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$")
_CONFIG_KEY = re.compile(r"[-._a-zA-Z0-9]+$")
_ANNOTATION_BYTES = 256 * 1024

_SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric "
    "characters, '-' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters "
    "or '-', and must start and end with an alphanumeric character (e.g. 'my-name', "
    " or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_LABEL_VALUE_TEXT = (
    "a valid label must be an empty string or consist of alphanumeric characters, "
    "'-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_UPDATABLE = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` "
    "(only additions to existing tolerations),`spec.terminationGracePeriodSeconds` "
    "(allow it to be set to 1 if it was previously negative)"
)
#: Metadata that stays what it was.
_IMMUTABLE = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp")


def type_error(document: Object) -> str:
    """Return what a typed decoder would say about maps of text, "" if nothing."""
    metadata = metadata_of(document)
    maps = {
        "ObjectMeta.metadata.annotations": metadata.get("annotations"),
        "ObjectMeta.metadata.labels": metadata.get("labels"),
    }
    if document.get("kind") == "ConfigMap":
        maps["ConfigMap.data"] = document.get("data")
    for field, value in maps.items():
        members = value.values() if isinstance(value, dict) else [value or ""]
        for member in members:
            if member is not None and not isinstance(member, str):
                kind = GO_KINDS[type(member)]
                return (
                    f"json: cannot unmarshal {kind} into Go struct field {field} "
                    "of type string"
                )
    return ""


def on_create(resource: Resource, document: Object) -> list[Problem]:
    """Return what is wrong with a new object."""
    return [*_metadata(resource, document), *_kind_rules(resource, document)]


def on_update(resource: Resource, new: Object, old: Object) -> list[Problem]:
    """Return what is wrong with a changed object."""
    problems = [
        Problem.invalid(f"metadata.{field}", new_value, "field is immutable")
        for field in _IMMUTABLE
        if (new_value := metadata_of(new).get(field)) != metadata_of(old).get(field)
    ]
    problems += _map_rules(metadata_of(new))
    problems += _kind_rules(resource, new)
    if resource.kind == "Pod":
        problems += _pod_update(new, old)
    if resource.kind == "Job":
        problems += jobs.update_rules(new, old)
    if resource.kind == "ConfigMap" and old.get("immutable"):
        problems += _immutable_config(new, old)
    return problems


def _metadata(resource: Resource, document: Object) -> Iterator[Problem]:
    metadata = metadata_of(document)
    name = metadata.get("name", "")
    if not name:
        yield Problem.required("metadata.name", "name or generateName is required")
    elif resource.kind == "Namespace":
        if not _DNS_LABEL.match(name) or len(name) > 63:
            yield Problem.invalid("metadata.name", name, _LABEL_TEXT)
    elif not _SUBDOMAIN.match(name) or len(name) > 253:
        yield Problem.invalid("metadata.name", name, _SUBDOMAIN_TEXT)
    yield from _map_rules(metadata)


def _map_rules(metadata: Mapping[str, Any]) -> Iterator[Problem]:
    for key, value in (metadata.get("labels") or {}).items():
        yield from _qualified("metadata.labels", key)
        if value and (len(value) > 63 or not _QUALIFIED.match(value)):
            yield Problem.invalid("metadata.labels", value, _LABEL_VALUE_TEXT)
    annotations = metadata.get("annotations") or {}
    for key in annotations:
        yield from _qualified("metadata.annotations", key.lower())
    size = sum(len(k.encode()) + len(v.encode()) for k, v in annotations.items())
    if size > _ANNOTATION_BYTES:
        yield Problem(
            "metadata.annotations",
            "FieldValueTooLong",
            f"Too long: may not be more than {_ANNOTATION_BYTES} bytes",
        )


def _qualified(field: str, key: str) -> Iterator[Problem]:
    prefix, slash, name = key.rpartition("/")
    if not name or len(name) > 63 or not _QUALIFIED.match(name):
        yield Problem.invalid(field, key, "name part must be a qualified name")
    if slash and (len(prefix) > 253 or not _SUBDOMAIN.match(prefix)):
        yield Problem.invalid(field, key, f"prefix part {_SUBDOMAIN_TEXT}")


def _kind_rules(resource: Resource, document: Object) -> Iterator[Problem]:
    match resource.kind:
        case "Pod":
            yield from _pod(document)
        case "ConfigMap":
            for key in document.get("data") or {}:
                if not _CONFIG_KEY.match(key) or len(key) > 253:
                    yield Problem.invalid("data", key, "not a valid config key")
        case "Event":
            yield from _event(document)
        case "Job":
            yield from jobs.rules(document, _template(document))
        case _:
            pass


def _pod(document: Object) -> Iterator[Problem]:
    if not document["spec"].get("containers"):
        yield Problem.required("spec.containers")
    names: set[str] = set()
    for path, container in containers_of(document):
        name = container.get("name", "")
        if not name:
            yield Problem.required(f"{path}.name")
        elif not _DNS_LABEL.match(name) or len(name) > 63:
            yield Problem.invalid(f"{path}.name", name, _LABEL_TEXT)
        if name in names:
            yield Problem.duplicate(f"{path}.name", name)
        names.add(name)
        if not container.get("image"):
            yield Problem.required(f"{path}.image")
        yield from _resources(f"{path}.resources", container.get("resources") or {})


def _template(job: Object) -> Iterator[Problem]:
    for problem in _pod(job["spec"]["template"]):
        yield dataclasses.replace(problem, field=f"spec.template.{problem.field}")


def _is_extended(name: str) -> bool:
    prefix, slash, _ = name.partition("/")
    return bool(slash) and not prefix.endswith("kubernetes.io")


def _resources(path: str, needs: Mapping[str, Any]) -> Iterator[Problem]:
    limits, requests = needs.get("limits") or {}, needs.get("requests") or {}
    for field, amounts in (("limits", limits), ("requests", requests)):
        for name, value in amounts.items():
            yield from _amount(f"{path}.{field}[{name}]", name, value)
    for name, value in requests.items():
        if not _is_extended(name):
            continue
        if name not in limits:
            yield Problem.required(
                f"{path}.limits", "Limit must be set for non overcommitable resources"
            )
        elif value != limits[name]:
            message = f"must be equal to {name} limit of {limits[name]}"
            yield Problem.invalid(f"{path}.requests", value, message)


def _amount(path: str, name: str, value: str) -> Iterator[Problem]:
    if value.startswith("-"):
        yield Problem.invalid(path, value, "must be greater than or equal to 0")
    if _is_extended(name) and quantities.parse(value).whole is None:
        yield Problem.invalid(path, value, "must be an integer")


def _event(document: Object) -> Iterator[Problem]:
    own = metadata_of(document).get("namespace", "")
    involved = document["involvedObject"].get("namespace", "")
    # Events of cluster-scoped objects live in the default namespace.
    if own != (involved or "default"):
        yield Problem.invalid(
            "involvedObject.namespace", involved, "does not match event.namespace"
        )


def _pod_update(new: Object, old: Object) -> Iterator[Problem]:
    changed, kept = new["spec"], old["spec"]
    for field in ("containers", "initContainers"):
        if len(changed.get(field) or ()) != len(kept.get(field) or ()):
            yield Problem.forbidden(
                f"spec.{field}", "pod updates may not add or remove containers"
            )
            return
    added = changed.get("tolerations") or []
    if not all(toleration in added for toleration in kept.get("tolerations") or ()):
        yield Problem.forbidden(
            "spec.tolerations",
            "existing toleration can not be modified except its tolerationSeconds",
        )
    if _fixed_part(changed) != _fixed_part(kept):
        yield Problem.forbidden("spec", _UPDATABLE)


def _fixed_part(spec: Mapping[str, Any]) -> Object:
    """Return the part of a pod's spec that never changes."""
    free = {"tolerations", "activeDeadlineSeconds", "schedulingGates"}
    fixed = {key: value for key, value in spec.items() if key not in free}
    for field in ("containers", "initContainers"):
        fixed[field] = [
            {key: value for key, value in container.items() if key != "image"}
            for container in spec.get(field) or ()
        ]
    return fixed


def _immutable_config(new: Object, old: Object) -> Iterator[Problem]:
    for field in ("immutable", "data", "binaryData"):
        if new.get(field) != old.get(field):
            yield Problem.forbidden(field, "field is immutable when `immutable` is set")
