"""Requests to the API server for moves after faults.

They end pods, read what an end does to a job, and keep the records of moves.
"""

import asyncio
import hashlib
import logging
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from extender.metrics import Metrics
from extender.preemption.attempt import Outcome, Victim
from extender.rescheduling import policies
from extender.rescheduling.ends import End
from kube import configmaps, objects, pods
from kube.client import Client
from kube.errors import (
    ConflictError,
    KubeError,
    NotFoundError,
    TooManyRequestsError,
)
from kube.objects import ConfigMap, Labelled, Meta, OwnerReference
from kube.workloads import WorkloadRequests
from service import clock

log = logging.getLogger(__name__)

#: Label of the records, by which a start finds them; its value does not count.
RECORD_LABEL = "ascend-affinity/move"
#: Beginning of the names of the records.
_RECORD_NAME = "ascend-move-"
#: Dry runs of evictions at one time.
_DRY_RUNS = 8
#: Reason of the condition of a pod that is deleted at once.
_REASON = "ChipFault"
_WORKER_SET = "leaderworkerset.x-k8s.io"
#: Label of pods of a LeaderWorkerSet: its name.
_WORKER_SET_NAME = "leaderworkerset.sigs.k8s.io/name"
#: API groups whose controllers are read: those that the extender may read for sizes.
_READ_GROUPS = (
    *("batch", "batch.volcano.sh", "jobset.x-k8s.io", "kubeflow.org"),
    *("mindxdl.gitee.com", "ray.io"),
)
#: Pods and controllers that are read at the same time.
_READS = 4
#: Kinds whose objects own controllers of pods, and say what their end does.
_READ_OWNERS = ("JobSet",)


class KubeMoves:
    """Requests about moves: end pods, read their controllers, write records."""

    def __init__(self, client: Client, namespace: str, metrics: Metrics) -> None:
        """Use a client that is open already.

        Args:
            client: An open client; the caller closes it.
            namespace: Where the records are.
            metrics: Counts the ends of pods.
        """
        self._metrics = metrics
        self._client = client
        self._namespace = namespace
        self._workloads = WorkloadRequests(client)
        #: reads of pods and controllers that may begin
        self._slots = asyncio.Semaphore(_READS)
        #: {name of a record: metadata} of records as they were written or found last
        self._known: dict[str, Meta] = {}

    # -- pods --------------------------------------------------------------------

    async def end_pod(self, pod: Victim, *, is_forced: bool) -> tuple[Outcome, str]:
        """End a pod; return the outcome, and why the API server refused.

        Args:
            pod: The pod. If it does not exist or has another UID, the outcome is GONE.
            is_forced: Whether it is deleted at once, past its grace period and budget.
                The condition `DisruptionTarget` is written before; without it nothing
                is deleted.
        """
        outcome, text = await self._end(pod, is_forced=is_forced)
        self._metrics.fault_evictions.labels(outcome).inc()
        return outcome, text

    async def _end(
        self, pod: Victim, *, is_forced: bool, is_dry: bool = False
    ) -> tuple[Outcome, str]:
        try:
            if is_forced:
                await self._delete(pod)
            else:
                await pods.evict(self._client, pod, dry_run=is_dry)
        except TooManyRequestsError as error:
            # without a cause the server is overloaded
            outcome = Outcome.BUDGET if error.cause else Outcome.FAILED
            return outcome, error.cause or error.message
        except KubeError as error:
            if pods.has_gone(error):
                return Outcome.GONE, ""
            extra = {"pod": pod.title, "error": str(error)}
            log.warning("pod with a fault not ended", extra=extra)
            return Outcome.FAILED, str(error)
        return Outcome.YES, ""

    async def _delete(self, pod: Victim) -> None:
        await pods.patch_disruption_target(
            self._client,
            pod,
            reason=_REASON,
            message="its job moves because a chip of it broke",
            at=clock.rfc3339(clock.wall_s()),
        )
        await pods.delete(self._client, pod, grace_s=0)

    async def read_ends(
        self, leaving: Mapping[str, tuple[str, Meta]]
    ) -> Mapping[str, End] | str:
        """Return {UID: what ending it does}, if all these pods are ended together.

        One pod of each controller is read, the controller, and a JobSet that owns it.

        Args:
            leaving: {UID: controller as "kind/namespace/name", metadata of the pod}.

        Returns:
            Or why it cannot be read now.
        """
        counts = Counter(owner for owner, _ in leaving.values())
        examples = dict(leaving.values())
        try:
            chains = await asyncio.gather(*map(self._controllers, examples.values()))
            found = dict(zip(examples, chains, strict=True))
        except KubeError as error:
            log.warning("controller of a pod not read", extra={"error": str(error)})
            return f"what an eviction does to the job cannot be read: {error}"
        return {
            uid: replace(
                policies.end_of([c for _, c in found[owner]], meta, counts[owner]),
                controller=found[owner][-1][0] if found[owner] else "",
            )
            for uid, (owner, meta) in leaving.items()
        }

    async def ask_budgets(self, leaving: Mapping[str, tuple[str, Meta]]) -> str:
        """Return which budget refuses to let one of these pods go; "" if none does.

        Each is asked about by itself, by a dry run of its eviction.
        """
        turns = asyncio.Semaphore(_DRY_RUNS)

        async def ask(uid: str, pod: Meta) -> tuple[Outcome, str]:
            victim = Victim(uid=uid, namespace=pod.namespace, name=pod.name)
            async with turns:
                return await self._end(victim, is_forced=False, is_dry=True)

        asked = (ask(uid, pod) for uid, (_, pod) in leaving.items())
        answers = await asyncio.gather(*asked)
        refusals = (text for outcome, text in answers if outcome is Outcome.BUDGET)
        return next(refusals, "")

    async def has_ended(self, controllers: Collection[str]) -> bool:
        """Return whether all objects are gone, being deleted or over; as far as known.

        Args:
            controllers: As `End.controller`.
        """
        try:
            for text in controllers:
                path, _, uid = text.rpartition(" ")
                try:
                    found = await self._workloads.get(path)
                except NotFoundError:
                    continue
                is_same = objects.convert(found, Labelled).metadata.uid == uid
                if is_same and not policies.is_over(found):
                    return False
        except KubeError as error:
            log.warning("controller of a pod not read", extra={"error": str(error)})
            return False
        return bool(controllers)

    async def _controllers(self, pod: Meta) -> Sequence[tuple[str, object]]:
        """Return path with UID, and object, of a pod's controllers, its own first."""
        labels = pod.labels or {}
        if labels.get(_WORKER_SET_NAME):
            owner = OwnerReference(
                api_version=f"{_WORKER_SET}/v1",
                kind="LeaderWorkerSet",
                name=labels[_WORKER_SET_NAME],
            )
            return [await self._controller(owner, pod.namespace)]
        async with self._slots:
            found = await pods.get(self._client, pod.namespace, pod.name)
        chain: list[tuple[str, object]] = []
        owned = found.metadata
        while (owner_found := _controller_of(owned)) is not None:
            if chain and owner_found.kind not in _READ_OWNERS:
                break
            chain.append(await self._controller(owner_found, pod.namespace))
            owned = objects.convert(chain[-1][1], Labelled).metadata
        return chain

    async def _controller(
        self, owner: OwnerReference, namespace: str
    ) -> tuple[str, object]:
        """Return path with UID, and object, of a controller.

        Of kinds that are not read, "" and the kind.
        """
        api_group = owner.api_version.rpartition("/")[0]
        kind = {"apiVersion": owner.api_version, "kind": owner.kind}
        if api_group not in (*_READ_GROUPS, _WORKER_SET):
            return "", kind
        plural = f"{owner.kind.lower()}s"
        base = f"/apis/{owner.api_version}/namespaces/{namespace}"
        path = f"{base}/{plural}/{owner.name}"
        try:
            async with self._slots:
                found = await self._workloads.get(path)
        except NotFoundError:
            # it is gone, and its pods go with it
            return "", kind | {"metadata": {"deletionTimestamp": "gone"}}
        fields = found if isinstance(found, dict) else {}
        uid = objects.convert(fields, Labelled).metadata.uid
        return f"{path} {uid}", fields | kind  # the items of a list have neither

    # -- records -----------------------------------------------------------------

    async def find_records(self) -> list[tuple[str, Mapping[str, str]]]:
        """Return (name, data) of all records.

        Raises:
            KubeError: They cannot be read.
        """
        labels = {RECORD_LABEL: "true"}
        found = await configmaps.find(self._client, self._namespace, labels)
        self._known |= {record.metadata.name: record.metadata for record in found}
        return [(record.metadata.name, record.data or {}) for record in found]

    async def write_record(self, job: str, data: Mapping[str, str]) -> bool:
        """Write the record of a job, or create it; return whether it is written.

        It is not if another has written or deleted it since: perhaps another extender
        leads. If it is asked for again, this one still does.
        """
        name = record_name(job)
        known = self._known.pop(name, None)
        try:
            written = await self._put(name, data, known)
        except KubeError as error:
            extra = {"record": name, "error": str(error)}
            log.warning("record of a move not written", extra=extra)
            return False
        self._known[name] = written.metadata
        return True

    async def _put(
        self, name: str, data: Mapping[str, str], known: Meta | None
    ) -> ConfigMap:
        if known is None:
            try:
                return await configmaps.create(
                    self._client,
                    namespace=self._namespace,
                    name=name,
                    labels={RECORD_LABEL: "true"},
                    data=data,
                )
            except ConflictError:
                found = await configmaps.get(self._client, self._namespace, name)
                known = found.metadata
        return await configmaps.patch(
            self._client,
            namespace=self._namespace,
            name=name,
            data=data,
            resource_version=known.resource_version,
        )

    async def delete_record(self, job: str) -> bool:
        """Delete the record of a job; return whether there is none."""
        name = record_name(job)
        try:
            known = self._known.pop(name, None)
            if known is None:
                record = await configmaps.get(self._client, self._namespace, name)
                known = record.metadata
            await configmaps.delete(
                self._client, namespace=self._namespace, name=name, uid=known.uid
            )
        except NotFoundError:
            return True
        except KubeError as error:
            extra = {"record": name, "error": str(error)}
            log.warning("record of a move not deleted", extra=extra)
            return False
        return True


def record_name(job: str) -> str:
    """Return the name of the record of a job."""
    return _RECORD_NAME + hashlib.sha256(job.encode()).hexdigest()[:20]


def _controller_of(meta: Meta) -> OwnerReference | None:
    owners = meta.owner_references or ()
    return next((owner for owner in owners if owner.controller), None)
