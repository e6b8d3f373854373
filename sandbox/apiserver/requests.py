"""One request on the store: what a method on a target means.

`carry_out` is the whole server but for sockets, watches and discovery: a request in,
an answer out, and the changes in the store's log.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus

from sandbox.apiserver import (
    binding,
    budgets,
    deletion,
    forms,
    lists,
    managers,
    protobuf,
    selectors,
    statuses,
)
from sandbox.apiserver.forms import Form
from sandbox.apiserver.lists import Choice
from sandbox.apiserver.objects import Entry, Object, key_of
from sandbox.apiserver.openapi import strictness, types
from sandbox.apiserver.paths import Target
from sandbox.apiserver.resources import JOBS, READ_VERBS
from sandbox.apiserver.store import Store
from sandbox.apiserver.tables.documents import Drawing

_JSON = "application/json"
_APPLY = "application/apply-patch+yaml"
_DIRECTIVES = ("Ignore", "Warn", "Strict")
_ORPHANS = (
    "child pods are preserved by default when jobs are deleted; set "
    "propagationPolicy=Background to remove them or set propagationPolicy=Orphan to "
    "suppress this warning"
)
#: What a parameter of a query says for yes.
TRUE = frozenset({"1", "true", "True"})

_WRITING_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request that has been read.

    Attributes:
        media_type: Of the body, without parameters; empty when not given.
        accept: The header that says in which form the answer is wanted.
        user_agent: The header that names the client's program.
    """

    method: str
    target: Target
    query: Mapping[str, str]
    media_type: str = ""
    accept: str = ""
    body: bytes = b""
    user_agent: str = ""

    @property
    def verb(self) -> str:
        """What RBAC would call it."""
        single = bool(self.target.name)
        match self.method:
            case "GET" if single:
                return "get"
            case "GET":
                return "watch" if self.query.get("watch") in TRUE else "list"
            case "DELETE":
                return "delete" if single else "deletecollection"
            case _:
                return _WRITING_VERBS.get(self.method, "")

    @property
    def manager(self) -> str:
        """Who is noted as having set what it writes."""
        return self.query.get("fieldManager") or managers.name_of(self.user_agent)

    @property
    def form(self) -> Form | None:
        """In which form the answer is wanted, None for objects as they are."""
        return forms.asked(self.accept, self.query)

    @property
    def choice(self) -> Choice:
        """Which objects of a collection it asks for."""
        target, query = self.target, self.query
        selected = selectors.parse(
            target.resource,
            labels=query.get("labelSelector", ""),
            fields=query.get("fieldSelector", ""),
        )
        return Choice(
            resource=target.resource, namespace=target.namespace, selected=selected
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """What goes back: a status code and a JSON document.

    Attributes:
        warnings: What the client should show to its user besides.
    """

    code: int
    raw: bytes
    warnings: Sequence[str] = ()


def failure(error: statuses.StatusError) -> Answer:
    """Return the answer to a request that failed."""
    return _answer(error.code, error.document)


def drawing_for_watch(store: Store, request: Request) -> Drawing | None:
    """Return who draws the events of a watch.

    One event is never a list; the real server then sends the object as it is.
    """
    drawing = drawing_for(store, request)
    is_listed = request.form is not None and request.form.kind == forms.MANY_METADATA
    return None if is_listed else drawing


def drawing_for(store: Store, request: Request) -> Drawing | None:
    """Return who draws the answer, None when objects are wanted as they are."""
    form = request.form
    return None if form is None else Drawing(store, request.target.resource, form)


def carry_out(store: Store, request: Request) -> Answer:
    """Do what `request` asks, or answer why not."""
    try:
        _check_verb(request)
        if request.query.get("dryRun"):
            with store.rehearsal():
                return _METHODS[request.method](store, request)
        owners = deletion.owners(store)
        answer = _METHODS[request.method](store, request)
        if request.method != "GET":
            deletion.collect(store, owners)
            budgets.refresh(store)
    except statuses.StatusError as error:
        return failure(error)
    return answer


def _check_verb(request: Request) -> None:
    target = request.target
    if request.method not in _METHODS:
        raise statuses.method_not_allowed()
    if target.subresource not in {"", "status"}:
        if request.method != "POST":
            raise statuses.method_not_allowed()
    elif request.verb not in target.resource.verbs:
        if target.resource.verbs is READ_VERBS:
            raise statuses.no_controllers(target.resource)
        raise statuses.method_not_allowed()


def _answer(code: int, document: Object) -> Answer:
    return Answer(code, json.dumps(document, separators=(",", ":")).encode())


def _shown(
    store: Store,
    request: Request,
    entry: Entry,
    code: int = HTTPStatus.OK,
    warnings: Sequence[str] = (),
) -> Answer:
    """Answer one object, in the form that is wanted."""
    drawing = drawing_for(store, request)
    raw = entry.raw if drawing is None else drawing.one(entry)
    return Answer(code, raw, warnings)


def _get(store: Store, request: Request) -> Answer:
    if request.target.name:
        return _shown(store, request, store.read(request.target))
    page = lists.page(store, request.choice, request.query)
    drawing = drawing_for(store, request)
    if drawing is not None:
        return Answer(HTTPStatus.OK, drawing.page(page))
    return Answer(HTTPStatus.OK, lists.render(request.target.resource, page))


def _post(store: Store, request: Request) -> Answer:
    target = request.target
    for subresource, kind in target.resource.subresources:
        if target.subresource == subresource:
            status = _ACTIONS[kind](store, target, _object(request, kind))
            return _answer(HTTPStatus.CREATED, status)
    if target.name or (target.resource.namespaced and not target.namespace):
        raise statuses.method_not_allowed()
    body, warnings = _typed(request)
    entry = store.create(target, body, manager=request.manager)
    return _shown(store, request, entry, HTTPStatus.CREATED, warnings)


def _put(store: Store, request: Request) -> Answer:
    target = _named(request)
    body, warnings = _typed(request)
    entry, created = store.replace(target, body, manager=request.manager)
    code = HTTPStatus.CREATED if created else HTTPStatus.OK
    return _shown(store, request, entry, code, warnings)


def _patch(store: Store, request: Request) -> Answer:
    target = _named(request)
    if request.media_type == _APPLY:
        raise statuses.no_server_side_apply()
    directive = _directive(request)
    body = _body(request)
    strict = directive == "Strict"
    if strict and body.repeated:
        error = strictness.error((), body.repeated)
        problem = statuses.Problem.invalid("patch", body.document, error)
        raise statuses.invalid("", "", [problem])
    entry, unknown = store.patch(
        target,
        request.media_type,
        body.document,
        strict=strict,
        manager=request.manager,
    )
    said = strictness.complaints(unknown, body.repeated) if directive == "Warn" else []
    return _shown(store, request, entry, warnings=said)


def _delete(store: Store, request: Request) -> Answer:
    target, resource = request.target, request.target.resource
    body = _body(request).document if request.body.strip() else {}
    if not isinstance(body, dict):
        raise statuses.bad_request("DeleteOptions must be a JSON object")
    options = deletion.options_of(body, request.query)
    warnings = [] if resource is not JOBS or options.propagation else [_ORPHANS]
    if not target.name:
        page = lists.page(store, request.choice, {})
        for namespace, name in (key_of(entry.document) for entry in page.entries):
            each = Target(resource=resource, namespace=namespace, name=name)
            deletion.delete(store, each, options)
        return Answer(HTTPStatus.OK, lists.render(resource, page), warnings)
    entry, gone = deletion.delete(store, target, options)
    if not gone or resource.returns_deleted:
        return _shown(store, request, entry, warnings=warnings)
    uid = entry.document["metadata"]["uid"]
    status = statuses.deleted(resource, target.name, uid)
    return _answer(HTTPStatus.OK, status)


#: {kind of the body of a POST to a subresource: what it does}
_ACTIONS = {"Binding": binding.bind, "Eviction": binding.evict}
_METHODS = {
    "GET": _get,
    "POST": _post,
    "PUT": _put,
    "PATCH": _patch,
    "DELETE": _delete,
}


def _named(request: Request) -> Target:
    if not request.target.name:
        raise statuses.method_not_allowed()
    return request.target


def _directive(request: Request) -> str:
    """Return what to do about fields that the type does not have."""
    directive = request.query.get("fieldValidation") or "Warn"
    if directive not in _DIRECTIVES:
        raise statuses.invalid_field_validation(request.method, directive)
    return directive


def _typed(request: Request) -> tuple[Object, list[str]]:
    """Return the body as an object of the target's kind, and what to warn of."""
    resource = request.target.resource
    directive = _directive(request)
    document = _object(request, resource.kind, resource.api_version)
    if strictness.wrong_type(document, types.name_of_kind(resource)):
        return document, []  # refused by the store, in other words
    body = _body(request)
    unknown = strictness.drop_unknown(body.document, types.of_kind(resource))
    said = strictness.complaints(unknown, body.repeated)
    if said and directive == "Strict":
        error = strictness.error(unknown, body.repeated)
        raise statuses.not_handled(resource, error)
    return document, said if directive == "Warn" else []


def _body(request: Request) -> strictness.Body:
    if request.media_type == protobuf.MEDIA_TYPE:
        try:
            return strictness.Body(protobuf.decode(request.body), [])
        except protobuf.ProtobufError as error:
            raise statuses.no_protobuf(str(error)) from error
    try:
        return strictness.decoded(request.body)
    except ValueError as error:
        raise statuses.bad_request(
            f"the object provided is unrecognized: json parse error: {error}"
        ) from error


def _object(request: Request, kind: str, api_version: str = "") -> Object:
    """Return the body as an object of `kind`."""
    if request.media_type not in {"", _JSON, protobuf.MEDIA_TYPE}:
        raise statuses.unsupported_media_type([_JSON])
    document = _body(request).document
    if not isinstance(document, dict):
        raise statuses.bad_request(
            f"the object provided is unrecognized (must be of type {kind})"
        )
    found = document.get("kind") or kind
    if found != kind:
        raise statuses.bad_request(
            f'{found} in version "{document.get("apiVersion", "v1")}" cannot be '
            f"handled as a {kind}"
        )
    version = document.get("apiVersion") or api_version
    if api_version and version != api_version:
        raise statuses.bad_request(
            f"the API version in the data ({version}) does not match the expected "
            f"API version ({api_version})"
        )
    return document
