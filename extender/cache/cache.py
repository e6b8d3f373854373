"""What is known of the cluster, changed one event at a time by `step`.

Without I/O and without a clock: a change comes in with the time at which it is
learnt, and only the node that it touches is computed again. Everything here is a copy:
its source of truth is the API server (watches), except the promises of binds under
way, whose owner is `binding`; a restart rebuilds the one and voids the other.

Invariant: a chip is free only if no living pod claims it, no promise holds it, and
the agent neither holds nor releases it, however late or often events arrive. What can
never come back does not: a pod's node once set stays set, a pod that ended has ended.
"""

from typing import assert_never

from extender.cache import events, heartbeats
from extender.cache.events import Assumed, Change
from extender.cache.node_record import Host, Record, offers_more
from extender.cache.rejections import Storms
from extender.cache.requests import Loads
from extender.cache.unconfirmed import Waiting
from extender.gang import events as gang_events
from extender.gang import permit
from extender.gang.gangs import Gangs
from scheduler_core.index.cluster import Cluster
from scheduler_core.wire.pods import NpuPod

#: An agent writes its ConfigMap at least every five minutes; three are missed.
AGENT_SILENT_S = 900.0


class Cache:
    """The cluster as the extender sees it. Change it through `step` only."""

    def __init__(
        self,
        *,
        self_maintain: bool = True,
        agent_silent_s: float = AGENT_SILENT_S,
        limits: gang_events.Limits = gang_events.Limits(),  # noqa: B008  # a frozen value
        bare_nodes: bool = False,
    ) -> None:
        """Start with an empty cluster.

        Args:
            self_maintain: True: free chips follow from inventory, health and pods.
                False: the ConfigMap's list bounds them as well.
            agent_silent_s: a node whose agent has shown no life for so long is out.
            limits: how long what concerns whole jobs may take.
            bare_nodes: whether nodes without any report count, by what they offer.
        """
        self.limits = limits
        self._self_maintain = self_maintain
        self._bare_nodes = bare_nodes
        self.agent_silent_s = agent_silent_s
        #: {node: what is known of it}
        self.hosts: dict[str, Host] = {}
        #: claims that no Allocate has served yet
        self.waiting = Waiting()
        #: {uid: pod}; pods that ask for NPUs, ended ones too, until they are deleted
        self.pods: dict[str, NpuPod] = {}
        #: {(namespace, name): uid} of the newest pod of that name
        self.uids: dict[tuple[str, str], str] = {}
        #: {uid: promise}
        self.assumed: dict[str, Assumed] = {}
        self.cluster = Cluster()
        #: nodes that offer more than before; whoever acts on it clears it
        self.better: set[str] = set()
        self.storms = Storms()
        #: jobs of several pods
        self.gangs = Gangs()
        #: what is to be done for them; whoever does it clears it
        self.effects: list[gang_events.Effect] = []
        #: CPU and memory that pods ask for
        self.loads = Loads()
        #: {uid: priority} of pods that ask for NPUs, where it is not 0
        self.priorities: dict[str, int] = {}
        #: {pod or job: chips that are freed for it}
        self.rooms: dict[str, events.RoomKept] = {}
        #: {resource: {node: (the job that it is kept for, that job's priority)}}
        self.kept: dict[str, dict[str, tuple[str, int]]] = {}
        #: (tor_info, tor_level) of the leaf switches' ConfigMap; "" if absent
        self.switch_texts = ("", "")
        #: grows when a node turns out to be of another SuperPoD
        self.superpods_version = 0
        #: grows with whatever a plan depends on
        self.version = 0
        #: how much later than the youngest report all was read; None: it is not yet
        self.ahead_s: float | None = None
        #: what is out of sight, as a sentence names it; "" for nothing
        self.lost = ""
        #: seconds since the epoch, of the last `Ticked`
        self.ticked_s = 0.0

    def host(self, name: str) -> Host:
        """What is known of a node; a new one if that is nothing."""
        host = self.hosts.get(name)
        if host is None:
            host = self.hosts[name] = Host(name=name, takes_bare=self._bare_nodes)
        return host

    def record(self, name: str, resource: str) -> Record:
        """What is known of a node's chips of a resource; new if that is nothing."""
        host = self.host(name)
        record = host.line(resource)
        if record is None:
            record = Record(host=host, resource=resource)
            host.lines = *host.lines, record
        return record

    def line(self, name: str, resource: str) -> Record | None:
        """The same, if there is anything."""
        host = self.hosts.get(name)
        return None if host is None else host.line(resource)

    def pod(self, namespace: str, name: str) -> NpuPod | None:
        """The newest pod of that name, if it asks for NPUs."""
        return self.pods.get(self.uids.get((namespace, name), ""))

    def conflicts(self, pod: NpuPod) -> frozenset[str]:
        """The nodes where a pod waits that `pod` could be taken for."""
        return self.waiting.conflicts(pod.shape)

    def kept_from(self, uid: str) -> frozenset[str]:
        """The nodes that are kept for another job than this pod's."""
        if not self.kept:
            return frozenset()
        job, mine = self.gangs.job_of.get(uid, ""), self.priorities.get(uid, 0)
        pod = self.pods.get(uid)
        resources = self.kept if pod is None else (pod.shape.resource,)
        return frozenset(
            node
            for resource in resources
            for node, (other, priority) in self.kept.get(resource, {}).items()
            if other != job and mine <= priority
        )

    def of_job(self, event: gang_events.Event, now_s: float) -> None:
        """Move the jobs of several pods on; what is to be done waits in `effects`."""
        self.effects += permit.step(self.gangs, event, now_s, self.limits)

    def compute(self, record: Record) -> None:
        """Bring chips of a node up to date in the index, and forget what is nothing."""
        self.version += 1
        host, resource = record.host, record.resource
        if record.is_empty:
            host.lines = tuple(each for each in host.lines if each is not record)
            self.tidy(host)
        has_gone_on = self.waiting.put(host.name, resource, record.unconfirmed())
        before = self.cluster.line(resource).get(host.name)
        state = record.state(self_maintain=self._self_maintain)
        if has_gone_on or offers_more(before, state):
            self.better.add(host.name)
        if state is not None:
            self.cluster.put(state)
        else:
            self.cluster.drop(host.name, resource)

    def tidy(self, host: Host) -> None:
        """Forget a node of which nothing is known."""
        if host.is_empty:
            self.hosts.pop(host.name, None)

    @property
    def self_maintains(self) -> bool:
        """Whether free chips follow from pods, whatever the agents list."""
        return self._self_maintain

    def maintain(self, *, itself: bool) -> None:
        """Work out free chips from pods, or have the agents' lists bound them too."""
        self._self_maintain = itself
        for record in self.records():
            self.compute(record)

    def records(self) -> list[Record]:
        """All that is known of chips, of one node after the other."""
        return [record for host in self.hosts.values() for record in host.lines]

    def hear(self, record: Record, now_s: float) -> None:
        """Have a record read what its node's report says now."""
        if record.hear(now_s, self.agent_silent_s, self.ahead_s or 0.0):
            self.superpods_version += 1


def step(cache: Cache, change: Change, now_s: float) -> None:
    """Let one thing happen.

    Args:
        cache: changed in place.
        change: what happened.
        now_s: seconds since the epoch, when we learnt of it.

    Cost:
        O(pods and chips of the touched node); Ticked and ModeSet: O(nodes).
    """
    match change:
        case events.NodeSeen():
            _node_seen(cache, change, now_s)
        case events.ReportSeen():
            _report(cache, change, now_s)
        case events.PodSeen():
            _pod_seen(cache, change, now_s)
        case events.PodGone():
            _pod_gone(cache, change.uid, now_s)
        case events.Ticked():
            _tick(cache, change, now_s)
        case events.RoomKept():
            _keep_room(cache, change)
        case events.RoomGivenUp():
            _give_room_up(cache, change.owner)
        case _:
            _step(cache, change)


def _step(
    cache: Cache,
    change: events.OtherSeen
    | events.SizeRead
    | events.SwitchesSeen
    | Assumed
    | events.Dropped
    | events.ModeSet,
) -> None:
    """Let something happen that is the same whenever it does."""
    match change:
        case events.OtherSeen():
            cache.loads.put(change.uid, change.node, change.ask)
            cache.gangs.put_other(change.uid, change.job)
        case events.SwitchesSeen():
            cache.switch_texts = (change.tor_info, change.tor_level)
            cache.version += 1
        case events.SizeRead():
            cache.gangs.read(change.job, change.size, change.problem)
        case events.Assumed():
            _drop(cache, change.uid, computed=change.node)
            cache.assumed[change.uid] = change
            record = cache.record(change.node, change.shape.resource)
            record.put_assumed(change)
            cache.compute(record)
        case events.Dropped():
            _drop(cache, change.uid)
        case events.ModeSet():
            cache.maintain(itself=change.self_maintain)
        case _:
            assert_never(change)


def _keep_room(cache: Cache, room: events.RoomKept) -> None:
    cache.rooms[room.owner] = room
    for node, mask in room.chips.items():
        record = cache.record(node, room.resource)
        record.kept[room.owner] = mask
        cache.compute(record)


def _give_room_up(cache: Cache, owner: str) -> None:
    room = cache.rooms.pop(owner, None)
    if room is None:
        return
    for node in room.chips:
        record = cache.record(node, room.resource)
        del record.kept[owner]
        cache.compute(record)


def _node_seen(cache: Cache, change: events.NodeSeen, now_s: float) -> None:
    host = cache.host(change.name)
    host.inventory_text = change.inventory
    host.room = change.room
    host.address = change.address
    host.superpod = change.superpod
    offers = {offer.product.resource: offer for offer in change.offers}
    for resource in offers:
        cache.record(change.name, resource)
    for record in host.lines:
        offer = offers.get(record.resource)
        record.allocatable = offer.allocatable if offer else 0
        record.put_product(offer.product if offer else None)
        cache.hear(record, now_s)  # its report may have come first
        cache.compute(record)
    cache.tidy(host)


def _report(cache: Cache, change: events.ReportSeen, now_s: float) -> None:
    host = cache.host(change.node)
    texts = (change.device_info, change.affinity)
    if cache.ahead_s is not None and texts != host.report_texts:
        host.told_s = now_s
    host.report_texts = texts
    for record in host.lines:
        cache.hear(record, now_s)
        cache.compute(record)
    cache.tidy(host)


def _judge_reports(cache: Cache, now_s: float) -> None:
    cache.ahead_s = heartbeats.ahead_s(cache.records(), now_s)
    for record in cache.records():
        if heartbeats.judge(record, cache.ahead_s, now_s, cache.agent_silent_s):
            cache.compute(record)


def _pod_seen(cache: Cache, change: events.PodSeen, now_s: float) -> None:
    pod = change.pod
    before = cache.pods.get(pod.uid)
    if before is not None and (
        (before.terminal and not pod.terminal) or (before.node and not pod.node)
    ):
        return  # old news: an ended pod does not live again, a bound one stays bound
    if change.rejected and before is not None and not before.terminal:
        cache.storms.rejected(pod.owner, now_s)
    cache.pods[pod.uid] = pod
    cache.uids[pod.namespace, pod.name] = pod.uid
    _sit(cache, change, now_s)
    if pod.node or pod.terminal:
        _drop(cache, pod.uid, computed=pod.node)
    if not pod.node:
        return
    record = cache.record(pod.node, pod.shape.resource)
    if pod.terminal:
        record.drop_tenant(pod.uid, now_s)
    else:
        record.put_tenant(pod)
    cache.compute(record)


def _sit(cache: Cache, change: events.PodSeen, now_s: float) -> None:
    """Note what a pod takes besides chips, and its seat in its job."""
    pod, seat = change.pod, change.seat
    if change.priority:
        cache.priorities[pod.uid] = change.priority
    if pod.terminal:
        cache.loads.drop(pod.uid)
    else:
        cache.loads.put(pod.uid, pod.node, change.ask)
    job = seat.membership.job if seat is not None else ""
    if cache.gangs.job_of.get(pod.uid, job) != job:
        _leave(cache, pod.uid, now_s)  # its labels say so
    if seat is None:
        return
    if pod.phase == "Failed":
        _leave(cache, pod.uid, now_s)
        return
    seated = bool(pod.node) or pod.terminal
    cache.gangs.put(pod.uid, seat, seated=seated, ending=pod.deleting)
    if seated:
        cache.of_job(gang_events.Seated(uid=pod.uid), now_s)
    elif pod.deleting:
        cache.of_job(gang_events.Lost(uid=pod.uid), now_s)


def _leave(cache: Cache, uid: str, now_s: float) -> None:
    """A pod is no member of its job any more."""
    cache.of_job(gang_events.Lost(uid=uid), now_s)
    cache.gangs.drop(uid)


def _pod_gone(cache: Cache, uid: str, now_s: float) -> None:
    _drop(cache, uid)
    _leave(cache, uid, now_s)
    cache.loads.drop(uid)
    cache.priorities.pop(uid, None)
    pod = cache.pods.pop(uid, None)
    if pod is None:
        return
    if cache.uids.get((pod.namespace, pod.name)) == uid:
        del cache.uids[pod.namespace, pod.name]
    record = cache.line(pod.node, pod.shape.resource)
    if record is not None:
        record.drop_tenant(uid, now_s)
        cache.compute(record)


def _drop(cache: Cache, uid: str, *, computed: str = "") -> None:
    """Forget a promise; a node that is computed anyway never looks free meanwhile."""
    promise = cache.assumed.pop(uid, None)
    if promise is not None:
        record = cache.record(promise.node, promise.shape.resource)
        del record.assumed[uid]
        if promise.node != computed:
            cache.compute(record)


def _tick(cache: Cache, change: events.Ticked, now_s: float) -> None:
    if change.is_all_read and cache.ahead_s is None:
        _judge_reports(cache, now_s)
    is_seen_again = bool(cache.lost) and not change.lost
    if is_seen_again or cache.storms.has_ended(cache.ticked_s, now_s):
        # the wait was every node's; to have the pods tried again, one is enough
        cache.better.update(cache.cluster.names[:1])
    cache.lost = change.lost
    cache.ticked_s = now_s
    cache.of_job(gang_events.Ticked(), now_s)
    cache.storms.forget(now_s)
    heard_s = now_s - cache.agent_silent_s
    for record in cache.records():
        if record.is_calm(heard_s):
            continue  # so are nearly all, and each second all are looked at
        silent = record.has_fallen_silent(now_s, cache.agent_silent_s)
        if record.show(now_s) or silent != record.is_silent:
            record.is_silent = silent
            cache.compute(record)
