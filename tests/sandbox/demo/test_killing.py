import dataclasses
import io
import sys
from collections.abc import Sequence
from functools import partial

from sandbox.demo import story
from sandbox.demo.steps import killing
from sandbox.inspect import checks
from sandbox.inspect.facts import Cluster, Mount, NodeFacts, PodFacts
from sandbox.inspect.terminal import Terminal
from sandbox.world import Commands, Node, running
from sandbox.world.world import agent_command

KILLING = story.Step(title="A killing", play=partial(killing.play, back_s=3.0))
ALL = tuple(range(8))
#: Runs what follows; when it did so before, two chips are said to be broken.
HOARDER = """
import os, pathlib, sys
driver, *command = sys.argv[1:]
lives = pathlib.Path(driver + ".lives")
if lives.exists():
    faults = "".join(f'  - {{chip: {c}, code: "80E01801"}}\\n' for c in (2, 3))
    pathlib.Path(driver).write_text(f"product: atlas-800-training\\nfaults:\\n{faults}")
lives.touch()
os.execv(command[0], command)
"""


def hoarding(node: Node) -> Sequence[str]:
    command = agent_command(node)
    return sys.executable, "-c", HOARDER, str(node.driver_file), *command


async def test_an_agent_that_keeps_chips_after_its_death_is_found_out() -> None:
    out = io.StringIO()

    async with running(story.NODES, Commands(agent=hoarding)) as world:
        failed = await story.tell(world, Terminal(out, {}), (KILLING,))

    lines = [line.strip() for line in out.getvalue().splitlines()]
    assert failed == KILLING
    wrong = {line.partition(" should")[0] for line in lines if line.startswith("✗")}
    assert wrong
    assert wrong <= {"✗ node-1: available", "✗ node-1: in the kubelet's list"}
    assert lines[-1] == "Step 1 failed: A killing"


def pod(**more: object) -> PodFacts:
    whole = PodFacts(
        uid="u",
        name="p",
        node="n",
        phase="Running",
        count=1,
        claimed=(0,),
        real=(0,),
        is_confirmed=True,
    )
    return dataclasses.replace(whole, **more)  # type: ignore[arg-type]  # any field


def cluster(*pods: PodFacts, chip: int = 0, **more: object) -> Cluster:
    node = NodeFacts(
        name="n",
        capacity=8,
        allocatable=8,
        listed=ALL,
        available=ALL[1:],
        unhealthy=(),
        recovering=(),
        held=(0,),
    )
    node = dataclasses.replace(node, **more)  # type: ignore[arg-type]  # any field
    mount = Mount(node="n", pod_uid="u", pod="p", ids=(chip,), chips=(chip,))
    return Cluster(nodes=(node,), pods=pods, mounts=(mount,))


def test_a_pod_that_was_cut_off_has_failed_with_a_reason_and_without_chips() -> None:
    failed = pod(phase="Failed", message="why")

    assert checks.cut_off(failed, ()) == ()
    assert checks.cut_off(failed, (1,)) == (
        "p should be Failed, say why and have no chips, is Failed (why) with 1",
    )
    assert len(checks.cut_off(pod(phase="Failed"), ())) == 1
    assert len(checks.cut_off(pod(message="why"), ())) == 1


def test_a_chip_that_stays_held_by_nobody_is_told() -> None:
    assert checks.given_back(cluster(), "n") == ()
    assert checks.given_back(cluster(held=(0, 5)), "n") == (
        "n: held should be 0, is 0,5",
    )


def test_a_pod_that_moved_is_told() -> None:
    before = cluster(pod())

    assert checks.unmoved(before, cluster(pod()), ["p"]) == ()
    assert len(checks.unmoved(before, cluster(pod(), chip=1), ["p"])) == 1
    assert len(checks.unmoved(before, cluster(pod(real=(1,))), ["p"])) == 1
