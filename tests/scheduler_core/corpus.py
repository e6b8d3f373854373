"""Recorded cases with known answers, and how they are read.

A case names an area (what is asked), a product, an input and an answer. They come
from the reference's own tests and from its described behaviour; `source` says which.
ASCEND_CORPUS names a file; without it, the cases of this project are run.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scheduler_core.node.decision import LeafUse
from scheduler_core.node.state import NodeState
from scheduler_core.products import table
from scheduler_core.products.columns import distributed
from scheduler_core.products.table import Product
from scheduler_core.topology.leaves import (
    Leaf,
    Network,
    Schema,
    Tenant,
    Version,
)
from scheduler_core.wire import switches as wire
from tests.machines import mask, node_state
from tests.scheduler_core.leaf_parts import leaf_of

Case = dict[str, Any]

_ROOT = Path(__file__).parents[2]
_OWN = _ROOT / "tests" / "corpus"
_SHARED = _ROOT.parent / "shared" / "corpus"
#: cases of whole chips, and of parts
_NAMES = ("vectors.json", "vnpu.json")


def load() -> list[Case]:
    """Every case of the file, or of the files."""
    folder = _SHARED if _SHARED.exists() else _OWN
    named = os.environ.get("ASCEND_CORPUS")
    paths = [Path(named)] if named else [folder / name for name in _NAMES]
    return [
        case for path in paths for case in json.loads(path.read_text(encoding="utf-8"))
    ]


#: {how a case names a product, up to the first bracket: the key of our row}
_KEYS: Mapping[str, str] = {
    "910A-module-8": "atlas-800-training",
    "910B Box16": "atlas-a2-box16",
    "A3 x16": "atlas-a3-16",
    "A3 SuperPoD": "atlas-a3-16-superpod",
    "300I card strategy": "atlas-300i-card",
    "300I chip strategy": "atlas-300i-chip",
    "300I Duo card strategy": "atlas-300i-duo-card",
    "300I Duo chip strategy": "atlas-300i-duo-chip",
    "base-4": "atlas-800-training-half",
    "base-8": "atlas-a2-8",
    "base-16": "flat-16",
    "base-64": "atlas-310p",
    "base-card": "a300t",
    "910": "atlas-800-training",
    "legacy-2024 half910x4": "atlas-800-training-half",
    "legacy-2024 card910x2": "flat-2",
    "legacy-2024 910bx8": "atlas-a2-8",
    "legacy-2024 card910bx2": "flat-2",
    "legacy-2024 card910bx2infer": "flat-2",
}

#: {the reference's name of a policy: the rows that stand for it}
HANDLERS: Mapping[str | None, set[str]] = {
    None: set(),
    "module910x8": {"atlas-800-training"},
    "half": {"atlas-800-training-half"},
    "base-half": {"atlas-800-training-half"},
    "base-4": {"atlas-800-training-half"},
    "base-card": {"a300t", "atlas-300i-a2", "flat-2"},
    "base-8": {"atlas-a2-8", "flat-8", "atlas-850-8"},
    "base-910b-8": {"atlas-a2-8"},
    "base-module-910b-8": {"atlas-a2-8"},
    "base-850": {"atlas-850-8"},
    "base-850-8p-8": {"atlas-850-8"},
    "base-16": {"flat-16"},
    "base-chip1-node8": {"flat-8"},
    "base-chip1-node16": {"flat-16"},
    "module910bx16": {"atlas-a2-box16"},
    "module910b-16": {"atlas-a2-box16"},
    # chip2-node8 is an A3 of eight chips here; the reference counts it as sixteen.
    "module910a3x16": {"atlas-a3-16", "atlas-a3-8"},
    "A3x16": {"atlas-a3-16", "atlas-a3-8"},
    "superpod-A3x16": {"atlas-a3-16-superpod"},
    "superpod-A3x8": {"atlas-a3-8-superpod"},
    "chip8node8sp": {"atlas-850-8-superpod"},
    "superpod-8": {"atlas-850-8-superpod"},
    "chip4nodex-8": {"mesh-8"},
    "chip4nodex-16": {"mesh-16"},
    "base-64": {"atlas-310p"},
    "card310x4": {"atlas-300i-card"},
    "310-card": {"atlas-300i-card"},
    "chip310x4": {"atlas-300i-chip"},
    "310-chip": {"atlas-300i-chip"},
    "card310px2": {"atlas-300i-duo-card"},
    "duo-card": {"atlas-300i-duo-card"},
    "310P-duo-card": {"atlas-300i-duo-card"},
    "chip310px2": {"atlas-300i-duo-chip", "atlas-300i-duo-distributed"},
    "duo-chip": {"atlas-300i-duo-chip", "atlas-300i-duo-distributed"},
    "310P-duo-chip": {"atlas-300i-duo-chip", "atlas-300i-duo-distributed"},
}

#: {(area or "", product or "", both as the case begins them): why it is not asked}
SKIPPED: Mapping[tuple[str, str], str] = {
    ("multilevel", ""): "multi-level topologies are not built",
    ("", "soft-share"): "sharing of one chip is not built",
    ("", "Atlas 950 rack"): "racks are not built",
    ("superpod_mindie", ""): "MindIE jobs are not built",
    ("superpod_infer", ""): "inference services are not built",
    ("superpod_cell", ""): "an inner step of the reference",
    ("superpod_resched_wait", ""): "rescheduling is not built",
    ("tor_row_col", ""): "an inner step of the reference",
    ("tor_has_across_job", ""): "an inner step of the reference",
    ("fault_predicate", ""): "rescheduling is not built",
    ("prefer_previous", ""): "rescheduling is not built",
    ("preempt", ""): "an inner step of the reference",
    ("job_order", ""): "the order of jobs is the scheduler's",
    ("job_pipelined", ""): "pipelining of jobs is the scheduler's",
    ("node_stable", ""): "the extender compares what the kubelet says",
}


def why_skipped(case: Case) -> str | None:
    """Why a case is not asked, or None."""
    for (area, product), why in SKIPPED.items():
        if case["area"].startswith(area) and case["product"].startswith(product):
            return why
    return None


def row_of(case: Case) -> Product:
    """The row that a case means, as its job sees it."""
    name, given = str(case["product"]), case["input"]
    plain = name.replace("(310) ", "").replace("(310P) ", "")
    plain = plain.partition(" (")[0].partition(",")[0].strip()
    if plain.startswith("4P-mesh node"):
        key = "mesh-16" if _largest(given) > 8 else "mesh-8"
    else:
        key = _KEYS[plain]
    if given.get("distributed_infer"):
        key = "atlas-300i-duo-distributed"
    row = table.by_key(key)
    return distributed(row) if given.get("distributed") else row


def _largest(given: Mapping[str, Any]) -> int:
    """The chips that a node of this case must have at least."""
    nodes = given.get("nodes") or [given]
    chips = [int(chip) + 1 for node in nodes for chip in node.get("free") or []]
    return max(int(given.get("max", 0)), int(given.get("request", 0)), 0, *chips)


def node_of(row: Product, given: Mapping[str, Any]) -> NodeState:
    """A node of a case: what is not healthy is not free, the highest ids first."""
    free = set(given.get("free") or [])
    bad = set(given.get("unhealthy") or [])
    if "allocatable" in given:
        spare = sorted(set(range(row.chip_count)) - free, reverse=True)
        bad = set(spare[: row.chip_count - given["allocatable"]])
    healthy = row.all_chips & ~mask(bad)
    return node_state(
        given.get("name", "node"),
        row,
        mask(free),
        healthy=healthy,
        network_unhealthy=mask(given.get("net_unhealthy") or []) & healthy,
    )


def network_of(case: Case) -> tuple[Network, list[str]]:
    """The leaves of a case, and the nodes that can take a pod."""
    given = case["input"]
    version = Version(given.get("nslb", "1.0"))
    shared = int(given.get("shared_tor_num", 2))
    if "tor_info" in given:
        nodes = {name: (address,) for name, address in given["node_ips"].items()}
        network = wire.parse(
            json.dumps(given["tor_info"]),
            nodes,
            tor_level=given.get("tor_level") or "",
            version=version,
            shared_leaves=shared,
        )
        return network, list(given["candidates"])
    leaves = tuple(_leaf(tor, given["servers_per_tor"]) for tor in given["tors"])
    network = Network(
        leaves=leaves,
        version=Version.SINGLE_LAYER if given.get("tor_level") else version,
        shared_leaves=shared,
        tenants=tuple(
            Tenant(schema=Schema(job["label"]), nodes=frozenset(job["nodes"]))
            for tor in given["tors"]
            for job in tor["jobs"]
            if job["running"]
        ),
    )
    return network, [
        f"t{tor['id']}s{slice_id}"
        for tor in given["tors"]
        for slice_id in tor["candidate_slices"]
    ]


def _leaf(tor: Mapping[str, Any], width: int) -> Leaf:
    return leaf_of(
        str(tor["id"]),
        (f"t{tor['id']}s{slice_id}" for slice_id in range(width)),
        use=LeafUse(tor["isSharedTor"]),
        healthy=tor["isHealthy"] == 0,
    )
