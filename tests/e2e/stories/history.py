"""What the API server tells of jobs and their pods, from the beginning."""

import asyncio
import time
from collections.abc import Sequence

from sandbox.apiclient import ApiClient, Listed
from tests.e2e import stalls
from tests.e2e.stories.lives import Told

#: {kind: path of its collection}
PATHS = {
    "Pod": "/api/v1/namespaces/default/pods",
    "Job": "/apis/batch/v1/namespaces/default/jobs",
    "StatefulSet": "/apis/apps/v1/namespaces/default/statefulsets",
    "ReplicaSet": "/apis/apps/v1/namespaces/default/replicasets",
    "Deployment": "/apis/apps/v1/namespaces/default/deployments",
    "JobSet": "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets",
    "LeaderWorkerSet": "/apis/leaderworkerset.x-k8s.io/v1/namespaces/default/"
    "leaderworkersets",
    "PyTorchJob": "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs",
    "RayCluster": "/apis/ray.io/v1/namespaces/default/rayclusters",
}
#: What Kubernetes' own controllers make pods of.
OWN_KINDS = ("Pod", "Job", "StatefulSet", "ReplicaSet", "Deployment")
_LOOK_S = 0.02


class HoleError(Exception):
    """A watch ended: what came between is not known."""


class History:
    """Each change of each object of some kinds.

    Protects that none is left out, and their order.
    """

    def __init__(self, api: ApiClient, kinds: Sequence[str]) -> None:
        self._api = api
        self._kinds = kinds
        self._begun_s = time.monotonic()
        self._stood_still_s = stalls.stood_still_s()
        #: the latest time that was told
        self._now_s = 0.0
        self._told: list[Told] = []
        #: kinds that are followed
        self._followed: set[str] = set()

    @property
    def now_s(self) -> float:
        """Seconds since the beginning in which the machine gave us time.

        How long it gave none is known a little later, which turns no time back.
        """
        stood_s = stalls.stood_still_s() - self._stood_still_s
        now_s = time.monotonic() - self._begun_s - stood_s
        self._now_s = max(self._now_s, now_s)
        return self._now_s

    @property
    def told(self) -> list[Told]:
        """All events so far; those of one kind are in order."""
        return self._told

    async def begun(self) -> None:
        """Wait until nothing more can be missed."""
        while {*self._kinds} - self._followed:
            await asyncio.sleep(_LOOK_S)

    async def follow(self) -> None:
        """Follow all kinds for ever.

        Raises:
            HoleError: A watch ended.
        """
        async with asyncio.TaskGroup() as tasks:
            for kind in self._kinds:
                tasks.create_task(self._follow(kind, PATHS[kind]))

    async def _follow(self, kind: str, path: str) -> None:
        async for event in self._api.follow(path):
            if not isinstance(event, Listed):
                item = {**event.item, "kind": kind}
                told = Told(at_s=self.now_s, item=item, is_gone=event.gone)
                self._told.append(told)
            elif kind in self._followed or event.items:
                raise HoleError(kind)
            else:
                self._followed.add(kind)
