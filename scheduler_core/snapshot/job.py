"""Job file: the resource, chips and pods of a job for a snapshot's cluster, in JSON.

    {"version": 1, "resource": "huawei.com/Ascend910", "chips": 8, "pods": 4,
     "labels": {"tor-affinity": "large-model-schema"},
     "annotations": {"sp-block": "32"},
     "node_selector": {"accelerator-type": "module"}, "priority": 0}

Required are `resource` and `chips`, the chips of each pod.
Labels and annotations are those of the job.
`accelerator-type` in the node selector selects a kind of server.
Nodes must have the rest of the node selector as labels.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from scheduler_core.products import lookup, table
from scheduler_core.products.lookup import SP_BLOCK, Traits
from scheduler_core.snapshot.reader import Reader
from scheduler_core.snapshot.values import VERSION
from scheduler_core.topology.leaves import TOR_AFFINITY, Schema, schema_of
from scheduler_core.wire.typed import as_string

#: job label for whether logical SuperPoDs may be spread over physical ones
_SUPERPOD_AFFINITY = "super-pod-affinity"
_BLOCK = re.compile("[0-9]{1,9}")
_SOFT, _HARD = "soft", "hard"

_NONE: Mapping[str, str] = MappingProxyType(dict[str, str]())


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Request for one pod with chips, or for several pods that are one job."""

    resource: str
    #: chips of each pod, at least 1
    chips: int
    #: number of pods, at least 1
    pods: int = 1
    labels: Mapping[str, str] = field(default_factory=lambda: _NONE)
    annotations: Mapping[str, str] = field(default_factory=lambda: _NONE)
    node_selector: Mapping[str, str] = field(default_factory=lambda: _NONE)
    #: pods of lower priority may be evicted for the job
    priority: int = 0

    @property
    def traits(self) -> Traits:
        """Labels, annotations and selector by which the job's row is found."""
        return Traits(
            annotations=self.annotations,
            labels=self.labels,
            node_selector=self.node_selector,
        )

    @property
    def schema(self) -> Schema | None:
        """Switch affinity of the job, or None."""
        return schema_of(self.labels.get(TOR_AFFINITY, ""))

    @property
    def sp_block(self) -> int | None:
        """Chips of a logical SuperPoD, or None if the job names no number."""
        chips_text = self.annotations.get(SP_BLOCK)
        return None if chips_text is None else int(chips_text)

    @property
    def soft_superpods(self) -> bool:
        """Whether a logical SuperPoD may be spread over several physical ones."""
        return self.labels.get(_SUPERPOD_AFFINITY) == _SOFT


def parse(text: str) -> Job:
    """Parse a job from the text of its file.

    Raises:
        SnapshotError: The text breaks the format; has all problems.
    """
    reader = Reader()
    root = reader.document(
        text,
        VERSION,
        required=("resource", "chips"),
        optional=("pods", "labels", "annotations", "node_selector", "priority"),
    )
    job = Job(
        resource=reader.get(root, "resource", as_string, default=""),
        chips=reader.number(root, "chips", least=1, default=1),
        pods=reader.number(root, "pods", least=1, default=1),
        labels=reader.texts(root, "labels"),
        annotations=reader.texts(root, "annotations"),
        node_selector=reader.texts(root, "node_selector"),
        priority=reader.number(root, "priority", least=None, default=0),
    )
    resources = sorted({product.resource for product in table.PRODUCTS})
    is_served = (
        job.resource in resources or lookup.find_virtual_row(job.resource) is not None
    )
    if "resource" in root and not is_served:
        reader.report("resource", f"one of {', '.join(resources)}", job.resource)
    _check_values(reader, job)
    reader.finish()
    return job


def is_block_size(text: str) -> bool:
    """Return whether a text is a number of chips: one to nine digits."""
    return _BLOCK.fullmatch(text) is not None


def _check_values(reader: Reader, job: Job) -> None:
    """Report values of known labels and annotations that have no meaning."""
    tor_affinity, superpod_affinity = (
        job.labels.get(TOR_AFFINITY),
        job.labels.get(_SUPERPOD_AFFINITY),
    )
    if tor_affinity not in {None, "", "null", *Schema}:
        expected = f"one of {', '.join(Schema)}, null"
        reader.report(f"labels.{TOR_AFFINITY}", expected, tor_affinity)
    if superpod_affinity not in {None, _SOFT, _HARD}:
        reader.report(
            f"labels.{_SUPERPOD_AFFINITY}",
            f"one of {_SOFT}, {_HARD}",
            superpod_affinity,
        )
    block = job.annotations.get(SP_BLOCK)
    if block is not None and not is_block_size(block):
        reader.report(f"annotations.{SP_BLOCK}", "a whole number", block)
