"""Answers as JSON documents and as lines for a terminal."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from scheduler_core.explain import fragmentation
from scheduler_core.explain.node import Verdict
from scheduler_core.index.cluster import Cluster
from scheduler_core.node.decision import JobPlacement, Placement, Rejection
from scheduler_core.node.reasons import any_of
from scheduler_core.preemption.relaxations import (
    Add,
    Advice,
    Free,
    Heal,
    HealNetwork,
    Mend,
    Part,
    Settle,
)
from scheduler_core.preemption.victims import Eviction
from scheduler_core.products.columns import GroupKind, Product

Document = dict[str, object]

#: what is to be done, by the kind of part
_WORDS: Mapping[type[Part], str] = {
    Settle: "settle",
    Free: "free",
    Heal: "heal",
    HealNetwork: "heal-network",
    Mend: "mend",
    Add: "add",
}


def of_placement(place: Placement) -> Document:
    """One pod's place: the network only where it matters to the job."""
    found: Document = {"node": place.node, "chips": place.chips, "reason": place.reason}
    if place.pod:
        found = {"pod": place.pod, "rank": place.rank, **found}
    if place.leaf:
        found |= {
            "leaf": place.leaf,
            "leaf_use": place.leaf_use.name.lower(),
            "leaf_healthy": place.leaf_healthy,
        }
    if place.superpod >= 0:
        found |= {"superpod": place.superpod, "superpod_rank": place.superpod_rank}
    return found


def of_answer(
    answer: Placement | JobPlacement | Rejection,
    advice: Advice | None = None,
    eviction: Eviction | None = None,
) -> Document:
    """A decision, and what could be done about one that says no."""
    if isinstance(answer, Placement):
        return of_placement(answer)
    if isinstance(answer, JobPlacement):
        return {"pods": [of_placement(place) for place in answer.pods]}
    found: Document = {
        "reasons": [{"nodes": n, "text": text} for text, n in answer.reasons]
    }
    if answer.job:
        found = {"job": answer.job, **found}
    if advice is not None:
        parts = [_part(part) for part in advice.parts]
        found["advice"] = {"text": advice.text, "parts": parts}
    if eviction is not None:
        found["eviction"] = {
            "victims": [pod.name for pod in eviction.victims],
            "violations": eviction.violations,
            **of_placement(eviction.place),
        }
    return found


def lines_of_answer(
    answer: Placement | JobPlacement | Rejection,
    advice: Advice | None = None,
    eviction: Eviction | None = None,
) -> Iterator[str]:
    """The same for a person."""
    if isinstance(answer, Rejection):
        looked = f"0/{answer.nodes} nodes can serve" if answer.nodes else "no place"
        yield f"{looked}: {answer.text}"
        if advice is not None:
            yield advice.text
        if eviction is not None:
            yield f"by eviction: {eviction.text}"
        return
    places = (answer,) if isinstance(answer, Placement) else answer.pods
    for place in places:
        chips = ", ".join(map(str, place.chips))
        pod = f"{place.pod}: " if place.pod else ""
        yield f"{pod}{place.node}: chips {chips}; {place.reason}"


def of_verdict(verdict: Verdict) -> Document:
    """One node, step by step."""
    steps = [
        {"about": step.about, "holds": step.holds, "said": step.said}
        for step in verdict.steps
    ]
    return {"node": verdict.node, "fits": verdict.fits, "steps": steps}


def of_product(row: Product) -> Document:
    """One row of the table."""
    return {
        "key": row.key,
        "name": row.name,
        "servers": row.servers,
        "resource": row.resource,
        "chips": row.chip_count,
        "group": row.group_kind.value,
        "group_chips": row.group_size,
        "counts": row.counts,
        "networks": [network.value for network in row.networks],
        "job_rule": row.job_rule.value,
        "accelerator_types": row.accelerator_types,
        "policies": row.policies,
        "job_labels": {name: list(said) for name, said in row.job_labels.items()},
        "node_labels": dict(row.node_labels),
        "source": row.source,
    }


def lines_of_products(rows: Sequence[Product]) -> Iterator[str]:
    """The table for a person: what files call it, and what a pod may have of it."""
    table = [("KEY", "RESOURCE", "CHIPS", "GROUPS OF", "A POD MAY HAVE")]
    for row in rows:
        grouped = row.group_kind is not GroupKind.NONE
        of = f"{row.group_size} ({row.group_kind.value})" if grouped else "-"
        table.append(
            (row.key, row.resource, str(row.chip_count), of, any_of(row.counts))
        )
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for cells in table:
        padded = (cell.ljust(n) for cell, n in zip(cells, widths, strict=True))
        yield "  ".join(padded).rstrip()


def of_fragmentation(cluster: Cluster, counts: Iterable[int]) -> Document:
    """How much of a cluster's free room lies in pieces too small."""
    nodes = list(cluster)
    return {
        "fragmentation": sum(map(fragmentation.of_node, nodes)),
        "free": sum(node.free.bit_count() for node in nodes),
        "stranded": {
            str(count): fragmentation.stranded(count, nodes) for count in counts
        },
        "nodes": [
            {
                "node": node.name,
                "free": node.free.bit_count(),
                "fragmentation": fragmentation.of_node(node),
            }
            for node in nodes
        ],
    }


def lines_of_fragmentation(cluster: Cluster, counts: Iterable[int]) -> Iterator[str]:
    """The same for a person: only nodes that have fragments, most first."""
    nodes = list(cluster)
    broken = [(fragmentation.of_node(node), node) for node in nodes]
    total = sum(here for here, _ in broken)
    free = sum(node.free.bit_count() for node in nodes)
    yield f"fragmentation {total} over {len(nodes)} nodes, {free} chips free"
    for count in counts:
        lost = fragmentation.stranded(count, nodes)
        yield f"stranded for pods of {count}: {lost} of {free} free chips"
    for here, node in sorted(broken, key=lambda item: (-item[0], item[1].name)):
        if here:
            parts = (node.free & group for group in node.product.groups)
            shown = "|".join(str(part.bit_count()) for part in parts)
            yield f"  {here:>3} {node.name}: {shown} free"


def _part(part: Part) -> Document:
    found: Document = {"do": _WORDS[type(part)], "node": part.node}
    match part:
        case Free(chip=chip) | Heal(chip=chip) | HealNetwork(chip=chip):
            found["chip"] = chip
        case Mend(bar=bar):
            found["bar"] = bar.value
        case Add(row=row):
            found["product"] = row.key
        case _:
            pass
    return found
