"""Requests to the API server: bind and evict pods, write other objects."""

import logging
from collections.abc import Mapping

from extender.apiserver.wake import SchedulerWaker
from extender.cache import decode
from extender.gang import fault_policy
from extender.gang.membership import SizeSource
from extender.gang.size import Size, size_of
from extender.kube_scheduler.protocol import BindArgs
from extender.metrics import Metrics
from extender.preemption.attempt import Outcome, Victim
from kube import configmaps, objects, pods
from kube.client import Client
from kube.errors import (
    KubeError,
    NotFoundError,
    TooManyRequestsError,
)
from kube.events import Recorder, Regarding
from kube.workloads import WorkloadRequests
from scheduler_core.wire import switches
from scheduler_core.wire.pods import NpuPod

log = logging.getLogger(__name__)


class KubePods:
    """Requests to the API server that read and bind pods, for the binder."""

    def __init__(self, client: Client, *, bind_s: float = pods.BIND_S) -> None:
        """Use a client that is open already.

        Args:
            client: An open client; the caller closes it.
            bind_s: Timeout of a bind request in seconds.
        """
        self._client = client
        self._bind_s = bind_s

    async def get(self, namespace: str, name: str) -> objects.Pod:
        """Return the pod of this name from the API server."""
        return await pods.get(self._client, namespace, name)

    async def bind(self, args: BindArgs, annotations: Mapping[str, str]) -> None:
        """Bind a pod to a node and write annotations on the pod, in one request.

        Args:
            args: Name, UID and node of the pod. A pod with another UID is not bound.
            annotations: {key: value} to write.
        """
        await pods.bind(
            self._client,
            args,
            node=args.node,
            annotations=annotations,
            timeout_s=self._bind_s,
        )


async def write_tor_share(client: Client, namespace: str, text: str) -> None:
    """Write `text` as `global-tor-info` in `tor-share-cm`; create it if missing."""
    name, data = switches.SHARE_NAME, {switches.SHARE_KEY: text}
    try:
        await configmaps.patch(client, namespace=namespace, name=name, data=data)
    except NotFoundError:
        await configmaps.create(
            client, namespace=namespace, name=name, labels={}, data=data
        )


class KubeJobs:
    """Requests about jobs: read sizes, evict pods, record events, wake schedulers."""

    def __init__(
        self,
        client: Client,
        recorder: Recorder,
        waker: SchedulerWaker,
        metrics: Metrics,
    ) -> None:
        """Use a client that is open already.

        Args:
            client: An open client; the caller closes it.
            recorder: Records events on pods.
            waker: Annotates nodes so that schedulers retry refused pods.
            metrics: Counts evictions for a pod or job, but no dry runs.
        """
        self._client = client
        self._workloads = WorkloadRequests(client)
        self._recorder = recorder
        self._waker = waker
        self._metrics = metrics

    async def size(self, size_source: SizeSource) -> Size | str:
        """Return a job's size, or a sentence that says why the size is unknown.

        Args:
            size_source: Kind and API path of the workload whose spec has the size.
        """
        try:
            workload = await self._workloads.get(size_source.path, size_source.versions)
        except KubeError as error:
            log.warning(
                "job not read", extra={"path": size_source.path, "error": str(error)}
            )
            kind = size_source.kind
            return f"its {kind} cannot be read, which says how many pods the job has"
        size = size_of(
            size_source.kind, workload, decode.CHIP_RESOURCES, size_source.stated
        )
        return size or f"its {size_source.kind} does not say how many pods the job has"

    async def group_wishes(self, source: SizeSource) -> Mapping[str, str] | str:
        """Return what a PodGroup says about faults, or why it cannot be read.

        A PodGroup that does not exist says nothing.

        Args:
            source: Kind and API path of the PodGroup.
        """
        try:
            found = await self._workloads.get(source.path, source.versions)
            meta = objects.convert(found, objects.Labelled).metadata
        except NotFoundError:
            return {}
        except KubeError as error:
            extra = {"path": source.path, "error": str(error)}
            log.warning("PodGroup not read", extra=extra)
            return "its PodGroup cannot be read, which may say what to do about faults"
        return fault_policy.select(meta.labels or {}, meta.annotations or {})

    async def remove(self, pod: NpuPod) -> None:
        """Evict a bound pod, because other pods of its job were not bound in time.

        The eviction is tried only once. A failure is logged.
        """
        pod_name = f"{pod.namespace}/{pod.name}"
        try:
            await pods.evict(self._client, pod)
        except KubeError as error:
            log.warning(
                "pod of an incomplete job not evicted",
                extra={"pod": pod_name, "error": str(error)},
            )

    async def evict(self, victim: Victim, *, rehearse: bool) -> Outcome:
        """Ask the API server to evict a pod for a pod or job; return the outcome.

        It answers 429 to an eviction that would violate a PodDisruptionBudget.

        Args:
            victim: The pod. If it does not exist or has a different UID, the outcome is
                GONE.
            rehearse: If true, send only a dry run, which evicts nothing.
        """
        outcome = Outcome.YES
        try:
            await pods.evict(self._client, victim, dry_run=rehearse)
        except TooManyRequestsError:
            outcome = Outcome.BUDGET
        except KubeError as error:
            outcome = Outcome.GONE
            if not pods.has_gone(error):
                outcome = Outcome.FAILED
                log.warning(
                    "pod not evicted", extra={"pod": victim.title, "error": str(error)}
                )
        if not rehearse:
            self._metrics.evictions.labels(outcome).inc()
        return outcome

    def tell(
        self, pod: NpuPod, reason: str, text: str, *, is_warning: bool = True
    ) -> None:
        """Log news of a pod or its job, and record it as an event on the pod.

        Args:
            pod: The pod, which gets the event.
            reason: Reason of the event.
            text: Message of the event and the log.
            is_warning: Whether it is a problem.
        """
        extra = {"pod": f"{pod.namespace}/{pod.name}", "why": text}
        if is_warning:
            log.warning("job held up", extra=extra)
        else:
            log.info("job goes on", extra=extra)
        self._recorder.record(
            pod_regarding(pod),
            reason=reason,
            message=text,
            type="Warning" if is_warning else "Normal",
        )

    def tell_fault(self, pod: NpuPod, reason: str, text: str) -> None:
        """Log what follows for a pod with a broken chip, and record it as an event."""
        extra = {"pod": f"{pod.namespace}/{pod.name}", "why": text}
        log.info("job with a fault judged", extra=extra)
        self._recorder.record(
            pod_regarding(pod), reason=reason, message=text, type="Warning"
        )

    def wake(self) -> None:
        """Schedule an annotation of a Node, so that schedulers retry all refused pods.

        Nothing is scheduled if no pod that the extender refused waits for a retry.
        """
        self._waker.retry_all()


def pod_regarding(pod: NpuPod) -> Regarding:
    """Return the reference to a pod for the `regarding` field of an event."""
    return Regarding(kind="Pod", name=pod.name, namespace=pod.namespace, uid=pod.uid)
