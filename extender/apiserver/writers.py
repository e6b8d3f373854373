"""The API server, as those who bind, mark and plan pods see it."""

import logging
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from extender.apiserver.wake import Waker
from extender.cache import decode
from extender.gang.membership import Told
from extender.gang.size import Size, size_of
from extender.kube_scheduler.protocol import BindArgs
from kube import configmaps, objects, podgroups, pods, workloads
from kube.client import Client, object_path
from kube.errors import KubeError, NotFoundError
from kube.events import Recorder, Regarding
from kube.podgroups import Condition
from kube.reflector import ListWatch
from scheduler_core.wire import deviceinfo, switches
from scheduler_core.wire.pods import NpuPod

log = logging.getLogger(__name__)

#: The longest pause before a watch is tried again: there are one or two of us, no
#: fleet, and pods wait for us.
PAUSE_S = 5.0


class KubePods:
    """Binding's view of the API server."""

    def __init__(self, client: Client, *, bind_s: float = pods.BIND_S) -> None:
        """Use an open client, and give a bind so long."""
        self._client = client
        self._bind_s = bind_s

    async def get(self, namespace: str, name: str) -> objects.Pod:
        """Return the pod of that name as it is now."""
        return await pods.get(self._client, namespace, name)

    async def bind(self, args: BindArgs, annotations: Mapping[str, str]) -> None:
        """Bind the pod with that UID and write the annotations on it, in one call."""
        await pods.bind(
            self._client,
            namespace=args.namespace,
            name=args.name,
            uid=args.uid,
            node=args.node,
            annotations=annotations,
            timeout_s=self._bind_s,
        )


class KubeMarks:
    """Marking's view of the API server."""

    def __init__(self, client: Client) -> None:
        """Use an open client."""
        self._client = client

    async def mark(self, pod: NpuPod, annotations: Mapping[str, str | None]) -> None:
        """Set annotations of the pod with that UID; None removes one."""
        await pods.patch_annotations(
            self._client,
            namespace=pod.namespace,
            name=pod.name,
            uid=pod.uid,
            annotations=annotations,
        )


class KubeGroups:
    """Volcano's PodGroups, as those who explain see them."""

    def __init__(self, client: Client) -> None:
        """Use an open client."""
        self._client = client

    async def read(self, namespace: str, name: str) -> tuple[str, Sequence[Condition]]:
        """Return a PodGroup's version and its conditions."""
        found = await podgroups.get(self._client, namespace, name)
        return found.metadata.resource_version, found.conditions

    async def write(
        self, namespace: str, name: str, version: str, conditions: Sequence[Condition]
    ) -> None:
        """Write them, if nobody has written since that version."""
        await podgroups.set_conditions(
            self._client,
            namespace=namespace,
            name=name,
            resource_version=version,
            conditions=conditions,
        )


class KubeShare:
    """The ConfigMap that says what jobs have made of the leaf switches."""

    def __init__(self, client: Client, namespace: str) -> None:
        """Use an open client; write into this namespace."""
        self._client = client
        self._namespace = namespace

    async def share(self, text: str) -> None:
        """Have the ConfigMap say this; make it if there is none."""
        name, data = switches.SHARE_NAME, {switches.SHARE_KEY: text}
        try:
            await configmaps.patch(
                self._client, namespace=self._namespace, name=name, data=data
            )
        except NotFoundError:
            await configmaps.create(
                self._client,
                namespace=self._namespace,
                name=name,
                labels={},
                data=data,
            )


class KubeJobs:
    """Planning's view of the world."""

    def __init__(self, client: Client, recorder: Recorder, waker: Waker) -> None:
        """Use an open client."""
        self._client = client
        self._recorder = recorder
        self._waker = waker

    async def size(self, told: Told) -> Size | str:
        """How many pods a job has, or why its object cannot be read."""
        try:
            found = await workloads.get(self._client, told.path)
        except KubeError as error:
            log.warning("job not read", extra={"path": told.path, "error": str(error)})
            return (
                f"its {told.kind} cannot be read, which says how many pods the job has"
            )
        size = size_of(told.kind, found, decode.RESOURCES)
        return size or f"its {told.kind} does not say how many pods the job has"

    async def remove(self, pod: NpuPod) -> None:
        """Evict a pod; once, whatever comes of it."""
        named = f"{pod.namespace}/{pod.name}"
        try:
            await pods.evict(
                self._client, namespace=pod.namespace, name=pod.name, uid=pod.uid
            )
        except KubeError as error:
            log.warning(
                "pod of an incomplete job not evicted",
                extra={"pod": named, "error": str(error)},
            )

    def tell(self, pod: NpuPod, reason: str, said: str) -> None:
        """Say on a pod what became of its job."""
        log.warning(
            "job held up", extra={"pod": f"{pod.namespace}/{pod.name}", "why": said}
        )
        self._recorder.record(about(pod), reason=reason, message=said, type="Warning")

    def wake(self) -> None:
        """Have the scheduler try pods again: it sees any node change."""
        self._waker.again()


def about(pod: NpuPod) -> Regarding:
    """The pod, for an event on it."""
    return Regarding(kind="Pod", name=pod.name, namespace=pod.namespace, uid=pod.uid)


def reports(
    client: Client, *, name: str = "", labels: Mapping[str, str] = MappingProxyType({})
) -> ListWatch[objects.ConfigMap]:
    """Follow ConfigMaps of agents and operators: one by name, or some by labels."""
    selector = ",".join(f"{key}={value}" for key, value in labels.items())
    return ListWatch(
        client,
        object_path("configmaps", "", namespace=deviceinfo.CONFIGMAP_NAMESPACE),
        objects.ConfigMap,
        params={"fieldSelector": f"metadata.name={name}"}
        if name
        else {"labelSelector": selector},
        pause_s=PAUSE_S,
    )
