"""Pods of the story: made, awaited, removed."""

from collections.abc import Iterable, Sequence

from sandbox.apiclient import Object
from sandbox.inspect import checks, observer
from sandbox.inspect.facts import Cluster, PodFacts
from sandbox.inspect.observer import NotSeenError
from sandbox.world import RESOURCE, World

_ENDED = {"Succeeded", "Failed"}
#: An eviction is no failure of a Job.
_SURVIVAL: Object = {
    "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]
}
#: A ConfigMap follows Allocate within a second; a busy machine may take its time.
_FOLLOWING_S = 6.0


def manifest(
    name: str, count: int, *, node: str = "", resource: str = RESOURCE
) -> Object:
    """Return a pod with one container that asks for chips.

    Args:
        name: Of the pod.
        count: Chips.
        node: Where it wants to run; anywhere by default.
        resource: What it asks for.
    """
    spec: Object = {
        "terminationGracePeriodSeconds": 1,
        "containers": [
            {
                "name": "train",
                "image": "train:1.0",
                "resources": {
                    "limits": {resource: str(count)},
                    "requests": {resource: str(count)},
                },
            }
        ],
    }
    if node:
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": observer.NAMESPACE},
        "spec": spec,
    }


def job(name: str, count: int, chips: int, fault_scheduling: str = "") -> Object:
    """Return an Indexed Job.

    Args:
        name: Of the Job.
        count: Pods.
        chips: Of each pod.
        fault_scheduling: Label of its pods, for a Job that is to survive their
            eviction; "" for none.
    """
    pod = manifest(name, chips)["spec"] | {"restartPolicy": "Never"}
    template: Object = {"spec": pod}
    spec: Object = {
        "completionMode": "Indexed",
        "completions": count,
        "parallelism": count,
        "template": template,
    }
    if fault_scheduling:
        template["metadata"] = {"labels": {"fault-scheduling": fault_scheduling}}
        spec |= {"podReplacementPolicy": "Failed", "podFailurePolicy": _SURVIVAL}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": observer.NAMESPACE},
        "spec": spec,
    }


async def create(world: World, *manifests: Object) -> None:
    """Create pods, one request after the other."""
    for each in manifests:
        await world.api.create(observer.PODS, each)


async def bound(world: World, names: Sequence[str]) -> tuple[PodFacts, ...]:
    """Wait until pods have a node.

    Raises:
        NotSeenError: one has none.
    """

    async def found() -> tuple[PodFacts, ...]:
        pods = _of(await observer.pods(world), names)
        return pods if all(pod.node for pod in pods) else ()

    what = f"a node for each of {', '.join(names)}"
    return await observer.until(found, what=what)


async def settled(world: World, names: Sequence[str]) -> Cluster:
    """Wait until pods are confirmed or have failed, and ConfigMaps have followed.

    Returns:
        The cluster afterwards; as it is when that takes too long, so that the
        checks can say what is wrong.
    """

    async def decided() -> bool:
        pods = _of(await observer.pods(world), names)
        return all(pod.is_confirmed or pod.phase in _ENDED for pod in pods)

    async def agreed() -> Cluster | None:
        seen = await observer.cluster(world)
        return None if checks.agreed(seen) else seen

    what = f"an end for {', '.join(names)}"
    try:
        await observer.until(decided, what=what)
        return await observer.until(agreed, what=what, within_s=_FOLLOWING_S)
    except NotSeenError:
        return await observer.cluster(world)


async def remove(world: World, names: Iterable[str]) -> None:
    """Delete pods and wait until all their chips are free again, by all accounts.

    Raises:
        NotSeenError: something of them is left.
    """
    gone = set(names)
    for name in sorted(gone):
        await world.api.delete(f"{observer.PODS}/{name}")
    await until_gone(world, gone)


async def until_gone(world: World, names: Iterable[str]) -> None:
    """Wait until deleted pods are gone, and all their chips free by all accounts.

    Raises:
        NotSeenError: something of them is left.
    """
    gone = set(names)

    async def is_over() -> bool:
        seen = await observer.cluster(world)
        return gone.isdisjoint(p.name for p in seen.pods) and not checks.agreed(seen)

    what = f"the chips of {', '.join(sorted(gone))} free again"
    await observer.until(is_over, what=what, pause_s=0.05)


async def remove_all(world: World) -> None:
    """Delete every pod there is, as `remove` does."""
    await remove(world, [pod.name for pod in await observer.pods(world)])


def _of(pods: Iterable[PodFacts], names: Sequence[str]) -> tuple[PodFacts, ...]:
    return tuple(pod for pod in pods if pod.name in names)
