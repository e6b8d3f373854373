from dataclasses import replace

from sandbox.demo import picture
from sandbox.inspect.facts import Cluster, Mount, NodeFacts
from sandbox.inspect.terminal import Line, Style

EMPTY = NodeFacts(
    name="node-1",
    capacity=8,
    allocatable=8,
    listed=(),
    available=(),
    unhealthy=(),
    recovering=(),
    held=(),
)


def drawn(lines: tuple[Line, ...]) -> list[str]:
    return ["".join(span.text for span in line).rstrip() for line in lines]


def mount(pod: str, *chips: int) -> Mount:
    return Mount(node="node-1", pod_uid=pod, pod=pod, ids=chips, chips=chips)


def test_chips_are_drawn_in_their_rings_with_whose_they_are() -> None:
    node = replace(EMPTY, unhealthy=(3,), recovering=(7,))
    cluster = Cluster(nodes=(node,), pods=(), mounts=(mount("a", 0), mount("b", 4, 5)))

    assert drawn(picture.nodes(cluster)) == [
        "            0       1       2       3          4       5       6       7",
        "node-1  [   a       ·       ·       ✗   ]  [   b       b       ·       ✗   ]",
        "· free   ✗ unhealthy   a name: the pod that has it mounted",
    ]


def test_a_chip_with_two_owners_shows_both() -> None:
    cluster = Cluster(nodes=(EMPTY,), pods=(), mounts=(mount("a", 0), mount("b", 0)))

    assert "  a+b  " in drawn(picture.nodes(cluster))[1]


def test_a_broken_chip_still_shows_its_owner() -> None:
    node = replace(EMPTY, unhealthy=(0,))
    cluster = Cluster(nodes=(node,), pods=(), mounts=(mount("a", 0),))

    cells = picture.nodes(cluster)[1]

    assert [span.text.strip() for span in cells if span.style is Style.BAD] == ["✗ a"]


def test_a_long_name_widens_every_column() -> None:
    cluster = Cluster(nodes=(EMPTY,), pods=(), mounts=(mount("quite-a-long-name", 0),))

    head, row, _ = drawn(picture.nodes(cluster))

    assert "quite-a-long-name" in row
    assert len(head) <= len(row)
