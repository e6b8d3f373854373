import io
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from sandbox.demo import story
from sandbox.demo.steps import race
from sandbox.inspect.terminal import Terminal
from sandbox.world import Commands, Node, running

RACE = story.Step(title="A race", play=race.play)


def planted(node: Node) -> Sequence[str]:
    script = Path(__file__).parent / "planted_agent.py"
    places = (node.kubelet_dir, node.pod_resources_socket)
    return (
        *(sys.executable, str(script), node.name),
        *(*map(str, places), node.api_url, str(node.address_file)),
    )


@pytest.mark.long
async def test_an_agent_that_follows_the_kubelets_ids_is_found_out() -> None:
    out = io.StringIO()

    async with running(story.NODES, Commands(agent=planted)) as world:
        failed = await story.tell(world, Terminal(out, {}), (RACE,))

    lines = [line.strip() for line in out.getvalue().splitlines()]
    assert failed == RACE
    # Annotations and ConfigMaps agree with its mounts: only the sets give it away.
    right = [line for line in lines if line.startswith("✓")]
    assert [line.partition(",")[0] for line in right] == [
        "✓ every container has what its pod's annotations say"
    ]
    wrong = [line for line in lines if line.startswith("✗")]
    assert [line.partition(":")[0] for line in wrong] == ["✗ node-1", "✗ node-2"]
    assert "mounted is {0,7}" in wrong[0]
    assert lines[-1] == "Step 1 failed: A race"
