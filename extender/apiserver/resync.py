"""Is all that is known true? Looked at now and then, and mended where it is not.

Whatever is found is a defect, ours or of what lies between us and etcd: an event that
never came, or a cache that has not followed. Nothing else would show it; until a watch
is lost for another reason, a chip may look free that is not.
"""

import asyncio
import logging
import random  # noqa: TID251  # jitter, so that no two programs list in step
from collections.abc import Awaitable, Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn, TypeVar

from extender.apiserver.informers import Feed
from extender.cache import decode, verify
from extender.cache.cache import Cache
from extender.cache.events import Change, NodeSeen, PodGone, PodSeen, ReportSeen
from extender.metrics import Metrics
from kube.errors import KubeError
from kube.pager import HasMeta, uid_of
from kube.reflector import ListWatch

log = logging.getLogger(__name__)

#: Objects that are looked at in one go, a tenth of a millisecond each; requests are
#: answered in between, and the pauses leave them nine tenths of the processor.
_SLICE = 8
_PAUSE_S = 0.01
#: Differences that are logged each; of a thousand the first tell enough.
_TOLD = 20

#: What promises are counted under, beside the watches.
_PROMISES = "promises"

T = TypeVar("T", bound=HasMeta)
_What = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Promises:
    """Who answers for chips that were promised."""

    #: UIDs of the pods for whose promises somebody does
    known: Callable[[], Collection[str]]
    #: has a promise looked into for which nobody does
    take_up: Callable[[str], None]


class Sweeping:
    """Compares now and then. Owner of nothing: cache and watches are repaired."""

    def __init__(
        self,
        feed: Feed,
        cache: Cache,
        metrics: Metrics,
        *,
        learn: Callable[[Change], None],
        promises: Promises,
        every_s: float,
    ) -> None:
        """Look at nothing yet.

        Args:
            feed: The watches.
            cache: What they have been brought to.
            metrics: Counts comparisons, and what is repaired.
            learn: Lets the cache learn of a change.
            promises: Who answers for those in the cache.
            every_s: Time between two comparisons; 0: there are none.
        """
        self._feed = feed
        self._cache = cache
        self._metrics = metrics
        self._learn = learn
        self._promises = promises
        self._every_s = every_s
        self._rng = random.Random()  # noqa: S311  # jitter, not a secret
        for name in (*feed.watches(), _PROMISES):
            metrics.repairs.labels(name)  # shown as 0 from the beginning
        self._told = 0

    async def run(self) -> None:
        """Compare now and then until cancelled."""
        if not self._every_s:
            return
        async with asyncio.TaskGroup() as group:
            for what in self._all():
                group.create_task(self._now_and_then(what))

    async def _now_and_then(self, what: _What) -> NoReturn:
        while True:
            await asyncio.sleep(self._every_s * self._rng.uniform(0.8, 1.2))
            await what()

    async def once(self) -> None:
        """Compare everything, and repair what is wrong.

        Cost:
            One list of versions for each watch, and O(objects), in slices.
        """
        for what in self._all():
            await what()

    def _all(self) -> list[_What]:
        watches = self._feed.watches().items()
        server = [partial(self._against_server, *each) for each in watches]
        return [*server, self._against_watches]

    async def _against_server(self, name: str, watch: ListWatch[Any]) -> None:
        try:
            found = await watch.compare()
        except KubeError as error:
            log.info("not compared", extra={"what": name, "why": str(error)})
            found = None
        result = "given up" if found is None else "done"
        self._metrics.sweeps.labels(result).inc()
        self._told = 0
        for each in found or ():
            self._tell(
                name,
                each.name,
                f"expected version {each.expected or 'none'}, "
                f"found {each.found or 'none'}",
            )
        if found:
            watch.renew()

    async def _against_watches(self) -> None:
        self._told = 0
        feed = self._feed
        for name, slices in (
            ("nodes", _slices(feed.nodes, decode.node_change)),
            ("pods", _slices(feed.pods, decode.pod_change)),
            ("reports", _slices(feed.reports, decode.report_change)),
        ):
            for slice_ in slices:
                for shown in slice_:
                    self._mend(name, shown)
                await asyncio.sleep(_PAUSE_S)
        leaves = next(iter(feed.switches.known()), None)
        self._mend("switches", decode.switches_change(leaves))
        self._drop_strays()
        self._take_up_promises()

    def _drop_strays(self) -> None:
        pods = {pod.metadata.uid for pod in self._feed.pods.known()}
        nodes = {node.metadata.name for node in self._feed.nodes.known()}
        reports = map(decode.report_change, self._feed.reports.known())
        shown_of = {report.node for report in reports if report is not None}
        for stray in verify.strays(
            self._cache, nodes=nodes, pods=pods, reports=shown_of
        ):
            name, what = _named(stray)
            self._tell(name, what, "expected nothing, found it in the cache")
            self._learn(stray)

    def _take_up_promises(self) -> None:
        """Have those settled that nobody answers for: they would last for ever."""
        for uid in verify.forgotten(self._cache, self._promises.known()):
            pod = self._cache.pods.get(uid)
            what = f"{pod.namespace}/{pod.name}" if pod else uid
            self._tell(_PROMISES, what, "chips are promised, and nobody binds it")
            self._promises.take_up(uid)

    def _mend(self, name: str, shown: verify.Shown) -> None:
        """Have the cache hold what a watch shows."""
        said = verify.wrong(self._cache, shown)
        if not said:
            return
        self._tell(name, _named(shown)[1], said)
        self._learn(shown)
        if isinstance(shown, PodSeen) and verify.wrong(self._cache, shown):
            # what an ended or bound pod never becomes again, this one has
            self._learn(PodGone(uid=shown.pod.uid))
            self._learn(shown)

    def _tell(self, name: str, what: str, said: str) -> None:
        self._metrics.repairs.labels(name).inc()
        self._told += 1
        if self._told <= _TOLD:
            log.warning(
                "what was known was wrong, and is mended",
                extra={"of": name, "object": what, "why": said},
            )


def _slices(
    watch: ListWatch[T], translate: Callable[[T], verify.Shown | None]
) -> Iterator[list[verify.Shown]]:
    """All that a watch shows, a few objects at a time, each as it is then."""
    known = watch.known()
    for start in range(0, len(known), _SLICE):
        some = known[start : start + _SLICE]
        shown = [translate(obj) for obj in some if watch.get(uid_of(obj)) is obj]
        yield [each for each in shown if each is not None]


def _named(change: Change) -> tuple[str, str]:
    """Which watch a change is of, and the name of its object."""
    match change:
        case NodeSeen(name=name):
            return "nodes", name
        case ReportSeen(node=node):
            return "reports", node
        case PodSeen(pod=pod):
            return "pods", f"{pod.namespace}/{pod.name}"
        case _:
            return "pods", getattr(change, "uid", "")
