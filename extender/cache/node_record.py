"""What is known of one node, and what follows from it: free chips, and why none.

A node may have chips of several product lines, each offered as a resource of its own.
Each has a record; what is one for all of them stands in the node's `Host`.

free = inventory and healthy - claims of living pods - promises - held - releasing
- what pods had that went before a report could show it.
When the agent maintains the list (`self-maintain-available-card: false`), that list
bounds it as well. Claims are subtracted in both modes, whatever their age: a list
written before a bind still shows its chips, and clocks cannot tell which came first.
"""

from dataclasses import dataclass, field
from functools import lru_cache

from extender.cache import node_report
from extender.cache.events import Assumed
from extender.cache.node_report import Report
from extender.cache.requests import ENDLESS, Ask
from scheduler_core.index.cluster import NodeState
from scheduler_core.node import chips
from scheduler_core.node import free as free_chips
from scheduler_core.node.reasons import Reason
from scheduler_core.products import table
from scheduler_core.products.table import Product
from scheduler_core.wire import annotations, inventory
from scheduler_core.wire.addresses import Addresses
from scheduler_core.wire.annotations import WireError
from scheduler_core.wire.pods import NpuPod
from scheduler_core.wire.shapes import Shape

#: Predicate-times from here on (the year 2262) are nobody's clock; they order nothing.
_NO_CLOCK = 2**63
#: An agent writes its ConfigMap at most once a second, so for that long, and for the
#: way here, it may hold chips that no report shows: after the pod that had them.
UNSHOWN_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """A living pod of the node, and what its annotations claim."""

    pod: NpuPod
    #: mask; union of what the scheduler wrote and what the agent mounted
    chips: int
    #: the claim's own time; `annotations.SERVED` once the agent has confirmed it
    predicate_time: int

    @property
    def is_unconfirmed(self) -> bool:
        """Whether it may still be taken for another pod on its node."""
        return bool(self.chips) and self.predicate_time != annotations.SERVED


@dataclass(slots=True, kw_only=True)
class Host:
    """What of a node is one for the chips of all its lines. Owner: the cache."""

    name: str
    #: whether servers without an agent count
    takes_bare: bool = False
    inventory_text: str = ""
    #: SuperPoD as the Node says it
    superpod: int = -1
    #: what it offers besides chips
    room: Ask = ENDLESS
    #: its InternalIP; "" is not known
    address: str = ""
    #: (DeviceInfoCfg, AscendAffinity) as the ConfigMap reads; "" if absent
    report_texts: tuple[str, str] = ("", "")
    #: our clock, seconds: when they came or changed since all was read; None: before
    told_s: float | None = None
    #: of each resource that it offers, or that pods are here for; nearly always one
    lines: tuple["Record", ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing is known that the API server would not say again."""
        return not self.lines and not any(self.report_texts)

    def line(self, resource: str) -> "Record | None":
        """What is known of its chips of a resource."""
        for record in self.lines:
            if record.resource == resource:
                return record
        return None


@dataclass(slots=True, kw_only=True)
class Record:
    """Chips of one resource on one node, and who has them.

    Owner: the cache, which asks for `state` after each change.
    """

    host: Host
    resource: str
    #: None: the node offers none, as far as it is known
    product: Product | None = None
    allocatable: int = 0
    #: the last ConfigMap that could be read
    report: Report | None = None
    report_unreadable: bool = False
    #: our clock, seconds: when the agent last showed that it lives
    alive_s: float = 0.0
    is_silent: bool = True
    #: {uid: pod}, living pods only
    tenants: dict[str, Tenant] = field(default_factory=dict)
    #: {uid: promise}
    assumed: dict[str, Assumed] = field(default_factory=dict)
    #: {pod or job: chips that are kept for it, free already or not yet}
    kept: dict[str, int] = field(default_factory=dict)
    #: {uid of a pod that has gone: (chips that no report showed, until when)}
    unshown: dict[str, tuple[int, float]] = field(default_factory=dict)
    #: the newest predicate-time seen here; the next one is above it
    last_time: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing is known that the API server would not say again."""
        return (
            self.product is None
            and not self.tenants
            and not self.assumed
            and not self.kept
            and not self.unshown
        )

    def put_product(self, product: Product | None) -> None:
        """Set what kind of chips they are, and read its pods' claims accordingly."""
        if product == self.product:
            return
        self.product = product
        for tenant in list(self.tenants.values()):
            self.put_tenant(tenant.pod)

    def put_tenant(self, pod: NpuPod) -> None:
        """Note a living pod of this node that asks for these chips, and its claim."""
        tenant = tenant_of(pod, self.product)
        self.tenants[pod.uid] = tenant
        self._see_time(tenant.predicate_time)

    def drop_tenant(self, uid: str, now_s: float) -> None:
        """Note that a pod has gone; what it had and nobody reported stays a while."""
        tenant = self.tenants.pop(uid, None)
        if tenant is None:
            return
        report = self.report
        if report is None or not report.has_holds:
            return
        unshown = tenant.chips & ~(report.held | report.releasing)
        if unshown:
            self.unshown[uid] = (unshown, now_s + UNSHOWN_S)

    def show(self, now_s: float) -> bool:
        """Forget chips whose report must have come; whether there were any."""
        over = [uid for uid, (_, until_s) in self.unshown.items() if now_s >= until_s]
        for uid in over:
            del self.unshown[uid]
        return bool(over)

    def put_assumed(self, promise: Assumed) -> None:
        """Note chips that a bind under way has taken."""
        self.assumed[promise.uid] = promise
        self._see_time(promise.predicate_time)

    def read_report(self) -> None:
        """Read the ConfigMap's texts; what cannot be read leaves the last good one."""
        self.report_unreadable = False
        host, product = self.host, self.product
        if product is None:
            self.report = None
            return
        if not host.report_texts[0]:
            bare = host.takes_bare
            self.report = (
                node_report.of_bare_node(product, host.superpod) if bare else None
            )
            return
        try:
            self.report = node_report.report_of(*host.report_texts, product)
        except WireError:
            self.report_unreadable = True

    def hear(self, now_s: float, silent_s: float, ahead_s: float) -> bool:
        """Take a new report as a sign of life; whether it is of another SuperPoD.

        One that was there before us says by its own time how old it is. Others are
        new by our clock, however wrong the node's clock is.

        Args:
            now_s: seconds since the epoch.
            silent_s: for how long an agent may show no life.
            ahead_s: how far our clock may be ahead of the agents'.
        """
        before = self.report
        self.read_report()
        after = self.report
        if after is not None and after != before:
            if before is None:
                found_s = min(after.update_time + ahead_s, now_s)
                told_s = self.host.told_s
                self.alive_s = found_s if told_s is None else told_s
            elif after.update_time != before.update_time:
                self.alive_s = now_s
            self.is_silent = self.has_fallen_silent(now_s, silent_s)
        return (before and before.superpod) != (after and after.superpod)

    def is_calm(self, heard_s: float) -> bool:
        """Whether nothing of it ends by time before `heard_s` is later."""
        return (
            self.alive_s >= heard_s
            and not self.is_silent
            and not self.unshown
            and self.report is not None
        )

    def has_fallen_silent(self, now_s: float, silent_s: float) -> bool:
        """Whether the agent has shown no life for so long, or none ever."""
        if self.report is None:
            return True
        return not self.report.is_bare and now_s - self.alive_s > silent_s

    def _there(self, product: Product) -> int | None:
        """The chips that are there; None if it cannot be told which.

        Where nobody lists them, they are those of the product, if as many are offered.
        """
        text = self.host.inventory_text
        listed = _inventory(text, product.key)
        if self.report is None or not self.report.is_bare:
            return listed
        there = listed if text else product.all_chips
        is_whole = there is not None and there.bit_count() == self.allocatable
        return there if is_whole else None

    def next_time(self, now_ns: int) -> int:
        """The predicate-time for a claim made now: above all others of the node."""
        return max(now_ns, self.last_time + 1)

    def unconfirmed(self) -> frozenset[Shape]:
        """Shapes of the claims that wait for their Allocate or its confirmation.

        Without an agent nobody confirms anything, and nobody is taken for another.
        """
        if self.report is not None and self.report.is_bare:
            return frozenset()
        waiting = [
            each.pod.shape for each in self.tenants.values() if each.is_unconfirmed
        ]
        return frozenset([*waiting, *[each.shape for each in self.assumed.values()]])

    def is_cleared(self, owner: str) -> bool:
        """Whether the chips that are kept for somebody are free but for that."""
        report, mask = self.report, self.kept.get(owner, 0)
        if report is None:
            return False
        busy = self.taken(but=owner) | report.held | report.releasing | report.unfit
        return not mask & busy

    def taken(self, *, but: str = "") -> int:
        """Mask of the chips that pods claim, have just left, or that are promised.

        Args:
            but: What is kept for it does not count.
        """
        mask = 0
        for tenant in self.tenants.values():
            mask |= tenant.chips
        for promise in self.assumed.values():
            mask |= promise.chips
        for chips_left, _ in self.unshown.values():
            mask |= chips_left
        for owner, kept in self.kept.items():
            mask |= kept if owner != but else 0
        return mask

    def addresses(self) -> Addresses | None:
        """Where the server and its chips are; None if nobody has said what it has."""
        report, product = self.report, self.product
        text = self.host.inventory_text
        if report is None or product is None or not text:
            return None
        try:
            chips_at = inventory.parse_addresses(text, product)
        except WireError:
            return None
        return Addresses(
            super_pod_id=report.superpod,
            server_index=report.server_index,
            chips=chips_at,
        )

    def state(self, *, self_maintain: bool) -> NodeState | None:
        """The node as the core's index wants it; None without such NPUs."""
        product = self.product
        if product is None:
            return None
        there = self._there(product)
        report = self.report
        if report is None or there is None:
            return NodeState(
                name=self.host.name,
                product=product,
                inventory=there or 0,
                healthy=0,
                free=0,
                taken=self.taken(),
                barred=self._barred(there) or Reason.AGENT_SILENT,
            )
        healthy = there & ~report.unfit
        claimed = self.taken()
        free = free_chips.free_chips(
            healthy=healthy,
            claimed=claimed,
            held=report.held,
            releasing=report.releasing,
            listed=None if self_maintain else report.available,
        )
        return NodeState(
            name=self.host.name,
            product=product,
            inventory=there,
            healthy=healthy,
            free=free,
            network_unhealthy=there & report.network_unfit,
            taken=claimed | report.held | report.releasing,
            barred=self._barred(there),
        )

    def _barred(self, there: int | None) -> Reason | None:
        if not self.allocatable:
            return Reason.NO_ALLOCATABLE
        if self.is_silent or there == 0:
            return Reason.AGENT_SILENT
        if there is None or self.report_unreadable:
            return Reason.BAD_NODE_REPORT
        if self.report is not None and self.report.lost:
            return Reason.IDS_LOST
        return None

    def _see_time(self, predicate_time: int) -> None:
        if predicate_time < _NO_CLOCK:
            self.last_time = max(self.last_time, predicate_time)


def offers_more(before: NodeState | None, after: NodeState | None) -> bool:
    """Whether a pod that the node refused may now fit."""
    if after is None or after.barred:
        return False
    return before is None or bool(before.barred) or bool(after.free & ~before.free)


def tenant_of(pod: NpuPod, product: Product | None) -> Tenant:
    """Read the claim of a pod, keeping chips even from texts that are not whole.

    A chip that an unreadable annotation names is taken all the same: to give it to
    another pod is the worse mistake. Such a claim can be taken for no other, since
    the agent cannot read it either.
    """
    if product is None or product.resource != pod.shape.resource:
        return Tenant(pod=pod, chips=0, predicate_time=annotations.SERVED)
    mask = 0
    for key in (product.resource, annotations.ASCEND_REAL):
        mask |= _named(pod.annotations.get(key, ""), product)
    try:
        claim = annotations.parse_claim(pod.annotations, product)
    except WireError:
        claim = None
    time = annotations.SERVED if claim is None else claim.predicate_time
    return Tenant(pod=pod, chips=mask, predicate_time=time)


# Asked for with each change of a node, but changed only when its agent starts.
@lru_cache(maxsize=16_384)
def _inventory(text: str, product_key: str) -> int | None:
    """The chips that the node's annotation lists; None if it cannot be read."""
    if not text:
        return 0
    product = table.by_key(product_key)
    try:
        return chips.mask_of(inventory.parse(text, product))
    except WireError:
        return None


def _named(text: str, product: Product) -> int:
    if not text:
        return 0
    try:
        return chips.mask_of(annotations.parse_chips(text, product))
    except WireError:
        return _named_in_parts(text.split(","), product)


def _named_in_parts(parts: list[str], product: Product) -> int:
    # a set: of a hundred thousand parts, few can be names of chips
    named = {part.strip() for part in parts}
    names = {annotations.chip_name(c, product): c for c in range(product.chip_count)}
    return chips.mask_of(names[name] for name in named & names.keys())
