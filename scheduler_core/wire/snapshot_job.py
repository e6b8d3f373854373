"""The job file: what is asked of a snapshot's cluster, in JSON.

{"version": 1, "resource": "huawei.com/Ascend910", "chips": 2}
"""

from dataclasses import dataclass

from scheduler_core import products
from scheduler_core.wire.reader import Reader
from scheduler_core.wire.snapshot_values import VERSION
from scheduler_core.wire.typed import as_string


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One pod that wants chips."""

    resource: str
    #: 1 or more
    chips: int


def parse(text: str) -> Job:
    """The job that a file's text gives.

    Raises:
        SnapshotError: Anything that is not as the format demands, all at once.
    """
    reader = Reader()
    root = reader.document(text, VERSION, required=("resource", "chips"), optional=())
    job = Job(
        resource=reader.get(root, "resource", as_string, default=""),
        chips=reader.number(root, "chips", least=1, default=1),
    )
    known = sorted({product.resource for product in products.PRODUCTS})
    if "resource" in root and job.resource not in known:
        reader.say("resource", f"one of {', '.join(known)}", job.resource)
    reader.finish()
    return job
