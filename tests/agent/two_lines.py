"""The second world of tests of one product line: their line is the second of a node.

The other line has more chips, so that it is the node's first. All ids stay.
"""

from dataclasses import replace

import pytest

from agent.devices.reading import Reading
from agent.devices.simulated import file
from tests.agent.devices.fake_machine import FakeMachine

#: Chips of the other line.
_OTHER = range(8, 17)
#: What the simulated driver's file says of them, behind the tests' line.
BESIDE = f"beside: [{{product: atlas-310p, chips: {list(_OTHER)}}}]\n"

_NODE = file.parse(f"product: atlas-800-training\n{BESIDE}")

#: Ids of the two.
WORLDS = ["one line", "second of two lines"]

#: For tests with the fixture `site`.
on_both_nodes = pytest.mark.parametrize("site", ["", BESIDE], ids=WORLDS, indirect=True)
#: The same, where the second one would make `make test` long.
on_both_nodes_long = pytest.mark.parametrize(
    "site",
    [
        pytest.param("", id=WORLDS[0]),
        pytest.param(BESIDE, id=WORLDS[1], marks=pytest.mark.long),
    ],
    indirect=True,
)


def reading_of_node(line: Reading, *, is_second: bool) -> Reading:
    """The node's reading whose only line is this, or whose second line is."""
    if not is_second:
        return line
    return replace(
        _NODE,
        other_lines=line.lines,
        looked_s=line.looked_s,
        read_s=line.read_s,
        read_ms=line.read_ms,
        changed_row=line.changed_row,
        begins_anew=line.begins_anew,
        missing=line.missing,
    )


def add_other_line(machine: FakeMachine) -> None:
    """Put the chips of the other line into a machine."""
    for chip in _OTHER:
        machine.add(chip, 0, f"phy={chip} logic={chip} name=310P3 cores=8")
