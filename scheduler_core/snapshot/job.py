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

from dataclasses import dataclass

from scheduler_core.documents.parsers import (
    matching,
    read_json,
    texts,
    versioned,
    whole,
    word,
)
from scheduler_core.documents.reader import Part
from scheduler_core.products import lookup, table
from scheduler_core.products.lookup import SP_BLOCK, Traits
from scheduler_core.snapshot.values import VERSION
from scheduler_core.topology.leaves import TOR_AFFINITY, Schema, schema_of
from scheduler_core.wire.annotations import parse_count

#: job label for whether logical SuperPoDs may be spread over physical ones
_SUPERPOD_AFFINITY = "super-pod-affinity"
_SOFT, _HARD = "soft", "hard"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(Traits):
    """Request for one pod with chips, or for several pods that are one job.

    Its labels, annotations and node selector decide by which row it is served.
    """

    resource: str
    #: chips of each pod, at least 1
    chips: int
    #: number of pods, at least 1
    pods: int = 1
    #: pods of lower priority may be evicted for the job
    priority: int = 0

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


def parse(content: str) -> Job:
    """Parse a job from the text of its file.

    Raises:
        DocumentError: The text breaks the format; has all problems.
    """
    return read_json(content, versioned(VERSION, read_job))


def read_job(part: Part) -> Job:
    """Read a job, whose `version` is checked elsewhere."""
    fields = part.fields(
        *("version", "resource", "chips", "pods", "labels", "annotations"),
        *("node_selector", "priority"),
    )
    return Job(
        resource=fields.need("resource", _RESOURCE, ""),
        chips=fields.need("chips", whole(1), 1),
        pods=fields.get("pods", whole(1), 1),
        labels=fields.get("labels", _LABELS, {}),
        annotations=fields.get("annotations", _ANNOTATIONS, {}),
        node_selector=fields.get("node_selector", texts({}), {}),
        priority=fields.get("priority", whole(), 0),
    )


def is_block_size(text: str) -> bool:
    """Return whether a text is a number of chips: one to nine digits."""
    return parse_count(text) is not None


def _is_resource(text: str) -> bool:
    return text in _RESOURCES or lookup.find_virtual_row(text) is not None


_RESOURCES = sorted({product.resource for product in table.PRODUCTS})
_RESOURCE = matching(_is_resource, f"one of {', '.join(_RESOURCES)}")
_SCHEMAS = {*Schema, "null", ""}
_LABELS = texts(
    {
        TOR_AFFINITY: matching(
            _SCHEMAS.__contains__, f"one of {', '.join(Schema)}, null"
        ),
        _SUPERPOD_AFFINITY: word({_SOFT: _SOFT, _HARD: _HARD}),
    }
)
_ANNOTATIONS = texts({SP_BLOCK: matching(is_block_size, "a whole number")})
