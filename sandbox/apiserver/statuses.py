"""What the server answers when it does not answer an object: Status documents.

Source: apimachinery v0.36.3, `pkg/api/errors/errors.go` and
`pkg/util/validation/field/errors.go`; the texts are those of the real server,
because clients and people match on them.
"""

import dataclasses
import json
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Self

from sandbox.apiserver.objects import Object
from sandbox.apiserver.resources import Resource


class StatusError(Exception):
    """A request failed; `document` is the Status that says why.

    Attributes:
        code: HTTP status code.
        document: The whole Status object.
    """

    def __init__(
        self, code: int, message: str, *, reason: str | None = None, **details: Any
    ) -> None:
        """Make the Status.

        Args:
            code: HTTP status code.
            message: For people.
            reason: For programs; by default the code's name, without blanks.
            details: Those with no value are left out.
        """
        super().__init__(message)
        self.code = code
        self.document = _status("Failure", code=code, message=message)
        if reason is None:
            reason = HTTPStatus(code).phrase.replace(" ", "")
        if reason:
            self.document["reason"] = reason
        if shown := {key: value for key, value in details.items() if value}:
            self.document["details"] = shown


@dataclasses.dataclass(frozen=True, slots=True)
class Problem:
    """One field that is wrong.

    Attributes:
        field: Path of the field, `spec.containers[0].name`.
        cause: The machine-readable kind of cause, `FieldValueRequired`.
        body: What a person reads after the path.
    """

    field: str
    cause: str
    body: str

    @classmethod
    def required(cls, field: str, message: str = "") -> Self:
        """Make the problem of a missing field."""
        return cls(field, "FieldValueRequired", _joined("Required value", message))

    @classmethod
    def invalid(cls, field: str, value: Any, message: str) -> Self:
        """Make the problem of a field with a wrong value."""
        shown = json.dumps(value, ensure_ascii=False)
        return cls(field, "FieldValueInvalid", f"Invalid value: {shown}: {message}")

    @classmethod
    def unsupported(cls, field: str, value: str, supported: Sequence[str]) -> Self:
        """Make the problem of a field that is none of a few texts."""
        known = ", ".join(map(json.dumps, supported))
        text = f"Unsupported value: {json.dumps(value)}: supported values: {known}"
        return cls(field, "FieldValueNotSupported", text)

    @classmethod
    def duplicate(cls, field: str, value: Any) -> Self:
        """Make the problem of a value that occurs twice."""
        shown = json.dumps(value)
        return cls(field, "FieldValueDuplicate", f"Duplicate value: {shown}")

    @classmethod
    def forbidden(cls, field: str, message: str) -> Self:
        """Make the problem of a field that must not be set so."""
        return cls(field, "FieldValueForbidden", _joined("Forbidden", message))


def _joined(kind: str, message: str) -> str:
    return f"{kind}: {message}" if message else kind


def _status(outcome: str, **rest: Any) -> Object:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": outcome,
        **rest,
    }


def created() -> Object:
    """Return the Status of a POST to a subresource that succeeded."""
    return _status("Success", code=HTTPStatus.CREATED)


def deleted(resource: Resource, name: str, uid: str) -> Object:
    """Return the Status of a deletion; the real one has no code in it either."""
    group = {"group": resource.group} if resource.group else {}
    details = {"name": name, **group, "kind": resource.plural, "uid": uid}
    return _status("Success", details=details)


def page_not_found() -> StatusError:
    """Return the error: nothing is served at this path."""
    message = "the server could not find the requested resource"
    error = StatusError(HTTPStatus.NOT_FOUND, message)
    error.document["details"] = {}
    return error


def _of_object(
    code: int, resource: Resource, name: str, message: str, reason: str | None = None
) -> StatusError:
    """Return an error about one object, whose details name it."""
    return StatusError(
        code,
        f'{resource.qualified} "{name}" {message}',
        reason=reason,
        name=name,
        group=resource.group,
        kind=resource.plural,
    )


def not_found(resource: Resource, name: str) -> StatusError:
    """Return the error: there is no such object."""
    return _of_object(HTTPStatus.NOT_FOUND, resource, name, "not found")


def already_exists(resource: Resource, name: str) -> StatusError:
    """Return the error: an object of that name exists."""
    message, reason = "already exists", "AlreadyExists"
    return _of_object(HTTPStatus.CONFLICT, resource, name, message, reason)


def conflict(
    resource: Resource, name: str, why: str, subresource: str = ""
) -> StatusError:
    """Return the error: the object is not in the state that the request assumed."""
    plural = f"{resource.plural}/{subresource}" if subresource else resource.plural
    qualified = f"{plural}.{resource.group}" if resource.group else plural
    return StatusError(
        HTTPStatus.CONFLICT,
        f'Operation cannot be fulfilled on {qualified} "{name}": {why}',
        name=name,
        group=resource.group,
        kind=plural,
    )


def modified(resource: Resource, name: str) -> StatusError:
    """Return the conflict of a stale resource version."""
    return conflict(
        resource,
        name,
        "the object has been modified; "
        "please apply your changes to the latest version and try again",
    )


def invalid(kind: str, name: str, problems: Sequence[Problem]) -> StatusError:
    """Return the error: the object breaks rules, all of them named."""
    texts = [f"{problem.field}: {problem.body}" for problem in problems]
    text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    return unprocessable(
        f'{kind} "{name}" is invalid: {text}',
        name=name,
        kind=kind.partition(".")[0],
        group=kind.partition(".")[2],
        causes=[
            {"reason": p.cause, "message": p.body, "field": p.field} for p in problems
        ],
    )


def unprocessable(message: str, **details: Any) -> StatusError:
    """Return the error: what is asked for cannot be done to the object."""
    code = HTTPStatus.UNPROCESSABLE_ENTITY
    return StatusError(code, message, reason="Invalid", **details)


def bad_request(message: str) -> StatusError:
    """Return the error: the request cannot be understood."""
    return StatusError(HTTPStatus.BAD_REQUEST, message)


def not_handled(resource: Resource, problem: str) -> StatusError:
    """Return the error: the body is no object of its kind."""
    kind = resource.kind
    return bad_request(
        f'{kind} in version "{resource.version}" cannot be handled as a {kind}: '
        f"{problem}"
    )


def expired(message: str, next_token: str = "") -> StatusError:
    """Return the error: that part of history is compacted away."""
    error = StatusError(HTTPStatus.GONE, message, reason="Expired")
    if next_token:
        error.document["metadata"]["continue"] = next_token
    return error


def too_large_resource_version(asked: int, current: int) -> StatusError:
    """Return the error: that resource version is in the future."""
    too_large = "Too large resource version"
    return StatusError(
        HTTPStatus.GATEWAY_TIMEOUT,
        f"Timeout: {too_large}: {asked}, current: {current}",
        reason="Timeout",
        causes=[{"reason": "ResourceVersionTooLarge", "message": too_large}],
        retryAfterSeconds=1,
    )


def forbidden(resource: Resource, name: str, why: str) -> StatusError:
    """Return the error: the request is understood and refused."""
    return _of_object(HTTPStatus.FORBIDDEN, resource, name, f"is forbidden: {why}")


def method_not_allowed() -> StatusError:
    """Return the error: this resource has no such verb."""
    return StatusError(
        HTTPStatus.METHOD_NOT_ALLOWED,
        "the server does not allow this method on the requested resource",
    )


def not_acceptable(message: str) -> StatusError:
    """Return the error: the answer cannot be had in the form that is asked for."""
    return StatusError(HTTPStatus.NOT_ACCEPTABLE, message)


def over_budget(why: str) -> StatusError:
    """Return the error: a disruption budget does not let this pod go now."""
    return StatusError(
        HTTPStatus.TOO_MANY_REQUESTS,
        "Cannot evict pod as it would violate the pod's disruption budget.",
        causes=[{"reason": "DisruptionBudget", "message": why}],
    )


def unsupported_media_type(supported: Sequence[str]) -> StatusError:
    """Return the error: the body is in a format that is not served here."""
    return StatusError(
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        "the body of the request was in an unknown format - "
        f"accepted media types include: {', '.join(supported)}",
    )


def no_server_side_apply() -> StatusError:
    """Return the error: this server keeps no record of who set which field."""
    return StatusError(
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        "the sandbox has no server-side apply: leave out --server-side, "
        "a plain kubectl apply works",
    )


def no_containers(resource: str) -> StatusError:
    """Return the error: what is asked for needs a process in a container."""
    return StatusError(
        HTTPStatus.NOT_IMPLEMENTED,
        f"the sandbox has no {resource}: its containers run no program; which chips "
        "a pod has mounted is in its annotation huawei.com/AscendReal",
    )


def no_controllers(resource: Resource) -> StatusError:
    """Return the error: nobody would do anything about such an object."""
    return StatusError(
        HTTPStatus.METHOD_NOT_ALLOWED,
        f"the sandbox has no {resource.qualified}: no controller would make their "
        "pods; create pods or Jobs instead",
    )


def no_protobuf(why: str) -> StatusError:
    """Return the error: the body is protobuf, as some commands of kubectl send it.

    Args:
        why: What is wrong with it.
    """
    return StatusError(
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        f"the sandbox cannot read this protobuf body ({why}): add "
        "--dry-run=client -o yaml to it, and pipe that into kubectl apply -f -",
    )


def invalid_field_validation(method: str, found: str) -> StatusError:
    """Return the error: `fieldValidation` says something else than it may."""
    known = ("", "Ignore", "Strict", "Warn")
    problem = Problem.unsupported("fieldValidation", found, known)
    return invalid(f"{_OPTIONS[method]}.meta.k8s.io", "", [problem])


_OPTIONS = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions"}


def plain_failure(message: str) -> StatusError:
    """Return the error that the real server makes of an error without a Status."""
    return StatusError(HTTPStatus.INTERNAL_SERVER_ERROR, message, reason="")
