"""A cluster in which pods are evicted, and an extender that is to cope with it.

API server, kubelets, agents and budgets are one object here, `Truth`; the extender's
parts are the real ones, put together as the program does it. Nothing waits: a loop is
turned until it is idle, and its time is turned by hand.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from extender.cache import decode, events
from extender.cache.cache import Cache
from extender.gang import membership
from extender.kube_scheduler.protocol import BindArgs
from extender.preemption.attempt import Outcome, Victim
from kube import objects
from kube.errors import ConflictError, NotFoundError
from kube.objects import Container, Meta, PodSpec, PodStatus, Resources
from scheduler_core.node import chips
from scheduler_core.products.table import ATLAS_800_TRAINING
from scheduler_core.wire import annotations
from scheduler_core.wire.pods import NpuPod
from tests.support.caches import empty, masks_on, resource_states
from tests.support.clock import Time
from tests.support.extender import World
from tests.support.watched import ALL, RESOURCE, node, report, served

NODES = ("n1", "n2", "n3")


class Loop(asyncio.SelectorEventLoop):
    """A loop with a clock that only a test turns."""

    def __init__(self) -> None:
        self.at = Time()
        super().__init__()

    def time(self) -> float:
        return self.at.now_s

    def turn(self) -> None:
        """Let everything that can go on go on."""
        self.run_until_complete(_turns())


async def _turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What a pod is like."""

    count: int
    priority: int
    #: its job, and how many pods that has; "" is none
    job: str = ""
    size: int = 1


@dataclass(slots=True, kw_only=True)
class Sent:
    """A bind on its way to the API server."""

    args: BindArgs
    annotations: Mapping[str, str]
    answer: asyncio.Future[None]
    at_s: float


@dataclass(slots=True, kw_only=True)
class Asked:
    """An eviction on its way to the API server."""

    victim: Victim
    rehearse: bool
    answer: asyncio.Future[Outcome]


@dataclass(slots=True)
class Truth:
    """What the API server has, and what the nodes have of it."""

    #: {name: pod}
    pods: dict[str, objects.Pod] = field(default_factory=dict)
    #: {node: mask of chips whose pod has gone and that are not clean yet}
    releasing: dict[str, int] = field(default_factory=dict)
    #: names of pods that their budgets hold, and of those whose evictions fail
    held: set[str] = field(default_factory=set)
    failing: set[str] = field(default_factory=set)
    made: int = 0

    def make(self, name: str, kind: Kind) -> None:
        self.made += 1
        text = (
            {membership.JOB: kind.job, membership.JOB_SIZE: str(kind.size)}
            if kind.job
            else {}
        )
        meta = Meta(
            namespace="default",
            name=name,
            uid=f"uid-{name}-{self.made}",
            annotations=text,
            creation_timestamp=f"2027-01-15T08:00:00.{self.made:06}Z",
        )
        one = Container(name="c", resources=Resources(limits={RESOURCE: kind.count}))
        spec = PodSpec(containers=[one], priority=kind.priority)
        status = PodStatus(phase="Pending")
        self.pods[name] = objects.Pod(metadata=meta, spec=spec, status=status)

    def change(
        self, name: str, text: Mapping[str, str | None], phase: str = ""
    ) -> None:
        """Write annotations, and perhaps the phase."""
        pod = self.pods[name]
        now = {**(pod.metadata.annotations or {}), **text}
        nominated = {key: value for key, value in now.items() if value is not None}
        meta = replace(pod.metadata, annotations=nominated)
        status = PodStatus(phase=phase or pod.status.phase)
        self.pods[name] = replace(pod, metadata=meta, status=status)

    def is_bound(self, name: str) -> bool:
        return name in self.pods and bool(self.pods[name].spec.node_name)

    def is_ending(self, name: str) -> bool:
        return bool(self.pods[name].metadata.deletion_timestamp)

    def is_alive(self, name: str) -> bool:
        return self.pods[name].status.phase in ("Pending", "Running")

    def bind(self, args: BindArgs, written: Mapping[str, str]) -> None:
        """Bind as the API server does.

        Raises:
            ApiError: it does not.
        """
        pod = self.pods.get(args.name)
        if pod is None:
            raise NotFoundError(404)
        if pod.metadata.uid != args.uid or pod.spec.node_name:
            raise ConflictError(409)
        if pod.metadata.deletion_timestamp:
            raise ConflictError(409)
        self.pods[args.name] = replace(pod, spec=replace(pod.spec, node_name=args.node))
        self.change(args.name, written)
        mask = mask_of(self.pods[args.name])
        assert mask, "a pod is bound without chips"
        assert not mask & self.releasing.get(args.node, 0), f"{args}: not clean yet"
        self.check(args.node)

    def check(self, where: str) -> None:
        """No chip of a node has two owners."""
        taken: dict[int, str] = {}
        for name, pod in self.pods.items():
            if pod.spec.node_name == where and self.is_alive(name):
                for chip in chips.ids_of(mask_of(pod)):
                    assert chip not in taken, (
                        f"{chip} of {where}: {taken[chip]}, {name}"
                    )
                    taken[chip] = name

    def serve(self, name: str) -> None:
        """The kubelet starts a pod, and the agent confirms its chips."""
        pod = self.pods[name]
        if pod.spec.node_name and pod.status.phase == "Pending":
            self.change(name, served(chips.ids_of(mask_of(pod))), "Running")

    def delete(self, name: str) -> None:
        """Delete a pod: one with a node ends by and by."""
        pod = self.pods[name]
        if not pod.spec.node_name:
            del self.pods[name]
            return
        meta = replace(pod.metadata, deletion_timestamp="2027-01-15T09:00:00Z")
        self.pods[name] = replace(pod, metadata=meta)

    def end(self, name: str, phase: str = "") -> None:
        """A pod's processes end; with a phase, its object stays."""
        pod = self.pods[name]
        if self.is_alive(name):
            where = pod.spec.node_name
            self.releasing[where] = self.releasing.get(where, 0) | mask_of(pod)
        if phase:
            self.change(name, {}, phase)
        else:
            del self.pods[name]

    def report(self, where: str, now_s: float) -> events.ReportUpdated:
        """What the agent says of its node."""
        held = 0
        for name, pod in self.pods.items():
            is_here = pod.spec.node_name == where and pod.status.phase == "Running"
            held |= mask_of(pod) if is_here and self.is_alive(name) else 0
        gone = self.releasing.get(where, 0)
        free = [chip for chip in ALL if not (held | gone) >> chip & 1]
        return report(
            where,
            there=free,
            held=chips.ids_of(held),
            releasing=chips.ids_of(gone),
            update_time=now_s,
        )


@dataclass(slots=True)
class Api:
    """What the extender asks of the API server, each answer given by a test."""

    truth: Truth
    loop: Loop
    #: what is on its way
    binds: list[Sent] = field(default_factory=list)
    evictions: list[Asked] = field(default_factory=list)
    #: sees each eviction as it is sent
    look: Callable[[Victim, bool], None] = lambda _victim, _rehearse: None
    #: whether evictions are answered only when a test says so
    is_slow: bool = False

    async def get(self, _namespace: str, name: str) -> objects.Pod:
        if name not in self.truth.pods:
            raise NotFoundError(404)
        return self.truth.pods[name]

    async def bind(self, args: BindArgs, text: Mapping[str, str]) -> None:
        sent = Sent(
            args=args,
            annotations=text,
            answer=self.loop.create_future(),
            at_s=self.loop.at.now_s,
        )
        self.binds.append(sent)
        await sent.answer

    async def evict(self, victim: Victim, *, rehearse: bool) -> Outcome:
        self.look(victim, rehearse)
        if not self.is_slow:
            return self.answer(victim, rehearse=rehearse)
        asked = Asked(
            victim=victim, rehearse=rehearse, answer=self.loop.create_future()
        )
        self.evictions.append(asked)
        return await asked.answer

    def answer(self, victim: Victim, *, rehearse: bool) -> Outcome:
        """Carry an eviction out."""
        name, truth = victim.name, self.truth
        if name not in truth.pods or truth.pods[name].metadata.uid != victim.uid:
            return Outcome.GONE
        if name in truth.held:
            return Outcome.BUDGET
        if name in truth.failing:
            return Outcome.FAILED
        if not rehearse:
            truth.delete(name)
        return Outcome.YES

    def tell(self, pod: NpuPod, reason: str, text: str) -> None:
        """Nobody reads here."""

    def wake(self) -> None:
        """A test tries when it likes."""


class Extender(World):
    """One that has read everything, and remembers nothing else."""

    def __init__(self, api: Api) -> None:
        super().__init__(empty(), api, evictions=api, preempts=True, time=api.loop.at)
        for name in NODES:
            self.learn(node(name), api.truth.report(name, self.time.now_s))
        self.learn(*map(decode.pod_change, api.truth.pods.values()))

    def filter_pod(self, pod: objects.Pod, names: tuple[str, ...]) -> list[str]:
        """The nodes that filter leaves to a pod, as the server answers it."""
        ours = decode.npu_pod(pod)
        assert ours is not None
        result = self.verbs._filter_nodes(pod, ours, names)
        return list(
            self.verbs._apply_preemption(self.preemptor, pod, ours, result).fitting
        )

    async def second(self) -> None:
        """What the program does each second."""
        self.pass_s(0)


def mask_of(pod: objects.Pod) -> int:
    """The chips that a pod's annotations name."""
    text = pod.metadata.annotations or {}
    mask = 0
    for key in (RESOURCE, annotations.ASCEND_REAL):
        if text.get(key):
            named = annotations.parse_chips(text[key], ATLAS_800_TRAINING)
            mask |= chips.mask_of(named)
    return mask


def check_chips(cache: Cache) -> None:
    """No chip is used or reserved by two pods, and none is freed for two."""
    for state in resource_states(cache):
        owned: defaultdict[str, int] = defaultdict(int)
        for uid, tenant in state.tenants.items():
            owned[uid] |= tenant.chips
        for uid, mask in masks_on(cache, state, freed=False).items():
            owned[uid] |= mask
        check_apart(owned)
        check_apart(masks_on(cache, state, freed=True))


def check_apart(owned: Mapping[str, int]) -> None:
    together = 0
    for mask in owned.values():
        assert not together & mask, owned
        together |= mask
