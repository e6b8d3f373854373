"""What the core costs as a library: its memory, its import, many lines in a batch."""

import json
import os
import random  # noqa: TID251  # seeded: the same cases in every run
import subprocess
import sys
import tempfile
import tracemalloc
from time import perf_counter

from benchmarks.pool import SIZES, names_of, random_node
from benchmarks.table import Row, percentile
from scheduler_core.index.cluster import Cluster
from scheduler_core.products import table
from scheduler_core.products.table import ATLAS_800_TRAINING as ATLAS
from scheduler_core.products.table import Product

_NODES = SIZES[-1]
_LINES = 20_000
_IMPORTS = 20
_MIB = 2**20

#: the core with its formats, and how long that took and kept the processor busy, in
#: milliseconds
_IMPORT = """
import time
start, busy = time.perf_counter(), time.process_time()
import scheduler_core
import scheduler_core.placement.job, scheduler_core.products.lookup
import scheduler_core.node.free
import scheduler_core.snapshot.document, scheduler_core.wire.switches
import scheduler_core.wire.pods, scheduler_core.snapshot.batch
busy = time.process_time() - busy
print(1000 * (time.perf_counter() - start), 1000 * busy)
"""


def rows() -> list[Row]:
    """Measure, and say how it compares with the goals. Takes about half a minute."""
    largest = table.by_key("atlas-310p")
    return [
        *(_memory_row(row) for row in (ATLAS, largest)),
        _import_row(),
        _batch_row(),
    ]


def _memory_row(row: Product) -> Row:
    """Nodes, names and all that is asked of an index; what the first questions add."""
    chance = random.Random(0)  # noqa: S311  # no secret is made
    tracemalloc.start()
    names = names_of(_NODES)
    cluster = Cluster(random_node(name, row, chance) for name in names)
    plain, _ = tracemalloc.get_traced_memory()
    groups = tuple(tuple(names[i : i + 32]) for i in range(0, _NODES, 32))
    for wanted in (row.resource, row):
        for in_network in (False, True):
            cluster.best(wanted, row.counts[-1], in_network=in_network)
    cluster.census(groups, row, row.counts[-1], in_network=True)
    whole, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return Row(
        figure=f"memory of the index with its nodes, {_NODES:,} nodes, {row.key}",
        goal="≤ 100 MiB",
        value=(
            f"{plain / _MIB:.0f} MiB; {whole / _MIB:.0f} MiB once asked for jobs of "
            "several pods and for leaves"
        ),
        passed=whole <= 100 * _MIB,
    )


def _import_row() -> Row:
    took, busy = [], []
    with tempfile.TemporaryDirectory(prefix="bench-") as compiled:
        # As installed: compiled by the first, whatever this environment forbids.
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": compiled}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for _ in range(1 + _IMPORTS):
            done = subprocess.run(  # noqa: S603  # our own
                [sys.executable, "-c", _IMPORT],
                env=environment,
                capture_output=True,
                check=True,
                text=True,
            )
            whole, processor = map(float, done.stdout.split())
            took.append(whole)
            busy.append(processor)
    p50, processor = percentile(took[1:], 0.5), percentile(busy[1:], 0.5)
    return Row(
        figure="import of scheduler_core, all of it",
        goal="≤ 60 ms",
        value=f"p50 {p50:.0f} ms, of it {processor:.0f} ms of processor time",
        passed=p50 <= 60,
    )


def _batch_row() -> Row:
    chance = random.Random(0)  # noqa: S311  # no secret is made
    lines = "\n".join(_case(chance) for _ in range(_LINES))
    command = [sys.executable, "-m", "scheduler_core", "place", "--batch"]
    start = perf_counter()
    done = subprocess.run(  # noqa: S603  # our own
        command, input=lines, capture_output=True, check=True, text=True
    )
    per_minute = _LINES / (perf_counter() - start) * 60
    assert done.stdout.count("\n") == _LINES
    return Row(
        figure=f"place --batch, {_LINES:,} lines, of every product",
        goal="≥ 50,000 lines a minute",
        value=f"{per_minute:,.0f} lines a minute",
        passed=per_minute >= 50_000,
    )


def _case(chance: random.Random) -> str:
    """A node of any product, and a pod that asks for it."""
    row = chance.choice(table.PRODUCTS)
    policy = {"huawei.com/schedule_policy": row.policies[0]} if row.policies else {}
    accelerator = next(iter(row.accelerator_types), "")
    chips = range(row.chip_count)
    return json.dumps(
        {
            "resource": row.resource,
            "annotations": policy,
            "labels": {name: said[-1] for name, said in row.job_labels.items()},
            "node_selector": {"accelerator-type": accelerator} if accelerator else {},
            "node_labels": dict(row.node_labels),
            "count": chance.choice(row.counts),
            "pods": chance.choice([1, 1, 1, 2]),
            "node": {
                "chips": row.chip_count,
                "free": [chip for chip in chips if chance.random() < 0.6],
                "unhealthy": [chip for chip in chips if chance.random() < 0.02],
            },
        }
    )
