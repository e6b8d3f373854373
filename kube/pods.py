"""Pods: get, patches, bind, evict, delete, and conversion to `NpuPod`.

Every write names the pod's UID. A new pod of the same name is therefore never written.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from kube.client import STRATEGIC_PATCH, Client, object_path, send_patch
from kube.errors import (
    ApiError,
    ConflictError,
    InvalidError,
    KubeError,
    NotFoundError,
)
from kube.objects import Container, Env, Meta, Pod, decode, encode
from scheduler_core.wire import pods as wire

#: Deadline of a bind; seconds. The request names it, and the API server ends the
#: request after it.
BIND_S = 10.0
#: Texts in refusals of a write that names another UID: of a patch (422), of a binding
#: (409), and of an eviction or deletion (409). Names of objects have neither colons nor
#: spaces.
_OTHER_UID_TEXTS = (
    "metadata.uid: ",
    "UID in precondition: ",
    "the UID in the precondition (",
)


class PodIdentity(Protocol):
    """Any value that names one pod, such as its metadata."""

    @property
    def namespace(self) -> str:
        """Namespace of the pod."""

    @property
    def name(self) -> str:
        """Name of the pod, which a later pod may have again."""

    @property
    def uid(self) -> str:
        """UID of the pod, which no other pod has."""


def npu_pod(pod: Pod, resource: str) -> wire.NpuPod | None:
    """Return a pod as the scheduler's core needs it; None if it requests no `resource`.

    Args:
        pod: From the API server or the kubelet.
        resource: Extended resource, such as `huawei.com/Ascend910`.
    """
    meta = pod.metadata
    init_specs, specs = pod.spec.init_containers or (), pod.spec.containers or ()
    if not any(resource in (c.resources.limits or ()) for c in (*init_specs, *specs)):
        return None  # most pods of a cluster return here
    dra_mappings = _served_by_dra(pod)
    containers = [_container(c, dra_mappings, is_init=True) for c in init_specs]
    containers += [_container(c, dra_mappings, is_init=False) for c in specs]
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
            dra=tuple(
                name
                for name, dra_resource in dra_mappings
                if dra_resource in ("", resource)
            ),
            created=meta.creation_timestamp or "",
        ),
        containers,
        resource,
    )


def owner(meta: Meta) -> str:
    """Return an object's controller as `kind/namespace/name`; empty without one."""
    for reference in meta.owner_references or ():
        if reference.controller:
            return f"{reference.kind}/{meta.namespace}/{reference.name}"
    return ""


async def get(
    client: Client, namespace: str, name: str, *, timeout_s: float = 10.0
) -> Pod:
    """Return a pod from the API server.

    Raises:
        NotFoundError: It does not exist.
        KubeError: The API server refused, or cannot be reached.
    """
    path = object_path("pods", name, namespace=namespace)
    return decode(await client.request("GET", path, timeout_s=timeout_s), Pod, path)


async def patch_annotations(
    client: Client, pod: PodIdentity, annotations: Mapping[str, str | None]
) -> Pod:
    """Set annotations of the pod with this UID; return the pod afterwards.

    None removes a key.

    Raises:
        NotFoundError: The name does not exist.
        ConflictError: The pod of that name has another UID.
        KubeError: The API server refused, or cannot be reached.
    """
    path = _path(pod)
    changes = {"metadata": {"uid": pod.uid, "annotations": dict(annotations)}}
    with _other_uid_is_conflict(path):
        answer = await send_patch(client, path, changes)
    return decode(answer, Pod, path)


async def patch_disruption_target(
    client: Client, pod: PodIdentity, *, reason: str, message: str, at: str
) -> None:
    """Set the condition `DisruptionTarget` of the pod with this UID; keep all others.

    The API server sets it at an eviction. Before a deletion the caller must, or a Job's
    `podFailurePolicy` counts the pod's end as a failure of the pod itself.

    Args:
        client: An open client.
        pod: The pod.
        reason: One word, such as `DeletionByTaintManager`.
        message: A sentence for people.
        at: Time, in Kubernetes' format.

    Raises:
        NotFoundError: The name does not exist.
        ConflictError: The pod of that name has another UID.
        KubeError: The API server refused, or cannot be reached.
    """
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": at,
    }
    changes = {"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}}
    path = f"{_path(pod)}/status"
    with _other_uid_is_conflict(path):
        # a merge patch would replace all other conditions
        await send_patch(client, path, changes, content_type=STRATEGIC_PATCH)


@contextmanager
def _other_uid_is_conflict(path: str) -> Iterator[None]:
    """Raise ConflictError for a patch that names another UID.

    kube-apiserver answers 422 ("immutable") to such a patch, and 409 to a Binding.
    """
    try:
        yield
    except InvalidError as error:
        if not _names_other_uid(error):
            raise
        raise ConflictError(
            409, "Conflict", error.message, request_line=f"PATCH {path}"
        ) from error


def has_gone(error: KubeError) -> bool:
    """Return whether a request failed because no pod has that name and UID any more."""
    if isinstance(error, ConflictError):
        return _names_other_uid(error)
    return isinstance(error, NotFoundError)


def _names_other_uid(error: ApiError) -> bool:
    """Return whether a write was refused because the object has another UID.

    Any other conflict (409) comes from concurrent writes, after which the same write
    may succeed.

    Source:
        kube-apiserver: `ValidateObjectMetaAccessorUpdate`,
        `storage.Preconditions.Check`.
    """
    return any(text in error.message for text in _OTHER_UID_TEXTS)


async def bind(
    client: Client,
    pod: PodIdentity,
    *,
    node: str,
    annotations: Mapping[str, str],
    timeout_s: float = BIND_S,
) -> None:
    """Bind a pod to a node and write annotations on the pod, in one request.

    The API server merges the Binding's annotations into the pod. `timeout_s` is the
    deadline here and at the API server, so no bind takes effect after it.

    Raises:
        NotFoundError: The name does not exist.
        ConflictError: The pod is bound, is being deleted, or has another UID.
        UnreachableError: No answer; read the pod to learn whether it is bound.
        KubeError: The API server refused.
    """
    metadata = {
        "name": pod.name,
        "namespace": pod.namespace,
        "uid": pod.uid,
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
        f"{_path(pod)}/binding",
        params={"timeout": f"{timeout_s:g}s"},
        body=encode(binding),
        timeout_s=timeout_s,
    )


async def evict(client: Client, pod: PodIdentity, *, dry_run: bool = False) -> None:
    """Evict the pod with this UID, if its PodDisruptionBudget allows it.

    With `dry_run` the API server only checks; nothing changes.

    Raises:
        TooManyRequestsError: The budget allows no eviction now.
        NotFoundError: The name does not exist.
        ConflictError: The pod has another UID.
        UnreachableError: No answer; the pod may be being deleted.
        KubeError: The API server refused.
    """
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
        "deleteOptions": {"preconditions": {"uid": pod.uid}},
    }
    params = {"dryRun": "All"} if dry_run else None
    path = f"{_path(pod)}/eviction"
    await client.request("POST", path, params=params, body=encode(eviction))


async def delete(
    client: Client, pod: PodIdentity, *, grace_s: int, resource_version: str = ""
) -> None:
    """Delete the pod with this UID; no PodDisruptionBudget is asked.

    With a grace of 0 the pod vanishes from the API server at once unless it has
    finalizers. Its containers may run on, so its chips are not free.

    Args:
        client: An open client.
        pod: The pod.
        grace_s: Time for its containers to end; seconds.
        resource_version: The version that must still stand; "" for any.

    Raises:
        NotFoundError: The name does not exist.
        ConflictError: The pod has another UID or another version.
        UnreachableError: No answer; the pod may be being deleted.
        KubeError: The API server refused.
    """
    preconditions = {"uid": pod.uid}
    if resource_version:
        preconditions["resourceVersion"] = resource_version
    options = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": grace_s,
        "preconditions": preconditions,
    }
    await client.request("DELETE", _path(pod), body=encode(options))


def _path(pod: PodIdentity) -> str:
    return object_path("pods", pod.name, namespace=pod.namespace)


def _container(
    container: Container, dra_mappings: tuple[tuple[str, str], ...], *, is_init: bool
) -> wire.RawContainer:
    limits = container.resources.limits or {}
    return wire.RawContainer(
        name=container.name,
        is_init=is_init,
        restart_policy=container.restart_policy or "",
        limits={
            resource: str(amount)
            for resource, amount in limits.items()
            if (container.name, resource) not in dra_mappings
        },
        env=tuple(_env(variable) for variable in container.env or ()),
    )


def _env(variable: Env) -> wire.RawEnv:
    source = variable.value_from and variable.value_from.field_ref
    return wire.RawEnv(
        name=variable.name,
        value=(variable.value or "") if variable.value_from is None else None,
        field_path=source.field_path if source else "",
    )


def _served_by_dra(pod: Pod) -> tuple[tuple[str, str], ...]:
    """Return (container, resource) pairs that DRA serves; resource "" means all."""
    claim = pod.status.extended_resource_claim_status
    mappings = (claim and claim.request_mappings) or ()
    return tuple(
        (mapping.container_name, mapping.resource_name) for mapping in mappings
    )
