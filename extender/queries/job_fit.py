"""Whether a waiting job can ever fit: by the rules over jobs, and by how many pods fit.

Nothing is planned: an answer takes a step for each node.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil

from extender.cache.cache import Cache
from extender.gang.gang import Gang
from extender.planning.candidates import SUPERPOD_AFFINITY
from extender.planning.topology import Rules
from extender.scheduling.node_demands import admits
from scheduler_core.node import chips
from scheduler_core.placement import job_rules, one_kind
from scheduler_core.placement.job_rules import Job, Profile
from scheduler_core.products import lookup
from scheduler_core.products.columns import Product, distributed
from scheduler_core.products.lookup import SP_BLOCK
from scheduler_core.wire.annotations import parse_count

#: What to change where the reason says what is wrong.
CORRECT = "correct the job, or what else the reason names"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """How many of the largest pods that a job waits for fit on one kind of server."""

    #: all pods that the job needs, by the row of these servers
    job: Job
    row: Product
    hardware: Product
    #: chips of a pod, and number of such pods that wait
    size: int
    pods: int
    #: how many fit together once all nodes are empty and healthy, and how many now
    exist: int
    free: int

    @property
    def text(self) -> str:
        """The numbers, as a person reads them."""
        unit = f"times {self.size} chips"
        if self.size == self.row.chip_count:
            unit = "whole node" if self.pods == 1 else "whole nodes"
        exist = "1 exists" if self.exist == 1 else f"{self.exist} exist"
        free = "1 is free" if self.free == 1 else f"{self.free} are free"
        return f"{self.pods} {unit}, {exist}, {free} ({self.hardware.key})"

    def advise(self, profile: Profile) -> list[str]:
        """Return what to change in a job that never fits here; empty if it may fit."""
        if job_rules.problems(self.job, profile):
            return [*_advise_rules(self.job, self.row, profile)] or [CORRECT]
        lacking = self.pods - self.exist
        if lacking <= 0:
            return []
        on_node = _count_pods(self.row, (self.hardware.all_chips,), self.size) or 1
        nodes = f"add nodes ({self.hardware.key}): {ceil(lacking / on_node)}"
        return [f"ask for fewer pods, by {lacking}", nodes] if self.exist else [nodes]


def find_fits(
    cache: Cache, gang: Gang, offered: Sequence[str], rules: Rules
) -> Iterator[Fit]:
    """Yield how many pods of a job fit on each kind of server that may serve it.

    Nothing if its pods ask for unlike resources.

    Args:
        gang: The job. Its size is known, and the pods that it needs exist.
        offered: Nodes that its waiting pods may have now.
    """
    need, pods = gang.order_by_need(), cache.pods
    waiting = need.uids[: need.least] if gang.lacks_members else need.uids
    asking = [pods[uid] for uid in (*gang.placed, *waiting)]
    if not waiting or len({pod.shape.resource for pod in asking}) > 1:
        return
    resource, size = asking[0].shape.resource, max(pods[uid].total for uid in waiting)
    largest = [uid for uid in waiting if pods[uid].total == size]
    states, traits = cache.index.nodes(resource), gang.members[largest[0]].traits
    demands = {gang.members[uid].demands.on_nodes for uid in largest}
    on_nodes = demands.pop() if len(demands) == 1 else ""
    installed = [
        (state.product, state.product.all_chips if state.barred else state.inventory)
        for name, state in states.items()
        if admits(on_nodes, name, cache.nodes[name].labels, ())  # taints may go
    ]
    job = Job(
        row=None,
        pods=tuple([job_rules.Pod(pod.name, pod.total) for pod in asking]),
        sp_block=parse_count(traits.annotations.get(SP_BLOCK, "")),
        superpod_size=rules.superpod_size,
        soft_superpods=traits.labels.get(SUPERPOD_AFFINITY) == "soft",
    )
    closed = cache.closed_nodes(largest[0]) | cache.conflicts(pods[largest[0]])
    names = [name for name in offered if name in states and name not in closed]
    running = {gang.nodes[uid] for uid in gang.placed & gang.nodes.keys()}
    for kind in one_kind.kinds_of(
        lookup.resolve_job(resource, traits),
        {product for product, _ in installed},
        [states[node].product for node in running if node in states],
    ):
        row = distributed(kind.row)
        alike = [name for name in names if states[name].product is kind.hardware]
        able = cache.index.survey(kind.row, size, alike, in_network=True)
        free = [states[name].free_for(row) for name in able.best + able.worse]
        every = [mask for product, mask in installed if product is kind.hardware]
        yield Fit(
            job=replace(job, row=kind.row),
            row=row,
            hardware=kind.hardware,
            size=size,
            pods=len(largest),
            exist=_count_pods(row, every, size),
            free=_count_pods(row, free, size),
        )


def _count_pods(row: Product, masks: Iterable[int], size: int) -> int:
    """Return how many pods of a size fit together on these free chips of nodes."""
    count = 0
    for mask, nodes in Counter(masks).items():
        free = mask
        while taken := chips.choose(row, free, size):
            free, count = free & ~taken, count + nodes
    return count


def _advise_rules(job: Job, row: Product, profile: Profile) -> Iterator[str]:
    """Yield changes after which a job breaks no rule, each tried with the rules."""
    whole = ceil(job.chips / row.chip_count), row.chip_count
    for pods, size in ((1, job.chips), whole):
        alike = replace(job, pods=job_rules.pods_alike(pods, size))
        if not job_rules.problems(alike, profile):
            yield f"ask for {pods} {'pod' if pods == 1 else 'pods'} of {size} chips"
            break
    if not job_rules.problems(job, Profile.PER_POD):
        yield "or have job-rules: per-pod in the settings of the extender"
