"""The job file: what is asked of a snapshot's cluster, in JSON.

    {"version": 1, "resource": "huawei.com/Ascend910", "chips": 8, "pods": 4,
     "labels": {"tor-affinity": "large-model-schema"},
     "annotations": {"sp-block": "32"},
     "node_selector": {"accelerator-type": "module"}, "priority": 0}

Only resource and chips must be there; `chips` are those of each pod. Labels and
annotations are those of the job. `accelerator-type` says which kind of server is
meant; what else the node selector says, the nodes' labels must have.
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

#: the job's label that says whether logical SuperPoDs may be spread, and its values
_SUPERPOD_AFFINITY = "super-pod-affinity"
_BLOCK = re.compile("[0-9]{1,9}")
_SOFT, _HARD = "soft", "hard"

_NONE: Mapping[str, str] = MappingProxyType(dict[str, str]())


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One pod that wants chips, or several that are one job."""

    resource: str
    #: of each pod, 1 or more
    chips: int
    #: 1 or more
    pods: int = 1
    labels: Mapping[str, str] = field(default_factory=lambda: _NONE)
    annotations: Mapping[str, str] = field(default_factory=lambda: _NONE)
    node_selector: Mapping[str, str] = field(default_factory=lambda: _NONE)
    #: pods with a lower one may be evicted for it
    priority: int = 0

    @property
    def traits(self) -> Traits:
        """What of it tells its row."""
        return Traits(
            annotations=self.annotations,
            labels=self.labels,
            node_selector=self.node_selector,
        )

    @property
    def schema(self) -> Schema | None:
        """What it asks of the leaf switches; None is nothing."""
        return schema_of(self.labels.get(TOR_AFFINITY, ""))

    @property
    def sp_block(self) -> int | None:
        """Chips of a logical SuperPoD; None is not said."""
        said = self.annotations.get(SP_BLOCK)
        return None if said is None else int(said)

    @property
    def soft_superpods(self) -> bool:
        """Whether a logical SuperPoD may be spread over physical ones if it must."""
        return self.labels.get(_SUPERPOD_AFFINITY) == _SOFT


def parse(text: str) -> Job:
    """The job that a file's text gives.

    Raises:
        SnapshotError: Anything that is not as the format demands, all at once.
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
    known = sorted({product.resource for product in table.PRODUCTS})
    served = job.resource in known or lookup.virtual(job.resource) is not None
    if "resource" in root and not served:
        reader.say("resource", f"one of {', '.join(known)}", job.resource)
    _check_words(reader, job)
    reader.finish()
    return job


def is_block(text: str) -> bool:
    """Whether a text can be the chips of a logical SuperPoD: some nine digits."""
    return _BLOCK.fullmatch(text) is not None


def _check_words(reader: Reader, job: Job) -> None:
    """Values of labels and annotations that mean something here must mean one thing."""
    tor, spread = job.labels.get(TOR_AFFINITY), job.labels.get(_SUPERPOD_AFFINITY)
    if tor not in {None, "", "null", *Schema}:
        expected = f"one of {', '.join(Schema)}, null"
        reader.say(f"labels.{TOR_AFFINITY}", expected, tor)
    if spread not in {None, _SOFT, _HARD}:
        reader.say(f"labels.{_SUPERPOD_AFFINITY}", f"one of {_SOFT}, {_HARD}", spread)
    block = job.annotations.get(SP_BLOCK)
    if block is not None and not is_block(block):
        reader.say(f"annotations.{SP_BLOCK}", "a whole number", block)
