"""Rendering of decisions and measures as JSON documents, and as lines for people."""

from collections.abc import Iterable, Iterator, Sequence

from scheduler_core.explain import fragmentation
from scheduler_core.explain.node import NodeExplanation
from scheduler_core.index.cluster import Cluster
from scheduler_core.node.decision import JobPlacement, Placement, Rejection
from scheduler_core.node.reasons import join_counts
from scheduler_core.parts.templates import Amounts, ChipKind
from scheduler_core.preemption.relaxations import (
    AddNode,
    Advice,
    ChipRelaxation,
    Relaxation,
    ReopenNode,
)
from scheduler_core.preemption.victims import Eviction
from scheduler_core.products.columns import GroupKind, Product

Document = dict[str, object]


def render_placement(place: Placement) -> Document:
    """Return the document of one pod's place; its network only if the job needs one."""
    document: Document = {
        "node": place.node,
        "chips": place.chips,
        "reason": place.reason,
    }
    if place.pod:
        document = {"pod": place.pod, "rank": place.rank, **document}
    if place.leaf:
        document |= {
            "leaf": place.leaf,
            "leaf_use": place.leaf_use.name.lower(),
            "leaf_healthy": place.leaf_healthy,
        }
    if place.superpod >= 0:
        document |= {"superpod": place.superpod, "superpod_rank": place.superpod_rank}
    return document


def render_answer(
    answer: Placement | JobPlacement | Rejection,
    advice: Advice | None = None,
    eviction: Eviction | None = None,
) -> Document:
    """Return the document of a decision, for a rejection with advice and eviction."""
    if isinstance(answer, Placement):
        return render_placement(answer)
    if isinstance(answer, JobPlacement):
        return {"pods": [render_placement(place) for place in answer.pods]}
    document: Document = {
        "reasons": [{"nodes": count, "text": text} for text, count in answer.reasons]
    }
    if answer.job:
        document = {"job_reason": answer.job, **document}
    if advice is not None:
        parts = [_render_relaxation(part) for part in advice.parts]
        document["advice"] = {"text": advice.text, "parts": parts}
    if eviction is not None:
        document["eviction"] = {
            "victims": [pod.name for pod in eviction.victims],
            "violations": eviction.violations,
            **render_placement(eviction.place),
        }
    return document


def format_answer(
    answer: Placement | JobPlacement | Rejection,
    advice: Advice | None = None,
    eviction: Eviction | None = None,
) -> Iterator[str]:
    """Yield lines for people with a decision, advice and eviction."""
    if isinstance(answer, Rejection):
        head = f"0/{answer.nodes} nodes can serve" if answer.nodes else "no place"
        yield f"{head}: {answer.text}"
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


def render_explanation(explanation: NodeExplanation) -> Document:
    """Return the document of a node's explanation."""
    steps = [
        {"about": step.about, "holds": step.holds, "said": step.text}
        for step in explanation.steps
    ]
    return {"node": explanation.node, "fits": explanation.fits, "steps": steps}


def render_product(row: Product) -> Document:
    """Return the document of one row of the table of products."""
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
        "job_labels": {name: list(values) for name, values in row.job_labels.items()},
        "node_labels": dict(row.node_labels),
        "source": row.source,
    }


def format_products(rows: Sequence[Product]) -> Iterator[str]:
    """Yield the table of products for people: key, resource, and counts of a pod."""
    table = [("KEY", "RESOURCE", "CHIPS", "GROUPS OF", "A POD MAY HAVE")]
    for row in rows:
        grouped = row.group_kind is not GroupKind.NONE
        groups = f"{row.group_size} ({row.group_kind.value})" if grouped else "-"
        table.append(
            (
                row.key,
                row.resource,
                str(row.chip_count),
                groups,
                join_counts(row.counts),
            )
        )
    yield from _columns(table)


def _columns(table: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield a line for each row of a table, its first row the heads of the columns."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for cells in table:
        padded = (cell.ljust(n) for cell, n in zip(cells, widths, strict=True))
        yield "  ".join(padded).rstrip()


def render_chip_kind(chip: ChipKind) -> Document:
    """Return the document of one chip that can be cut; memory in GB."""
    return {
        "key": chip.key,
        "vgroups": chip.vgroups,
        "totals": chip.totals._asdict(),
        "templates": [
            {
                "name": template.name,
                "kind": template.kind,
                "may_be_asked": template.may_be_asked,
                **template.amounts._asdict(),
            }
            for template in chip.templates
        ],
    }


def format_chip_kinds(chips: Iterable[ChipKind]) -> Iterator[str]:
    """Yield the table of templates for people, the whole chip above its templates."""
    heads = [name.upper().replace("_", " ") for name in Amounts._fields]
    table = [("CHIP", "TEMPLATE", "DEVICE", *heads)]
    for chip in chips:
        table.append((chip.key, "whole", "-", *map(str, chip.totals)))
        table.extend(
            ("", template.name, template.kind, *map(str, template.amounts))
            for template in chip.asked
        )
    yield from _columns(table)


def render_fragmentation(cluster: Cluster, counts: Iterable[int]) -> Document:
    """Return the document of a cluster's fragmentation and stranded chips."""
    nodes = list(cluster)
    return {
        "fragmentation": sum(map(fragmentation.measure_node, nodes)),
        "free": sum(node.free.bit_count() for node in nodes),
        "stranded": {
            str(count): fragmentation.count_stranded(count, nodes) for count in counts
        },
        "nodes": [
            {
                "node": node.name,
                "free": node.free.bit_count(),
                "fragmentation": fragmentation.measure_node(node),
            }
            for node in nodes
        ],
    }


def format_fragmentation(cluster: Cluster, counts: Iterable[int]) -> Iterator[str]:
    """Yield lines for people: totals, then nodes with fragments, most first."""
    nodes = list(cluster)
    fragments = [(fragmentation.measure_node(node), node) for node in nodes]
    total = sum(amount for amount, _ in fragments)
    free = sum(node.free.bit_count() for node in nodes)
    yield f"fragmentation {total} over {len(nodes)} nodes, {free} chips free"
    for count in counts:
        stranded = fragmentation.count_stranded(count, nodes)
        yield f"stranded for pods of {count}: {stranded} of {free} free chips"
    for amount, node in sorted(fragments, key=lambda item: (-item[0], item[1].name)):
        if amount:
            free_by_group = (node.free & group for group in node.product.groups)
            counts_text = "|".join(str(part.bit_count()) for part in free_by_group)
            yield f"  {amount:>3} {node.name}: {counts_text} free"


def _render_relaxation(relaxation: Relaxation) -> Document:
    document: Document = {"do": relaxation.word, "node": relaxation.node}
    match relaxation:
        case ChipRelaxation(chip=chip):
            document["chip"] = chip
        case ReopenNode(bar=bar):
            document["bar"] = bar.value
        case AddNode(row=row):
            document["product"] = row.key
        case _:
            pass
    return document
