"""Pods: what we read of them, and the two writes that pairing needs.

Every write names the pod's UID, so that a new pod of the same name is never marked.
"""

from collections.abc import Mapping

import msgspec

from kube import objects
from kube.client import MERGE_PATCH, Client, object_path
from kube.errors import (
    ConflictError,
    InvalidError,
    MalformedError,
)
from kube.objects import Container, Env, Meta, Pod
from scheduler_core.wire import pods as wire
from service.decoding import UNDECODABLE, undecodable

#: A bind is given so long, by us and by the API server, which ends a request when the
#: time is over that the request itself names.
BIND_S = 10.0


def npu_pod(pod: Pod, resource: str) -> wire.NpuPod | None:
    """Return a pod as pairing sees it, or None when it asks us for no `resource`.

    Args:
        pod: As the API server or the kubelet sent it.
        resource: The Kubernetes resource, such as `huawei.com/Ascend910`.
    """
    meta = pod.metadata
    first, then = pod.spec.init_containers or (), pod.spec.containers or ()
    if not any(resource in (c.resources.limits or ()) for c in (*first, *then)):
        return None  # most pods of a cluster end here
    elsewhere = _served_by_dra(pod)
    containers = [_container(c, elsewhere, is_init=True) for c in first]
    containers += [_container(c, elsewhere, is_init=False) for c in then]
    return wire.npu_pod(
        wire.PodMeta(
            uid=meta.uid,
            namespace=meta.namespace,
            name=meta.name,
            node=pod.spec.node_name,
            phase=pod.status.phase or "Pending",
            admitted=pod.status.start_time is not None,
            deleting=meta.deletion_timestamp is not None,
            owner=owner(meta),
            annotations=meta.annotations or {},
            dra=tuple(name for name, what in elsewhere if what in ("", resource)),
            created=meta.creation_timestamp or "",
        ),
        containers,
        resource,
    )


def owner(meta: Meta) -> str:
    """Return the controller of an object as `kind/namespace/name`; empty without one.

    Args:
        meta: The object's metadata.
    """
    for reference in meta.owner_references or ():
        if reference.controller:
            return f"{reference.kind}/{meta.namespace}/{reference.name}"
    return ""


async def get(
    client: Client, namespace: str, name: str, *, timeout_s: float = 10.0
) -> Pod:
    """Return a pod as the API server has it now.

    Args:
        client: An open client.
        namespace: The pod's.
        name: The pod's.
        timeout_s: Deadline for the answer.

    Raises:
        NotFoundError: There is none.
        KubeError: The API server said no otherwise, or cannot be reached.
    """
    path = object_path("pods", name, namespace=namespace)
    return _pod(await client.request("GET", path, timeout_s=timeout_s), path)


async def patch_annotations(
    client: Client,
    *,
    namespace: str,
    name: str,
    uid: str,
    annotations: Mapping[str, str | None],
) -> Pod:
    """Set annotations of the pod with this UID; return the pod as it is afterwards.

    Args:
        client: An open client.
        namespace: The pod's.
        name: The pod's.
        uid: The pod's; another pod of that name stays untouched.
        annotations: New values; None removes a key.

    Raises:
        NotFoundError: There is no pod of that name.
        ConflictError: There is one, but with another UID.
        KubeError: The API server said no otherwise, or cannot be reached.
    """
    path = object_path("pods", name, namespace=namespace)
    body = objects.encode({"metadata": {"uid": uid, "annotations": dict(annotations)}})
    try:
        answer = await client.request(
            "PATCH", path, body=body, content_type=MERGE_PATCH
        )
    except InvalidError as error:
        # A UID that differs is "immutable" to kube-apiserver's validation: 422, though
        # the same in a Binding is a 409. Callers see one of the two.
        if "metadata.uid" not in error.message:
            raise
        raise ConflictError(
            409, "Conflict", error.message, what=f"PATCH {path}"
        ) from error
    return _pod(answer, path)


async def bind(  # noqa: PLR0913  # each is a field of the request
    client: Client,
    *,
    namespace: str,
    name: str,
    uid: str,
    node: str,
    annotations: Mapping[str, str],
    timeout_s: float = BIND_S,
) -> None:
    """Bind a pod to a node and write the decision on it, in one call.

    The API server merges the Binding's annotations into the pod, and is told to give
    up when we do.

    Args:
        client: An open client.
        namespace: The pod's.
        name: The pod's.
        uid: The pod's; a precondition.
        node: Where it goes.
        annotations: What the scheduler decided.
        timeout_s: Deadline for the answer, and for the API server's work.

    Raises:
        NotFoundError: There is no pod of that name.
        ConflictError: It is bound already, being deleted, or has another UID.
        UnreachableError: No answer: whether it is bound must be read again.
        KubeError: The API server said no otherwise.
    """
    path = object_path("pods", name, namespace=namespace) + "/binding"
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": uid,
        "annotations": dict(annotations),
    }
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": metadata,
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    await client.request(
        "POST",
        path,
        params={"timeout": f"{timeout_s:g}s"},
        body=objects.encode(binding),
        timeout_s=timeout_s,
    )


async def evict(
    client: Client, *, namespace: str, name: str, uid: str, rehearse: bool = False
) -> None:
    """Ask for a pod to be deleted, if its PodDisruptionBudget lets it go.

    Args:
        client: An open client.
        namespace: The pod's.
        name: The pod's.
        uid: The pod's; a precondition.
        rehearse: Ask only whether it could be; nothing happens.

    Raises:
        TooManyRequestsError: Its budget lets nobody go now.
        NotFoundError: There is no pod of that name.
        ConflictError: It has another UID.
        UnreachableError: No answer: whether it is being deleted is unknown.
        KubeError: The API server said no otherwise.
    """
    path = object_path("pods", name, namespace=namespace) + "/eviction"
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
        "deleteOptions": {"preconditions": {"uid": uid}},
    }
    params = {"dryRun": "All"} if rehearse else None
    await client.request("POST", path, params=params, body=objects.encode(eviction))


def _pod(body: bytes, path: str) -> Pod:
    try:
        return msgspec.json.decode(body, type=Pod)
    except UNDECODABLE as error:
        raise MalformedError(undecodable(path, error)) from error


def _container(
    container: Container, elsewhere: tuple[tuple[str, str], ...], *, is_init: bool
) -> wire.RawContainer:
    limits = container.resources.limits or {}
    return wire.RawContainer(
        name=container.name,
        is_init=is_init,
        restart_policy=container.restart_policy or "",
        limits={
            resource: str(amount)
            for resource, amount in limits.items()
            if (container.name, resource) not in elsewhere
        },
        env=tuple(_env(variable) for variable in container.env or ()),
    )


def _env(variable: Env) -> wire.RawEnv:
    source = variable.value_from and variable.value_from.field_ref
    return wire.RawEnv(
        name=variable.name,
        value=variable.value or "",
        field_path=source.field_path if source else "",
    )


def _served_by_dra(pod: Pod) -> tuple[tuple[str, str], ...]:
    """(container, resource) that others serve; of a container without one, all."""
    claim = pod.status.extended_resource_claim_status
    mappings = (claim and claim.request_mappings) or ()
    return tuple((each.container_name, each.resource_name) for each in mappings)
