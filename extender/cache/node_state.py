"""Compute the free chips of one node, and the reason if the node can take no pods.

A node may have chips of several product lines. Each product line is a resource of its
own and has a `ResourceState`. Facts that all product lines of a node share are in
`NodeInfo`.

A free chip is healthy and listed in the Node's annotation `baseDeviceInfos`. A bare
node (one without an agent) may lack the annotation; then all its chips count as listed.
No living pod claims a free chip, and the chip is neither reserved, held, releasing nor
nominated.

An agent publishes held chips in its ConfigMap `mindx-dl-deviceinfo-<node>`. Chips of a
removed pod stay taken for a moment, until this ConfigMap can show whether the agent
still holds them. Other device plugins publish no held chips. Chips of a removed pod on
their nodes are free at once.

With `self-maintain-available-card: false` a free chip must also be in the agent's list
of available chips, in the same ConfigMap. This list alone is not enough: if it was
written before a bind, it still contains the chips of that bind.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf

from extender.cache import node_report, unreadable
from extender.cache.events import Offer
from extender.cache.node_report import Report
from extender.cache.requests import UNBOUNDED, Resources
from extender.cache.unreadable import Unreadable
from kube.objects import Taint
from scheduler_core.index.cluster import NodeState
from scheduler_core.node import chips
from scheduler_core.node import free as free_chips
from scheduler_core.node.reasons import Reason
from scheduler_core.products import lookup
from scheduler_core.products.table import Product
from scheduler_core.wire import annotations, chip_faults, deviceinfo, inventory
from scheduler_core.wire.addresses import Address, Addresses
from scheduler_core.wire.annotations import WireError
from scheduler_core.wire.chip_faults import ChipFault
from scheduler_core.wire.pods import NpuPod
from scheduler_core.wire.shapes import Shape

#: Predicate-times from here on (the year 2262) are markers, not times.
_NO_CLOCK = 2**63
#: How long a removed pod's chips stay taken that no report shows. An agent writes its
#: ConfigMap at most once a second; the rest is the way through the watch. Unit: s.
UNSHOWN_S = 2.0
#: By how much an agent's clock may differ from ours before people are told. Unit: s.
CLOCK_MOST_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """A living pod on a node, and the chips that its annotations claim."""

    pod: NpuPod
    #: mask: what the scheduler wrote, united with what the agent mounted
    chips: int
    #: predicate-time of the claim; `annotations.SERVED` once the agent has confirmed it
    predicate_time: int

    @property
    def is_unconfirmed(self) -> bool:
        """Whether the pod has a readable claim that the agent has not confirmed.

        The agent confirms a claim after Allocate has given out its chips. Until then,
        Allocate may mix up the pod with another pod of the node.
        """
        return bool(self.chips) and self.predicate_time != annotations.SERVED


@dataclass(slots=True, kw_only=True)
class NodeInfo:
    """Fields of a Node, texts of its agent's ConfigMap, and the state of each resource.

    Only the cache changes a `NodeInfo`.
    """

    name: str
    #: whether the node counts without an agent
    takes_bare: bool = False
    inventory_text: str = ""
    #: SuperPoD id from the Node
    superpod: int = -1
    #: CPU, memory and pod places of the node
    allocatable_resources: Resources = UNBOUNDED
    #: InternalIPs, the one that others use for the node first
    internal_ips: tuple[str, ...] = ()
    #: labels and taints, by which schedulers choose nodes; shared with the watch
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    #: stands for both
    marks: int = 0
    #: (DeviceInfoCfg, AscendAffinity) of the ConfigMap; "" if absent
    report_texts: tuple[str, str] = ("", "")
    #: when the texts last changed, by our clock in seconds
    report_seen_s: float = 0.0
    #: time in the newest readable report, by the agent's clock; None without a report
    update_time: int | None = None
    #: when that time last changed, by our clock in seconds
    alive_s: float = 0.0
    #: seconds by which the agent's clock is ahead of ours; 0 within `CLOCK_MOST_S`
    clock_ahead_s: float = 0.0
    #: the same, of the last effect `ClockJudged`
    announced_ahead_s: float = 0.0
    #: since when each report has come with a time behind ours; inf: the last had not
    late_since_s: float = inf
    #: what the Node offers, with the rows that it means
    offers: tuple[Offer, ...] = ()
    #: keys of product rows from the agent, as in the last readable ConfigMap
    products: tuple[str, ...] = ()
    #: state of each resource that the node offers or its pods use; mostly one
    resources: tuple["ResourceState", ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether the node has no resource states, no offers and no ConfigMap texts.

        If so, the cache deletes this `NodeInfo`.
        """
        return not (self.resources or self.offers or any(self.report_texts))

    def put_report(self, device_info: str, affinity: str) -> None:
        """Store the texts of the ConfigMap, and the keys of product rows in them.

        If the keys are unreadable, those of the text before stay.
        """
        if affinity != self.report_texts[1]:
            with suppress(WireError):  # `read_report` finds the same
                self.products = deviceinfo.parse_products(affinity)
        self.report_texts = (device_info, affinity)

    def see_report(self, update_time: int, stepped_s: float) -> None:
        """Record the time in a report: a new one is a sign of life, whatever it says.

        A report may be old when the extender begins, or come late. So a clock counts as
        behind only if a second report is, a minute later.

        Args:
            update_time: By the agent's clock, in seconds since the epoch.
            stepped_s: As `Facts.stepped_s`.
        """
        if update_time == self.update_time:
            return
        self.update_time = update_time
        self.alive_s = self.report_seen_s
        ahead_s = update_time - self.report_seen_s - stepped_s
        # half of it ends it: a clock at the limit would be told at each report
        is_known = ahead_s * self.clock_ahead_s > 0
        most_s = CLOCK_MOST_S / 2 if is_known else CLOCK_MOST_S
        is_late = ahead_s < -most_s
        self.late_since_s = min(self.late_since_s, self.alive_s) if is_late else inf
        is_behind = self.alive_s - self.late_since_s >= CLOCK_MOST_S
        self.clock_ahead_s = ahead_s if ahead_s > most_s or is_behind else 0.0

    def row_of(self, offer: Offer) -> Product | None:
        """Return the row of the chips of a resource that the Node offers."""
        return lookup.choose_node_row(
            offer.resource, self.products, by_node=offer.product
        )

    def find_resource(self, resource: str) -> "ResourceState | None":
        """Return the state of this resource on the node; None if there is none."""
        for resource_state in self.resources:
            if resource_state.resource == resource:
                return resource_state
        return None


@dataclass(slots=True, kw_only=True)
class ResourceState:
    """Chips of one resource on one node, and the pods that have them or will get them.

    Only the cache changes a `ResourceState`.
    """

    node_info: NodeInfo
    resource: str
    #: None: the node offers no such chips, as far as is known
    product: Product | None = None
    allocatable: int = 0
    #: from the last readable ConfigMap
    report: Report | None = None
    #: why the present ConfigMap cannot be read; None if it can
    unreadable_report: Unreadable | None = None
    #: text of the last effect `ReportJudged`
    announced_problem: str = ""
    #: faults at the last effect `FaultsChanged`
    announced_faults: tuple[ChipFault, ...] = ()
    is_silent: bool = True
    #: {uid: tenant} of living pods
    tenants: dict[str, Tenant] = field(default_factory=dict)
    #: {uid of a removed pod: (mask of its chips in no report, when they expire)}
    unshown: dict[str, tuple[int, float]] = field(default_factory=dict)
    #: newest predicate-time of the node; the next claim gets a later one
    last_time: int = 0
    #: (inventory text, product, {chip: address} read from it); None until it is read
    _chips_at: tuple[str, Product, Mapping[int, Address]] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether the state has no product, no pod and no `unshown`.

        The cache removes an empty state, unless a chip is reserved.
        """
        return self.product is None and not self.tenants and not self.unshown

    def put_product(self, product: Product | None) -> None:
        """Set the product of the chips.

        If it changed, the claims of all pods in `tenants` are parsed again.
        """
        if product == self.product:
            return
        self.product = product
        for tenant in list(self.tenants.values()):
            self.put_tenant(tenant.pod)

    def put_tenant(self, pod: NpuPod) -> None:
        """Add or update a living pod that asks for this resource and is on the node."""
        tenant = tenant_of(pod, self.product)
        self.tenants[pod.uid] = tenant
        self.see_time(tenant.predicate_time)

    def remove_tenant(self, uid: str, now_s: float) -> None:
        """Remove a pod that failed, succeeded or was deleted.

        The pod's chips that `report` shows as neither held nor releasing go to
        `unshown`. They stay taken for `UNSHOWN_S` seconds, because the agent may hold
        them and not have published it yet. If `report` does not say which chips are
        held, nothing goes to `unshown`.
        """
        tenant = self.tenants.pop(uid, None)
        if tenant is None:
            return
        report = self.report
        if report is None or not report.has_holds:
            return
        unshown = tenant.chips & ~(report.held | report.releasing)
        if unshown:
            self.unshown[uid] = (unshown, now_s + UNSHOWN_S)

    def expire_unshown(self, now_s: float) -> bool:
        """Delete each entry of `unshown` that is at least `UNSHOWN_S` seconds old.

        By then `report` normally shows which of the chips the agent still holds.

        Returns:
            Whether an entry was deleted.
        """
        expired_uids = [
            uid for uid, (_, until_s) in self.unshown.items() if now_s >= until_s
        ]
        for uid in expired_uids:
            del self.unshown[uid]
        return bool(expired_uids)

    def see_time(self, predicate_time: int) -> None:
        """Record the predicate-time of a claim, so that later claims get later ones."""
        if predicate_time < _NO_CLOCK:
            self.last_time = max(self.last_time, predicate_time)

    def read_report(self) -> None:
        """Set `report` from the texts of the node's `mindx-dl-deviceinfo-<node>`.

        The first of these cases that is true decides:

        - `product` is None: `report` becomes None.
        - The text `DeviceInfoCfg` is missing: `report` becomes None. But with
          `--bare-nodes` it becomes a report in which all chips are healthy.
        - A text is malformed: `report` does not change, and `unreadable_report` says
          what is wrong.
        - The texts are readable: `report` becomes their content.
        """
        self.unreadable_report = None
        node_info, product = self.node_info, self.product
        if product is None:
            self.report = None
            return
        if not node_info.report_texts[0]:
            bare = node_info.takes_bare
            self.report = (
                node_report.of_bare_node(product, node_info.superpod) if bare else None
            )
            return
        try:
            self.report = node_report.report_of(*node_info.report_texts, product)
        except WireError as error:
            self.unreadable_report = unreadable.of_text(error, product)

    def apply_report(self, now_s: float, silent_s: float, stepped_s: float) -> bool:
        """Set `report` and `is_silent` from `mindx-dl-deviceinfo-<node>`.

        Args:
            silent_s: An agent counts as silent if it published nothing for more than
                this many seconds.
            stepped_s: As `Facts.stepped_s`.

        Returns:
            Whether the SuperPoD id in `report` changed. Without a report, the id counts
            as None.
        """
        before = self.report
        self.read_report()
        after = self.report
        if after is not None and self.unreadable_report is None:
            self.node_info.see_report(after.update_time, stepped_s)
        self.is_silent = self.is_agent_silent(now_s, silent_s)
        return (before and before.superpod) != (after and after.superpod)

    def has_nothing_to_expire(self, heard_s: float) -> bool:
        """Whether the event `Ticked` (once a second) certainly changes nothing here.

        Args:
            heard_s: An agent that last published before this time counts as silent.
                Unit: seconds since the epoch.
        """
        return (
            self.node_info.alive_s >= heard_s
            and not self.is_silent
            and not self.unshown
            and self.report is not None
        )

    def is_agent_silent(self, now_s: float, silent_s: float) -> bool:
        """Whether the agent of the node published nothing for over `silent_s` seconds.

        True if `report` is None. Otherwise False for a bare node, which has no agent.
        """
        if self.report is None:
            return True
        return not self.report.is_bare and now_s - self.node_info.alive_s > silent_s

    def find_unreadable(self) -> Unreadable | None:
        """Return what of report or inventory cannot be read; None if all can."""
        listed = 0 if self.product is None else self._listed_chips(self.product)
        in_list = listed if isinstance(listed, Unreadable) else None
        return self.unreadable_report or in_list

    def _listed_chips(self, product: Product) -> int | Unreadable:
        """Return the mask of the chips that the node has, or why that is unknown.

        The Node's annotation `baseDeviceInfos` lists them. If it is missing, the mask
        has all chips of the product on a bare node, and no chips on any other node.
        It is unknown if the annotation is malformed, or if a bare node has another
        number of chips than `allocatable`.
        """
        text = self.node_info.inventory_text
        listed = node_report.inventory_of(text, product)
        is_bare = self.report is not None and self.report.is_bare
        if product.chip_row is not None or not is_bare:
            return listed
        mask = listed if text else product.all_chips
        if isinstance(mask, Unreadable) or mask.bit_count() == self.allocatable:
            return mask
        return unreadable.of_count(
            self.resource, offered=self.allocatable, present=mask.bit_count()
        )

    @property
    def is_counted(self) -> bool:
        """Whether parts of chips are counted, as the node does not say which it has."""
        product = self.product
        if product is None or product.chip_row is None:
            return False
        return self.report is None or not self._listed_chips(product)

    def _count(self, product: Product, reserved: int) -> NodeState:
        """Return the state with the parts that the kubelet offers, less those in use.

        Ids stand for no part, since the kubelet chooses: those in use are the lowest.
        """
        count = min(self.allocatable, product.chip_count)
        used = min(sum(tenant.pod.total for tenant in self.tenants.values()), count)
        every, taken = (1 << count) - 1, reserved | ((1 << used) - 1)
        return NodeState(
            name=self.node_info.name,
            product=product,
            inventory=every,
            healthy=every,
            free=every & ~taken,
            taken=every & taken,
            barred=None if self.allocatable else Reason.NO_ALLOCATABLE,
        )

    def next_time(self, now_ns: int) -> int:
        """Return the value of the annotation `predicate-time` for a new claim.

        The value orders the claims to chips of this resource on this node. It is
        `now_ns`, but always later than the values of all earlier claims.
        """
        return max(now_ns, self.last_time + 1)

    def unconfirmed(self, reserved: Iterable[Shape]) -> frozenset[Shape]:
        """Return the shapes of pods with a reservation or an unconfirmed claim.

        Empty for a bare node, where no agent confirms claims.
        """
        if self.report is not None and self.report.is_bare:
            return frozenset()
        shapes = frozenset(reserved)
        if not self.tenants:
            return shapes  # the common case for a plan of thousands of pods
        return shapes.union(
            tenant.pod.shape
            for tenant in self.tenants.values()
            if tenant.is_unconfirmed
        )

    def are_released(self, mask: int, *, reserved: int) -> bool:
        """Whether nothing occupies or bars the chips in `mask` any more.

        No chip may be unhealthy, held, releasing, claimed, in `unshown` or reserved.
        False if `report` is None.

        Args:
            mask: The chips.
            reserved: Mask of the chips that are reserved for others.
        """
        report = self.report
        if report is None:
            return False
        busy = self.claimed() | reserved
        return not mask & (busy | report.held | report.releasing | report.unfit)

    def faults_of(self, tenant: Tenant) -> tuple[ChipFault, ...]:
        """Return faults of the chips that a pod claims, confirmed or not, worst first.

        They are those in `faults`.
        """
        return chip_faults.of_chips(self.faults(), tenant.chips)

    def faults(self) -> tuple[ChipFault, ...]:
        """Return the faults of all chips in the newest report, by chip.

        While its list of faults is malformed, the lists of chips in it count, and while
        those are, the last readable report. Empty without a report: a silent agent is
        no fault.
        """
        faults = () if self.report is None else self.report.faults
        if self.unreadable_report is not None and self.product is not None:
            with suppress(WireError):
                text = self.node_info.report_texts[0]
                faults = node_report.faults_of(text, self.product)
        return faults

    def claimed(self) -> int:
        """Return the mask of chips that pods claim or that are in `unshown`."""
        mask = 0
        for tenant in self.tenants.values():
            mask |= tenant.chips
        for chips_left, _ in self.unshown.values():
            mask |= chips_left
        return mask

    def addresses(self) -> Addresses | None:
        """Return the SuperPoD id, the server index and the chip addresses of the node.

        None if the product, the report or a readable list of chips is missing.
        """
        report, product = self.report, self.product
        text = self.node_info.inventory_text
        if report is None or product is None or not text:
            return None
        if self._chips_at is None or self._chips_at[:2] != (text, product):
            try:
                chips_at = inventory.parse_addresses(text, product)
            except WireError:
                return None
            self._chips_at = text, product, chips_at
        return Addresses(
            super_pod_id=report.superpod,
            server_index=report.server_index,
            chips=self._chips_at[2],
        )

    def state(self, *, reserved: int, self_maintain: bool) -> NodeState | None:
        """Return the chips of this resource as a `NodeState`, for the index `Cluster`.

        None if the node offers no chips of this resource.

        Args:
            reserved: Mask of the reserved chips.
            self_maintain: False: a free chip must be in the agent's list of available
                chips. True: this list is not used.
        """
        product = self.product
        if product is None:
            return None
        if self.is_counted:
            return self._count(product, reserved)
        inventory_mask = self._listed_chips(product)
        report = self.report
        if report is None or not isinstance(inventory_mask, int):
            return NodeState(
                name=self.node_info.name,
                product=product,
                inventory=inventory_mask if isinstance(inventory_mask, int) else 0,
                healthy=0,
                free=0,
                taken=self.claimed() | reserved,
                barred=self._barred(inventory_mask) or Reason.AGENT_SILENT,
            )
        healthy = inventory_mask & ~report.unfit
        claimed = self.claimed() | reserved
        free = free_chips.free_chips(
            healthy=healthy,
            claimed=claimed,
            held=report.held,
            releasing=report.releasing,
            listed=None if self_maintain else report.available,
        )
        return NodeState(
            name=self.node_info.name,
            product=product,
            inventory=inventory_mask,
            healthy=healthy,
            free=free,
            network_unhealthy=inventory_mask & report.network_unfit,
            taken=claimed | report.held | report.releasing,
            barred=self._barred(inventory_mask),
        )

    def _barred(self, inventory_mask: int | Unreadable) -> Reason | None:
        if not self.allocatable:
            return Reason.NO_ALLOCATABLE
        is_read = self.unreadable_report is None
        if is_read and (self.is_silent or inventory_mask == 0):
            return Reason.AGENT_SILENT
        if not isinstance(inventory_mask, int) or not is_read:
            return Reason.BAD_NODE_REPORT
        if self.report is not None and self.report.lost:
            return Reason.IDS_LOST
        return None


def offers_more(before: NodeState | None, after: NodeState | None) -> bool:
    """Whether a node may take pods in state `after` that it refused in state `before`.

    True if the node has ceased to be barred, or has free chips that were not free, or
    whose network was faulty. A state is None if the node has no chips of the resource.
    """
    if after is None or after.barred:
        return False
    if before is None or before.barred:
        return True
    recovered = before.network_unhealthy & ~after.network_unhealthy
    return bool(after.free & (recovered | ~before.free))


def tenant_of(pod: NpuPod, product: Product | None) -> Tenant:
    """Return the pod as a tenant of its node, with the chips its annotations claim.

    Chips named in a malformed annotation count as taken, so that no other pod gets
    them. A malformed claim does not count as unconfirmed. The agent cannot read it, so
    Allocate cannot mix it up with another claim.

    Args:
        product: Product of the chips of the node. If it is None, or of another resource
            than the pod asks for, the pod claims no chips.
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


def _named(text: str, product: Product) -> int:
    if not text:
        return 0
    try:
        return chips.mask_of(annotations.parse_chips(text, product))
    except WireError:
        # a set: a hostile text may have a hundred thousand parts
        named = {part.strip() for part in text.split(",")}
        ids = range(product.chip_count)
        return chips.mask_of(
            c for c in ids if annotations.chip_name(c, product) in named
        )
