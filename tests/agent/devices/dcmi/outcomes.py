"""What the tables of outcomes of libdcmi's calls have in common."""

from enum import Enum

from tests.agent.devices.scripted_library import FUNCTIONS

#: Methods of `Library` that read chips.
METHODS = [method for method in FUNCTIONS if method != "can_subscribe"]
#: The chip whose calls go wrong, with its card and device.
CHIP, HERE = 2, (1, 0)
#: Calls about no chip.
OF_NODE = frozenset({"version", "cards"})


class Moment(Enum):
    """When the outcome begins."""

    FIRST = "at the first start of all"
    START = "at start on a node that has been served before"
    LATER = "later"
    IDENTIFYING = "at the identifying look"
