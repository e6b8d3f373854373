"""Answer the kubelet's device plugin requests for whole chips of one product line.

The kubelet waits for GetPreferredAllocation and Allocate without a deadline, and admits
no other pod of the node meanwhile. So each wait here is bounded:

    for the end of a List call          `agent.plugin.allocate_activity.LISTING_WAIT_S`
    for the processes of ended pods     DEADLINE_S of `agent.devices.processes`
    for a claim from the pod watch      CLAIM_WAIT_S
    for a look of the driver            what is left of CLAIM_WAIT_S
    for the kubelet's own list of pods  `agent.api_client.KUBELET_PODS_S`
    for a write of the journal to disk  WITHIN_S of `agent.journal.writer`
"""

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from agent.claims import release, values
from agent.claims.events import (
    AllocateAsked,
    AwaitClaim,
    AwaitLook,
    Granted,
    PodUpdated,
    PreferenceAsked,
    Preferred,
    Refused,
    StrayProcessesRead,
)
from agent.claims.store import LedgerStore
from agent.claims.values import Hold
from agent.plugin import translate
from agent.plugin.allocate_activity import AllocateActivity
from agent.plugin.list_and_watch import Context, ListAndWatchServicer
from agent.pods.informer import PodInformer
from agent.pods.reconciler import FindStrayProcesses, LookNow
from kubelet_api.deviceplugin.v1beta1 import api_pb2
from service import clock

log = logging.getLogger(__name__)

#: Longest wait for a claim. Bind writes it together with the node of the pod, so it
#: arrives as fast as the pod arrives at the kubelet, within 0.01 s. Unit: seconds.
CLAIM_WAIT_S = 1.0

WriteJournal = Callable[[], Awaitable[None]]


class Renderer(Protocol):
    """Renderer of the answers to Allocate: `Mounts`, or that for parts of chips."""

    def problem(self) -> str | None:
        """Return a sentence why nothing can be mounted now; None if nothing is."""

    def answer(self, hold: Hold) -> api_pb2.ContainerAllocateResponse:
        """Render the part of Allocate's answer that mounts what a hold has."""


class Servicer(ListAndWatchServicer):
    """Servicer of the device plugin that gives out whole chips of one product line."""

    def __init__(  # noqa: PLR0913  # each comes from somewhere else
        self,
        store: LedgerStore,
        *,
        activity: AllocateActivity,
        pods: PodInformer,
        find_stray_processes: FindStrayProcesses,
        write_journal: WriteJournal,
        observe_allocate_s: Callable[[float], None],
        numa: Callable[[], Sequence[int]],
        mounts: Renderer,
        look_now: LookNow,
    ) -> None:
        """Construct the servicer of one product line, before the kubelet connects.

        Args:
            activity: Records each running request, so that the agent neither calls List
                of pod-resources nor ends meanwhile.
            find_stray_processes: Asks the kernel for running processes of ended pods.
            write_journal: Writes the ledger's holds to disk, bounded in time; returns
                without an error when the write fails.
            observe_allocate_s: Called with the duration of each Allocate that succeeds.
                Unit: seconds.
            numa: Returns the NUMA node of each chip; empty if the kubelet shall not
                align by NUMA nodes.
            look_now: Asks the driver for a look, because a pod has just ended whose
                chips this request needs.
        """
        devices = translate.DeviceList()
        super().__init__(
            store,
            lambda: devices.of(store.ledger, numa()),
            activity=activity,
            steers=True,
        )
        self._mounts = mounts
        self._pods = pods
        self._find_stray_processes = find_stray_processes
        self._write_journal = write_journal
        self._observe_allocate_s = observe_allocate_s
        self._look_now = look_now
        #: loop time when a preference last waited and no claim came
        self._waited_until = float("-inf")

    async def GetPreferredAllocation(
        self, request: api_pb2.PreferredAllocationRequest, context: object
    ) -> api_pb2.PreferredAllocationResponse:
        """Tell the kubelet which device ids to give to each container in the request.

        For each container, the ledger chooses a claim of the requested size. The ids
        stand for chips of this claim. If there is no such claim, the method waits for
        one, at most CLAIM_WAIT_S. If a pod has just ended on these chips, it waits for
        a look of the driver. The kubelet may ignore the ids and give others.
        """
        self.request_count += 1
        async with self._activity.preferring():
            answers = [
                api_pb2.ContainerPreferredAllocationResponse(
                    deviceIDs=await self._prefer(
                        PreferenceAsked(
                            tuple(container.available_deviceIDs),
                            tuple(container.must_include_deviceIDs),
                            container.allocation_size,
                        )
                    )
                )
                for container in request.container_requests
            ]
        return api_pb2.PreferredAllocationResponse(container_responses=answers)

    async def Allocate(
        self,
        request: api_pb2.AllocateRequest,
        context: Context,
    ) -> api_pb2.AllocateResponse:
        """Give each container in the request the chips that the ledger chooses for it.

        Each hold that the ledger makes is written to the journal before the answer. But
        a write that fails or takes too long does not stop the answer. If a container
        cannot be served, the call fails with FAILED_PRECONDITION.
        """
        started = time.perf_counter()
        self.request_count += 1
        with self._activity.allocating():
            answers = []
            for container in request.container_requests:
                problem = self._mounts.problem()
                if problem:
                    await self._refuse(context, problem)
                decision = await self._decide(tuple(container.devices_ids))
                if isinstance(decision, Refused):
                    await self._refuse(context, decision.text)
                await self._write_journal()
                answers.append(self._mounts.answer(decision))
        self._observe_allocate_s(time.perf_counter() - started)
        return api_pb2.AllocateResponse(container_responses=answers)

    async def _prefer(self, request: PreferenceAsked) -> tuple[str, ...]:
        ids = frozenset((*request.available, *request.must_include))
        checked = await self._read_stray_processes(ids)
        deadline = clock.loop_s() + CLAIM_WAIT_S
        while True:
            checked = await self._read_stray_processes(ids, but=checked)
            version = self._store.version
            (answer,) = (
                effect
                for effect in self._store.apply(request)
                if isinstance(effect, Preferred)
            )
            if not answer.claim_missing and not answer.look_missing:
                return answer.kubelet_ids
            self._hurry(claim_missing=answer.claim_missing)
            if await self._store.changed(version, until=deadline) == version:
                self._waited_until = clock.loop_s()
                return answer.kubelet_ids

    async def _decide(self, kubelet_ids: tuple[str, ...]) -> Hold | Refused:
        """Let the ledger give chips to one container; return the hold or the refusal.

        If no claim fits yet, the method waits for one, at most CLAIM_WAIT_S. If only a
        look of the driver is missing, it asks for one and waits for that. If still none
        fits, it reads the kubelet's list of pods and asks the ledger a last time.
        """
        ids = frozenset(kubelet_ids)
        checked = await self._read_stray_processes(ids)
        # the preference of the same pod has already waited for the claim
        has_waited = clock.loop_s() - self._waited_until < CLAIM_WAIT_S
        deadline = clock.loop_s() + (0.0 if has_waited else CLAIM_WAIT_S)
        while True:
            checked = await self._read_stray_processes(ids, but=checked)
            version = self._store.version
            answer = self._apply_allocate(AllocateAsked(kubelet_ids, last_call=False))
            if not isinstance(answer, AwaitClaim | AwaitLook):
                return answer
            is_claim_missing = isinstance(answer, AwaitClaim)
            self._hurry(claim_missing=is_claim_missing)
            if await self._store.changed(version, until=deadline) == version:
                break
        if is_claim_missing:
            resource = self._store.ledger.product.resource
            for pod in await self._pods.of_kubelet(resource):
                self._store.apply(PodUpdated(pod, by_kubelet=True))
        unseen_s = self._pods.unseen_s()
        answer = self._apply_allocate(
            AllocateAsked(kubelet_ids, last_call=True, unseen_s=unseen_s)
        )
        match answer:
            case Hold() | Refused():
                return answer
            case AwaitClaim() | AwaitLook():  # a last call is always answered
                raise AssertionError(kubelet_ids)

    def _hurry(self, *, claim_missing: bool) -> None:
        """Have the API server and the driver tell what a request waits for."""
        if claim_missing:
            self._pods.hurry()
        if values.unchecked_chips(self._store.ledger):
            self._look_now()

    async def _read_stray_processes(
        self, kubelet_ids: frozenset[str], *, but: frozenset[str] = frozenset()
    ) -> frozenset[str]:
        """Send the ledger the running processes of ended pods that had `kubelet_ids`.

        The ledger can release the hold of an ended pod only when no process of that pod
        runs any more.

        Args:
            kubelet_ids: Device ids that the kubelet offers or gives out.
            but: Uids of pods that this request has asked about before. A pod's end may
                be heard of while the request waits.

        Returns:
            `but`, and the uids of the pods that were asked about now.
        """
        uids = release.pods_to_check_for_processes(self._store.ledger, kubelet_ids)
        uids -= but
        if uids:
            pids = await self._find_stray_processes(uids)
            self._store.apply(StrayProcessesRead(uids=uids, pids=pids))
        return but | uids

    def _apply_allocate(
        self, request: AllocateAsked
    ) -> Hold | Refused | AwaitClaim | AwaitLook:
        """Return the ledger's answer to an Allocate: a hold, a refusal, or a wait."""
        for effect in self._store.apply(request):
            if isinstance(effect, Granted):
                return effect.hold
            if isinstance(effect, Refused | AwaitClaim | AwaitLook):
                return effect
        raise AssertionError(request)  # an Allocate is always answered
