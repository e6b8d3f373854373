"""Describe what of a node's NPU report cannot be read: in few words, and in full.

Schedulers count nodes with equal refusals, so the few words are of a closed set. The
full text is for `/v1/explain` and the log.
"""

from contextlib import suppress
from dataclasses import dataclass

from scheduler_core.node import reasons
from scheduler_core.node.reasons import Reason
from scheduler_core.products import table
from scheduler_core.products.table import Product
from scheduler_core.wire import deviceinfo
from scheduler_core.wire.annotations import WireError, parse_chip
from scheduler_core.wire.deviceinfo import AFFINITY_KEY
from scheduler_core.wire.inventory import BASE_DEVICE_INFOS

#: most characters of a full text
_LONGEST = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """Why the NPU report of a node cannot be read."""

    #: what cannot be read, of a closed set
    subject: str
    #: path of the wrong value, and what was expected and found there
    error: str

    @property
    def refusal(self) -> str:
        """The text for schedulers."""
        return f"{reasons.reason_text(Reason.BAD_NODE_REPORT)}: {self.subject}"

    @property
    def text(self) -> str:
        """The text for people, cut where the error is long."""
        error = self.error
        cut = error if len(error) <= _LONGEST else f"{error[:_LONGEST]}…"
        return f"{self.refusal} ({cut})"


def of_text(error: WireError, product: Product) -> Unreadable:
    """Describe an error in the ConfigMap or in the annotation `baseDeviceInfos`.

    Args:
        error: From the parser.
        product: Row by which the text was read.
    """
    if error.path == f"{AFFINITY_KEY}.version":
        subject = "AscendAffinity of another version"
    elif _is_of_other_row(error.found, product):
        subject = f"chips that {product.key} lacks"
    else:
        keys = AFFINITY_KEY, BASE_DEVICE_INFOS
        named = (key for key in keys if key in error.path)
        subject = next(named, deviceinfo.DEVICE_INFO_KEY)
    return Unreadable(subject=subject, error=str(error))


def of_count(resource: str, *, offered: int, present: int) -> Unreadable:
    """Describe a bare node whose kubelet offers another number of chips than it has."""
    return Unreadable(
        subject="another number of chips than allocatable",
        error=f"allocatable[{resource!r}]: expected {present}, found {offered}",
    )


def _is_of_other_row(name: object, product: Product) -> bool:
    """Whether a name is that of a chip of another row of the same resource only."""
    rows = [row for row in table.PRODUCTS if row.resource == product.resource]
    for row in (product, *rows):
        with suppress(WireError):
            parse_chip(name, row, path="")
            return row is not product
    return False
