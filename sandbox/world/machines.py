"""What kind of server is each node? A row of the product table, by its key.

The node's simulated driver shows the chips of that row. What the Node says of it, the
agent and the extender make of that, as in a real cluster: nobody sets labels here
unless asked.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from scheduler_core.products import table
from scheduler_core.products.columns import Product

#: Of a node of which nothing else is said.
DEFAULT = "atlas-800-training"


class MachineError(ValueError):
    """There is no such machine; the text says which there are."""


@dataclass(frozen=True, slots=True)
class Cards:
    """Chips of another product line that a node has besides its own."""

    #: key of their row in the product table
    product: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A node to be: its name and what it has.

    Attributes:
        name: Of the node.
        product: Key of its row in the product table.
        beside: Chips of other product lines, whose ids come after its own.
        driver_file: What its simulated driver reads in the beginning; by default
            that all chips are well.
        labels: Labels of the node, set before its agent runs.
    """

    name: str
    product: str = DEFAULT
    beside: tuple[Cards, ...] = ()
    driver_file: Path | None = None
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def row(self) -> Product:
        """What is known of such servers."""
        return table.by_key(self.product)

    @property
    def offers(self) -> Mapping[str, int]:
        """How many chips of each resource there are."""
        offered = {self.row.resource: self.row.chip_count}
        for cards in self.beside:
            offered[table.by_key(cards.product).resource] = cards.count
        return offered

    @property
    def description(self) -> str:
        """What the file of its driver begins with: all chips are well."""
        lines = [f"product: {self.product}"]
        first = self.row.chip_count
        for cards in self.beside:
            lines += [] if len(lines) > 1 else ["beside:"]
            chips = list(range(first, first + cards.count))
            lines.append(f"  - {{product: {cards.product}, chips: {chips}}}")
            first += cards.count
        return "\n".join(lines) + "\n"


def machine(name: str, text: str) -> Machine:
    """Return the node that a text describes, as `KEY` or `KEY+KEY:COUNT`.

    Raises:
        MachineError: There is no such node.
    """
    key, *more = text.split("+")
    made = Machine(name=name, product=check(key), beside=tuple(map(_cards, more)))
    rows = [made.row, *(table.by_key(cards.product) for cards in made.beside)]
    if len(made.offers) < len(rows):
        raise MachineError(f"{text}: expected a resource of its own for each line")
    total = sum(made.offers.values())
    if any(total > row.chip_count for row in rows[1:]):
        raise MachineError(f"{text}: expected ids that each line can have, not {total}")
    return made


def _cards(text: str) -> Cards:
    key, _, count = text.partition(":")
    if not count.isdecimal() or int(count) < 1:
        raise MachineError(f"{text}: expected KEY:COUNT, such as atlas-310p:2")
    return Cards(check(key), int(count))


def check(key: str) -> str:
    """Return the key of a row.

    Raises:
        MachineError: There is no such row.
    """
    keys = [row.key for row in table.PRODUCTS]
    if key in keys:
        return key
    raise MachineError(f"no such product: {key!r}; there are {', '.join(keys)}")


def product_in(driver_file: Path) -> str:
    """Return the product that a driver file names.

    The agent reads the rest and is stricter; what it refuses it says in its log.

    Raises:
        MachineError: The file cannot be read, or names none that there is.
    """
    try:
        document = yaml.safe_load(driver_file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise MachineError(f"{driver_file}: {error}") from error
    found = document.get("product") if isinstance(document, dict) else None
    if not isinstance(found, str):
        raise MachineError(f"{driver_file}: expected a line `product: {DEFAULT}`")
    try:
        return check(found)
    except MachineError as error:
        raise MachineError(f"{driver_file}: {error}") from error
