from dataclasses import replace

from sandbox.demo import picture
from sandbox.inspect.terminal import Line, Style
from tests.sandbox.facts import cluster, mount, node

EMPTY = node("node-1")


def drawn(lines: tuple[Line, ...]) -> list[str]:
    return ["".join(span.text for span in line).rstrip() for line in lines]


def test_chips_are_drawn_in_their_rings_with_whose_they_are() -> None:
    broken = replace(EMPTY, unhealthy=(3,), recovering=(7,))
    mounts = mount("a", 0, on="node-1"), mount("b", 4, 5, on="node-1")

    assert drawn(picture.nodes(cluster(broken, *mounts))) == [
        "            0       1       2       3          4       5       6       7",
        "node-1  [   a       ·       ·       ✗   ]  [   b       b       ·       ✗   ]",
        "· free   ✗ unhealthy   a name: the pod that has it mounted",
    ]


def test_a_chip_with_two_owners_shows_both() -> None:
    mounts = mount("a", 0, on="node-1"), mount("b", 0, on="node-1")

    assert "  a+b  " in drawn(picture.nodes(cluster(EMPTY, *mounts)))[1]


def test_a_broken_chip_still_shows_its_owner() -> None:
    broken = replace(EMPTY, unhealthy=(0,))

    cells = picture.nodes(cluster(broken, mount("a", 0, on="node-1")))[1]

    assert [span.text.strip() for span in cells if span.style is Style.BAD] == ["✗ a"]


def test_a_pod_is_called_as_one_likes() -> None:
    job = mount("train-0-x7k2p", 0, on="node-1")

    _, row, _ = drawn(picture.nodes(cluster(EMPTY, job), lambda _: "train-0"))

    assert row.startswith("node-1  [train-0 ")


def test_a_long_name_widens_every_column() -> None:
    long = mount("quite-a-long-name", 0, on="node-1")

    head, row, _ = drawn(picture.nodes(cluster(EMPTY, long)))

    assert "quite-a-long-name" in row
    assert len(head) <= len(row)
