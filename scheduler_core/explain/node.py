"""Explanation, step by step, of why one node can or cannot serve a pod or a job.

The steps follow a decision: the request, the node, its health, its free chips, their
groups, the choice, and the node's position among all that can serve.
The result is the one that `pod.place` counts for the node.
"""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

from scheduler_core.explain import fragmentation
from scheduler_core.index.cluster import Cluster
from scheduler_core.node import chips, order
from scheduler_core.node.chip_mask import ids_of
from scheduler_core.node.decision import JobPlacement, Rejection
from scheduler_core.node.reasons import Reason, join_counts, reason_text, refusal
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
from scheduler_core.wire.annotations import chip_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Step of a decision, and whether the node passes it."""

    #: subject of the step in one word: "node", "health" …
    about: str
    text: str
    #: whether the node passes the step
    holds: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeExplanation:
    """Steps of the decision about one node."""

    node: str
    steps: tuple[Step, ...]

    @property
    def fits(self) -> bool:
        """Whether the node passes all steps."""
        return all(step.holds for step in self.steps)

    @property
    def text(self) -> str:
        """The result in one line, then a line for each step."""
        width = max((len(step.about) for step in self.steps), default=0)
        lines = [
            f"  {'ok' if step.holds else 'NO'} {step.about:<{width}}  {step.text}"
            for step in self.steps
        ]
        head = "can serve" if self.fits else "cannot serve"
        return "\n".join([f"{self.node} {head}", *lines]) + "\n"


def refuse(node: str, topic: str, text: str) -> NodeExplanation:
    """Return the explanation of a node that fails at its only step."""
    return NodeExplanation(
        node=node, steps=(Step(about=topic, text=text, holds=False),)
    )


def refuse_unserved(
    name: str, wanted: Product | str, entries: Sequence[NodeState]
) -> NodeExplanation:
    """Return the explanation of a node that is no server that a job wants.

    Args:
        entries: Those of the node in the index; empty if there is none.
    """
    if not entries:
        return refuse(name, "node", "no node of that name has NPUs")
    wanted_rows = f"nodes with {wanted}" if isinstance(wanted, str) else wanted.name
    products = ", ".join(node.product.name for node in entries)
    return refuse(name, "node", f"{products}; the job wants {wanted_rows}")


def explain(
    wanted: Product | str,
    count: int,
    cluster: Cluster,
    name: str,
    *,
    avoid: Container[str] = (),
    in_network: bool = False,
) -> NodeExplanation:
    """Explain why a node can or cannot serve one pod.

    Args:
        wanted: As for `pod.place`.
        count: Chips of the pod.
        cluster: Nodes; not changed.
        name: Name of the node, which need not exist.
        avoid: Nodes that are left out as conflicts.
        in_network: Whether the pod's job has several pods.

    Cost:
        A step for each node that can serve, to find the node's position.
    """
    node = cluster.nodes(wanted).get(name)
    row = None if node is None else node.row_for(wanted, in_network=in_network)
    if node is None or row is None:
        offers = [node] if node else [state for state in cluster if state.name == name]
        return refuse_unserved(name, wanted, offers)
    free, usable = node.free_for(row), node.usable(row)
    reason = node.barred or chips.find_reason(
        row, free, node.healthy, count, usable=usable
    )
    steps = list(_fact_steps(node, row, count, reason))
    if reason is None and name in avoid:
        steps.append(
            Step(about="others", text=reason_text(Reason.CONFLICT), holds=False)
        )
    elif reason is None:
        steps += _choice_steps(node, row, count)
        steps.append(_order_step(wanted, count, cluster, name, in_network=in_network))
    return NodeExplanation(node=name, steps=tuple(steps))


def explain_job(
    job: Job, cluster: Cluster, name: str, *, terms: Terms = COMMON
) -> NodeExplanation:
    """Explain why a node can or cannot serve the largest pod of a job, and its plan.

    Arguments as for `explain` and `job.place_job`.

    Cost:
        One planning of the job.
    """
    problems = job_rules.problems(job, terms.profile)
    pods = job.npu_pods
    if problems or job.row is None or not pods:
        texts = [problem.text for problem in problems] or ["no pod asks for chips"]
        return refuse(name, "job", "; ".join(texts))
    count, is_distributed = max(pod.chips for pod in pods), len(pods) > 1
    job_step = Step(about="job", text=_describe_job(job, count))
    pod_explanation = explain(job.row, count, cluster, name, in_network=is_distributed)
    steps = [job_step, *pod_explanation.steps]
    if pod_explanation.fits:
        steps += _network_step(job, job.row, name, terms)
        steps.append(_plan_step(place_job(job, cluster, terms=terms), name))
    return NodeExplanation(node=name, steps=tuple(steps))


def _describe_job(job: Job, count: int) -> str:
    pods = len(job.npu_pods)
    if pods == 1:
        return f"one pod of {count} chips"
    return f"{pods} pods of up to {count} chips, that talk over the network"


def _fact_steps(
    node: NodeState, row: Product, count: int, why: Reason | None
) -> Iterator[Step]:
    """Yield the steps about the node itself; the failing step has the reason."""
    facts: list[tuple[str, str, Sequence[Reason]]] = [
        ("node", _describe_server(node, row), (node.barred,) if node.barred else ()),
        ("count", f"a pod may have {join_counts(row.counts)}", (Reason.ILLEGAL_COUNT,)),
        ("health", _describe_health(node), (Reason.CHIP_UNHEALTHY,)),
        ("network", _describe_network(node), (Reason.NETWORK_UNHEALTHY,)),
        ("free", _list_chips(row, node.free_for(row)), (Reason.TOO_FEW_FREE,)),
        ("groups", _describe_groups(node, row), (Reason.GROUP_TOO_SMALL,)),
    ]
    if not (row.for_distributed and row.network_health):
        del facts[3]
    for topic, fact, reasons in facts:
        if why is None or why not in reasons:
            yield Step(about=topic, text=fact)
        else:
            text = f"{fact}: {refusal(why, row, count).text}"
            yield Step(about=topic, text=text, holds=False)


def _describe_server(node: NodeState, row: Product) -> str:
    own_row = node.product
    if row is own_row or row is distributed(own_row):
        return own_row.name
    return f"{own_row.name}, served as {row.name}"


def _describe_health(node: NodeState) -> str:
    unhealthy = node.inventory & ~node.healthy
    chip_count = node.inventory.bit_count()
    row, every = node.product, f"{chip_count} {node.product.noun}s"
    if not unhealthy:
        return f"all {every}"
    healthy_count = chip_count - unhealthy.bit_count()
    return f"{healthy_count} of {every}, not {_list_chips(row, unhealthy)}"


def _describe_network(node: NodeState) -> str:
    faulty = node.healthy & node.network_unhealthy
    if not faulty:
        return "of every healthy chip"
    return f"faulty of {_list_chips(node.product, faulty)}"


def _describe_groups(node: NodeState, row: Product) -> str:
    if row.group_kind is GroupKind.NONE or not row.group_preference:
        return "chips may lie anywhere on the node"
    free = node.free_for(row)
    free_by_group = [
        _list_chips(row, free & group) for group in row.groups if node.inventory & group
    ]
    return f"by {row.group_kind.value}: {' | '.join(free_by_group)}"


def _list_chips(row: Product, mask: int) -> str:
    """Return the ids of chips, or the names of parts; "none" without any."""
    is_of_parts = row.chip_row is not None
    names = (chip_name(i, row) if is_of_parts else str(i) for i in ids_of(mask))
    return ", ".join(names) or "none"


def _choice_steps(node: NodeState, row: Product, count: int) -> Iterator[Step]:
    free = node.free_for(row)
    chosen = chips.choose(row, free, count)
    place = placement(row, node, free, chosen)
    yield Step(about="choice", text=f"{_list_chips(row, chosen)}: {place.reason}")
    rank = order.rank(row, node.healthy, free, count)
    if rank is not None:
        yield Step(about="rank", text=_RANKS[row.order].format(**rank._asdict()))
    added = fragmentation.measure_added(node, chosen)
    yield Step(
        about="fragments", text=f"{fragmentation.measure_node(node)} now, {added:+d}"
    )


#: {order of the row: text for the parts of a rank}
_RANKS = {
    Order.GROUP: "chips missing: {missing}, place in the preference: {group}, more "
    "free chips: {other}; nodes with less come first",
    Order.MISFIT: "chips missing or left over where the pod goes: {group}, free chips: "
    "{other}; nodes with less come first",
    Order.SPARE_GROUPS: "more groups that could serve: {group}, chips left over: "
    "{other}; nodes with less come first",
}


def _order_step(
    wanted: Product | str, count: int, cluster: Cluster, name: str, *, in_network: bool
) -> Step:
    ranked = cluster.ranked(wanted, count, in_network=in_network)
    names = [node for _, _, node in ranked]
    position = names.index(name)
    text = f"of {len(names)} that can serve"
    if position:
        text = f"{position} {text} come before, first {names[0]}"
    return Step(about="order", text=text if position else f"first {text}")


def _network_step(job: Job, row: Product, name: str, terms: Terms) -> Iterator[Step]:
    """Yield the step about the node's SuperPoD or leaf switch, if the job needs one."""
    is_distributed = len(job.npu_pods) > 1
    if is_distributed and row.job_rule is JobRule.SUPERPOD:
        superpods = terms.superpods.of_node if terms.superpods else {}
        superpod = superpods.get(name, -1)
        known = superpod >= 0
        text = f"SuperPoD {superpod}" if known else "in a SuperPoD that is not known"
        yield Step(about="superpod", text=text, holds=known)
    elif terms.schema is not None:
        leaves = terms.network.leaves if terms.network else ()
        names = [leaf.name for leaf in leaves if name in leaf.nodes]
        text = ", ".join(names) or "under no leaf switch that is known"
        yield Step(about="leaf", text=text, holds=bool(names))


def _plan_step(answer: JobPlacement | Rejection, name: str) -> Step:
    if isinstance(answer, Rejection):
        return Step(about="plan", text=answer.text, holds=False)
    pods = [place.pod for place in answer.pods if place.node == name]
    nodes = job_rules.list_names({place.node for place in answer.pods})
    text = f"gets {', '.join(pods)}" if pods else f"the job goes to {nodes}"
    return Step(about="plan", text=text)
