"""Resync: compares watches with the API server, and the cache with the watches.

A difference means that a watch missed an event, or that the cache did not apply one.
Either is a defect in the extender, or in a component between the extender and etcd. A
missed event may stay unnoticed until the watch breaks and lists again. Until then, a
chip may look free although it is not. So each difference is repaired: the watch lists
again, or the event is applied to the cache.
"""

import asyncio
import logging
import random  # noqa: TID251  # jitter, so that no two programs list in step
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any, NoReturn, TypeVar

from extender.apiserver.informers import Informers
from extender.cache import decode, verify
from extender.cache.cache import Cache
from extender.cache.events import (
    Change,
    NodeUpdated,
    PodDeleted,
    PodUpdated,
    ReportUpdated,
    Shown,
)
from extender.metrics import Metrics
from kube.errors import KubeError
from kube.pager import HasMeta, uid_of
from kube.reflector import ListWatch

log = logging.getLogger(__name__)

#: Objects that are compared without a pause, a tenth of a millisecond each. Requests
#: are answered in the pauses, which leave them nine tenths of the processor.
_SLICE = 8
_PAUSE_S = 0.01
#: Differences of one comparison that are logged; of a thousand the first are enough.
_LOGGED_MOST = 20

T = TypeVar("T", bound=HasMeta)
_Comparison = Callable[[], Awaitable[None]]


class Resync:
    """Periodic comparison of API server, watches and cache; repairs differences."""

    def __init__(
        self,
        informers: Informers,
        cache: Cache,
        metrics: Metrics,
        *,
        learn: Callable[[Change], None],
        every_s: float,
    ) -> None:
        """Prepare the comparisons; `run` starts them.

        Args:
            informers: The five watches. They are compared with the API server.
            cache: Compared with the watches.
            metrics: Counts comparisons and repairs.
            learn: Applies an event to the cache.
            every_s: Mean pause in seconds between two comparisons of the same watch, or
                of the cache. 0 means no comparisons.
        """
        self._informers = informers
        self._cache = cache
        self._metrics = metrics
        self._learn = learn
        self._every_s = every_s
        self._rng = random.Random()  # noqa: S311  # jitter, not a secret
        self._logged = 0

    async def run(self) -> None:
        """Compare watches with the API server, and the cache with watches, repeatedly.

        Each watch has a task that compares it with the API server. One more task
        compares the cache with the watches. Before each comparison, its task pauses for
        `every_s` seconds, with jitter. The tasks run until this call is cancelled. If
        `every_s` is 0, there are no tasks.
        """
        if not self._every_s:
            return
        async with asyncio.TaskGroup() as group:
            for comparison in self._comparisons():
                group.create_task(self._repeat(comparison))

    async def _repeat(self, comparison: _Comparison) -> NoReturn:
        while True:
            await asyncio.sleep(self._every_s * self._rng.uniform(0.8, 1.2))
            await comparison()

    async def run_once(self) -> None:
        """Compare each watch with the API server, then the cache with the watches.

        Each difference is repaired.

        Cost:
            For each watch, one list of resourceVersions from the API server. For the
            cache, O(objects), with a pause after every `_SLICE` objects.
        """
        for comparison in self._comparisons():
            await comparison()

    def _comparisons(self) -> list[_Comparison]:
        watches = self._informers.watches().items()
        server = [
            partial(self._compare_with_server, name, watch) for name, watch in watches
        ]
        return [*server, self._compare_with_cache]

    async def _compare_with_server(self, name: str, watch: ListWatch[Any]) -> None:
        try:
            differences = await watch.compare()
        except KubeError as error:
            log.info("watch not compared", extra={"what": name, "why": str(error)})
            differences = None
        result = "inconclusive" if differences is None else "done"
        self._metrics.resyncs.labels(result).inc()
        self._logged = 0
        for difference in differences or ():
            self._report(
                name,
                difference.name,
                f"expected version {difference.server_version or 'none'}, "
                f"found {difference.cached_version or 'none'}",
            )
        if differences:
            watch.relist_now()

    async def _compare_with_cache(self) -> None:
        self._logged = 0
        informers = self._informers
        for name, slices in (
            ("nodes", _slices(informers.nodes, decode.node_change)),
            ("pods", _slices(informers.pods, decode.pod_change)),
            ("reports", _slices(informers.reports, decode.report_change)),
        ):
            for slice_ in slices:
                for event in slice_:
                    self._repair(name, event)
                await asyncio.sleep(_PAUSE_S)
        leaves = next(iter(informers.switches.objects()), None)
        self._repair("switches", decode.switches_change(leaves))
        self._drop_strays()

    def _drop_strays(self) -> None:
        pods = {pod.metadata.uid for pod in self._informers.pods.objects()}
        nodes = {node.metadata.name for node in self._informers.nodes.objects()}
        reports = map(decode.report_change, self._informers.reports.objects())
        reported_nodes = {report.node for report in reports if report is not None}
        for stray in verify.find_strays(
            self._cache, nodes=nodes, pods=pods, reports=reported_nodes
        ):
            name, object_name = _describe(stray)
            self._report(name, object_name, "expected nothing, found it in the cache")
            self._learn(stray)

    def _repair(self, name: str, event: Shown) -> None:
        """Apply an event from a watch to the cache if the cache differs from the event.

        Args:
            name: Name of the watch, for log and metrics.
            event: The state of one object, as the watch has it now.
        """
        text = verify.find_drift(self._cache, event)
        if not text:
            return
        self._report(name, _describe(event)[1], text)
        self._learn(event)
        if isinstance(event, PodUpdated) and verify.find_drift(self._cache, event):
            # The cache ignores an ended or bound pod that becomes pending again. So
            # the pod is deleted from the cache first.
            self._learn(PodDeleted(uid=event.pod.uid))
            self._learn(event)

    def _report(self, name: str, object_name: str, text: str) -> None:
        self._metrics.repairs.labels(name).inc()
        self._logged += 1
        if self._logged <= _LOGGED_MOST:
            log.warning(
                "cache was wrong and is repaired",
                extra={"of": name, "object": object_name, "why": text},
            )


def _slices(
    watch: ListWatch[T], translate: Callable[[T], Shown | None]
) -> Iterator[list[Shown]]:
    """Yield a watch's objects as events, in lists of at most `_SLICE`.

    An object is left out if the watch has replaced or removed it since the iteration
    began. The watch itself sends that change to the cache.
    """
    objects = watch.objects()
    for start in range(0, len(objects), _SLICE):
        slice_ = objects[start : start + _SLICE]
        events = [translate(obj) for obj in slice_ if watch.get(uid_of(obj)) is obj]
        yield [event for event in events if event is not None]


def _describe(change: Change) -> tuple[str, str]:
    """Return the name of the watch that delivers a change, and the name of its object.

    The watch is "nodes", "reports" (device ConfigMaps) or "pods". A deleted pod, and a
    pod without NPUs, is named by its UID. The result for `SwitchesUpdated` is
    ("pods", ""), of which only the "" is used.
    """
    match change:
        case NodeUpdated(name=name):
            return "nodes", name
        case ReportUpdated(node=node):
            return "reports", node
        case PodUpdated(pod=pod):
            return "pods", f"{pod.namespace}/{pod.name}"
        case _:
            return "pods", getattr(change, "uid", "")
