"""What one node can do for a pod or a job, said step by step.

The steps are those of every decision, in its order: what is asked, the node, its
health, its free chips, whether they lie together, which are taken, and which nodes come
before.
A node's verdict is the one that `pod.place` counts.
"""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

from scheduler_core.explain import fragmentation
from scheduler_core.index.cluster import Cluster
from scheduler_core.node import chips, order
from scheduler_core.node.chip_mask import ids_of
from scheduler_core.node.decision import JobPlacement, Rejection
from scheduler_core.node.reasons import Reason, any_of, refusal, text_of
from scheduler_core.node.state import NodeState
from scheduler_core.placement import job_rules
from scheduler_core.placement.job import COMMON, Terms, place_job
from scheduler_core.placement.job_rules import Job
from scheduler_core.placement.pod import placement
from scheduler_core.products.columns import (
    GroupKind,
    JobRule,
    Order,
    Product,
    distributed,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One thing that was looked at."""

    #: a word: "node", "health" …
    about: str
    said: str
    #: false where the node fails by it
    holds: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One node, step by step."""

    node: str
    steps: tuple[Step, ...]

    @property
    def fits(self) -> bool:
        """Whether the node fails by no step."""
        return all(step.holds for step in self.steps)

    @property
    def text(self) -> str:
        """A line for each step, and whether it fits at the head."""
        width = max((len(step.about) for step in self.steps), default=0)
        lines = [
            f"  {'ok' if step.holds else 'NO'} {step.about:<{width}}  {step.said}"
            for step in self.steps
        ]
        head = "can serve" if self.fits else "cannot serve"
        return "\n".join([f"{self.node} {head}", *lines]) + "\n"


def explain(
    wanted: Product | str,
    count: int,
    cluster: Cluster,
    name: str,
    *,
    avoid: Container[str] = (),
    in_network: bool = False,
) -> Verdict:
    """What a node can do for one pod.

    Args:
        wanted: As for `pod.place`.
        count: Chips of the pod.
        cluster: The nodes; not changed.
        name: The node; it need not exist.
        avoid: Nodes that are to be avoided.
        in_network: Whether the pod's job has several pods.

    Cost:
        A step for each node that can serve, to say which come before.
    """
    node = cluster.line(wanted).get(name)
    row = None if node is None else node.row_for(wanted, in_network=in_network)
    if node is None or row is None:
        others = (each for each in cluster if each.name == name)
        there = [node] if node is not None else list(others)
        return Verdict(node=name, steps=(_unknown(wanted, there),))
    free, usable = node.free_for(row), node.usable(row)
    why = node.barred or chips.why_not(row, free, node.healthy, count, usable=usable)
    steps = list(_facts(node, row, count, why))
    if why is None and name in avoid:
        steps.append(Step(about="others", said=text_of(Reason.CONFLICT), holds=False))
    elif why is None:
        steps += _choice(node, row, count)
        steps.append(_order(wanted, count, cluster, name, in_network=in_network))
    return Verdict(node=name, steps=tuple(steps))


def explain_job(
    job: Job, cluster: Cluster, name: str, *, terms: Terms = COMMON
) -> Verdict:
    """What a node can do for a job: for its largest pod, and what the plan makes of it.

    Arguments as for `explain` and `job.place_job`.

    Cost:
        One planning of the job.
    """
    found = job_rules.problems(job, terms.profile)
    pods = job.npu_pods
    if found or job.row is None or not pods:
        said = "; ".join(problem.text for problem in found) or "no pod asks for chips"
        return Verdict(node=name, steps=(Step(about="job", said=said, holds=False),))
    count, several = max(pod.chips for pod in pods), len(pods) > 1
    first = Step(about="job", said=_asked(job, count))
    alone = explain(job.row, count, cluster, name, in_network=several)
    steps = [first, *alone.steps]
    if alone.fits:
        steps += _network(job, job.row, name, terms)
        steps.append(_plan(place_job(job, cluster, terms=terms), name))
    return Verdict(node=name, steps=tuple(steps))


def _asked(job: Job, count: int) -> str:
    pods = len(job.npu_pods)
    if pods == 1:
        return f"one pod of {count} chips"
    return f"{pods} pods of up to {count} chips, that talk over the network"


def _unknown(wanted: Product | str, there: Sequence[NodeState]) -> Step:
    if not there:
        return Step(about="node", said="no node of that name has NPUs", holds=False)
    served = f"nodes with {wanted}" if isinstance(wanted, str) else wanted.name
    had = ", ".join(node.product.name for node in there)
    said = f"{had}; the job wants {served}"
    return Step(about="node", said=said, holds=False)


def _facts(
    node: NodeState, row: Product, count: int, why: Reason | None
) -> Iterator[Step]:
    """What is so on the node; the step by which it fails says how."""
    facts: list[tuple[str, str, Sequence[Reason]]] = [
        ("node", _server(node, row), (node.barred,) if node.barred else ()),
        ("count", f"a pod may have {any_of(row.counts)}", (Reason.ILLEGAL_COUNT,)),
        ("health", _health(node), (Reason.CHIP_UNHEALTHY,)),
        ("network", _of_network(node), (Reason.NETWORK_UNHEALTHY,)),
        ("free", _listed(node.free_for(row), "none"), (Reason.TOO_FEW_FREE,)),
        ("groups", _together(node, row), (Reason.GROUP_TOO_SMALL,)),
    ]
    if not (row.for_distributed and row.network_health):
        del facts[3]
    for about, said, reasons in facts:
        if why is None or why not in reasons:
            yield Step(about=about, said=said)
        else:
            text = f"{said}: {refusal(why, row, count).text}"
            yield Step(about=about, said=text, holds=False)


def _server(node: NodeState, row: Product) -> str:
    own = node.product
    if row is own or row is distributed(own):
        return own.name
    return f"{own.name}, served as {row.name}"


def _health(node: NodeState) -> str:
    bad = node.inventory & ~node.healthy
    there = node.inventory.bit_count()
    if not bad:
        return f"all {there} chips"
    return f"{there - bad.bit_count()} of {there} chips, not {_listed(bad)}"


def _of_network(node: NodeState) -> str:
    bad = node.healthy & node.network_unhealthy
    return f"faulty of {_listed(bad)}" if bad else "of every healthy chip"


def _together(node: NodeState, row: Product) -> str:
    if row.group_kind is GroupKind.NONE or not row.group_preference:
        return "chips may lie anywhere on the node"
    free = node.free_for(row)
    parts = [_listed(free & g, "none") for g in row.groups if node.inventory & g]
    return f"by {row.group_kind.value}: {' | '.join(parts)}"


def _listed(mask: int, nothing: str = "") -> str:
    return ", ".join(map(str, ids_of(mask))) or nothing


def _choice(node: NodeState, row: Product, count: int) -> Iterator[Step]:
    free = node.free_for(row)
    chosen = chips.choose(row, free, count)
    place = placement(row, node, free, chosen)
    yield Step(about="choice", said=f"{_listed(chosen)}: {place.reason}")
    rank = order.rank(row, node.healthy, free, count)
    if rank is not None:
        yield Step(about="rank", said=_RANKS[row.order].format(**rank._asdict()))
    more = fragmentation.added(node, chosen)
    yield Step(about="fragments", said=f"{fragmentation.of_node(node)} now, {more:+d}")


#: what the parts of a rank are, by the order of the row
_RANKS = {
    Order.GROUP: "chips missing: {missing}, place in the preference: {group}, more "
    "free chips: {other}; nodes with less come first",
    Order.MISFIT: "chips missing or left over where the pod goes: {group}, free chips: "
    "{other}; nodes with less come first",
    Order.SPARE_GROUPS: "more groups that could serve: {group}, chips left over: "
    "{other}; nodes with less come first",
}


def _order(
    wanted: Product | str, count: int, cluster: Cluster, name: str, *, in_network: bool
) -> Step:
    ranked = cluster.ranked(wanted, count, in_network=in_network)
    names = [each for _, _, each in ranked]
    before = names.index(name)
    if not before:
        said = f"first of {len(names)} that can serve"
    else:
        said = f"{before} of {len(names)} that can serve come before, first {names[0]}"
    return Step(about="order", said=said)


def _network(job: Job, row: Product, name: str, terms: Terms) -> Iterator[Step]:
    """Where the node hangs, where that matters to the job."""
    several = len(job.npu_pods) > 1
    if several and row.job_rule is JobRule.SUPERPOD:
        of_node = terms.joined.of_node if terms.joined else {}
        of_job = of_node.get(name, -1)
        said = "in a SuperPoD that is not known" if of_job < 0 else f"SuperPoD {of_job}"
        yield Step(about="superpod", said=said, holds=of_job >= 0)
    elif terms.schema is not None:
        leaves = terms.network.leaves if terms.network else ()
        of_leaf = [
            leaf.name
            for leaf in leaves
            if name in {server.node for server in leaf.servers}
        ]
        said = ", ".join(of_leaf) or "under no leaf switch that is known"
        yield Step(about="leaf", said=said, holds=bool(of_leaf))


def _plan(answer: JobPlacement | Rejection, name: str) -> Step:
    if isinstance(answer, Rejection):
        return Step(about="plan", said=answer.text, holds=False)
    here = [place.pod for place in answer.pods if place.node == name]
    others = sorted({place.node for place in answer.pods})
    said = f"gets {', '.join(here)}" if here else f"the job goes to {_few(others)}"
    return Step(about="plan", said=said)


def _few(names: Sequence[str]) -> str:
    more = len(names) - 3
    return ", ".join(names[:3]) + (f" and {more} more" if more > 0 else "")
