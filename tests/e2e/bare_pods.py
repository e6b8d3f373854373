"""Pods of a bare control plane: what its API server says of them."""

from sandbox.apiclient import ApiClient, Object
from scheduler_core.products.table import ATLAS_800_TRAINING as PRODUCT
from tests.e2e.bare import until
from tests.support.objects import PODS

EVENTS = "/api/v1/namespaces/default/events"
_WITHIN_S = 120.0


def chips(pod: Object) -> set[int]:
    """Return the chips that a pod's claim names."""
    names: str = pod["metadata"]["annotations"][PRODUCT.resource]
    return {int(name.removeprefix(PRODUCT.chip_prefix)) for name in names.split(",")}


async def bound(api: ApiClient) -> dict[str, str]:
    """Return {pod: node} of the pods that have one."""
    return {
        pod["metadata"]["name"]: pod["spec"]["nodeName"]
        for pod in await api.items(PODS)
        if pod["spec"].get("nodeName")
    }


async def wait_bound(
    api: ApiClient, *names: str, within_s: float = _WITHIN_S
) -> list[Object]:
    """Wait until these pods have a node; return them."""

    async def are_bound() -> bool:
        return {*names} <= (await bound(api)).keys()

    await until(are_bound, f"{names} bound", within_s=within_s)
    return [await api.get(f"{PODS}/{name}") for name in names]


async def wait_told(api: ApiClient, text: str, name: str = "") -> None:
    """Wait until a condition of a pod, or of the pod of that name, has a text."""

    async def is_told() -> bool:
        return any(
            text in each.get("message", "")
            for pod in await api.items(PODS)
            for each in pod["status"].get("conditions", ())
            if name in ("", pod["metadata"]["name"])
        )

    await until(is_told, f"{name or 'a pod'} told: {text}", within_s=_WITHIN_S)


async def wait_event(api: ApiClient, reason: str, name: str) -> None:
    """Wait until there is an event with this reason on the pod of that name."""

    async def is_there() -> bool:
        return any(
            (each["reason"], each["involvedObject"].get("name")) == (reason, name)
            for each in await api.items(EVENTS)
        )

    await until(is_there, f"{reason} on {name}", within_s=_WITHIN_S)


async def remove_all(api: ApiClient) -> None:
    """Delete all pods and wait until they are gone."""
    for pod in await api.items(PODS):
        await api.delete(f"{PODS}/{pod['metadata']['name']}", grace_s=0)

    async def is_empty() -> bool:
        return not await api.items(PODS)

    await until(is_empty, "all pods gone", within_s=_WITHIN_S)
