import io
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pytest

from sandbox.demo import story
from sandbox.demo.steps import killing
from sandbox.inspect import checks
from sandbox.inspect.terminal import Terminal
from sandbox.world import Commands, Node, running
from sandbox.world.world import agent_command
from tests.sandbox.facts import cluster, mount, node, pod

KILLING = story.Step(title="A killing", play=partial(killing.play, back_s=3.0))
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


@pytest.mark.long
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


def test_a_pod_that_was_cut_off_has_failed_with_a_reason_and_without_chips() -> None:
    failed = replace(pod("p", 0), phase="Failed", message="why")

    assert checks.cut_off(failed, ()) == ()
    assert checks.cut_off(failed, (1,)) == (
        "p should be Failed, say why and have no chips, is Failed (why) with 1",
    )
    assert len(checks.cut_off(replace(failed, message=""), ())) == 1
    assert len(checks.cut_off(replace(failed, phase="Running"), ())) == 1


def test_a_chip_that_stays_held_by_nobody_is_told() -> None:
    given_back, leaked = node(held=(0,)), replace(node(held=(0,)), held=(0, 5))

    assert checks.given_back(cluster(given_back, mount("p", 0)), "n") == ()
    assert checks.given_back(cluster(leaked, mount("p", 0)), "n") == (
        "n: held should be 0, is 0,5",
    )


def test_a_pod_that_moved_is_told() -> None:
    stays = pod("p", 0)
    before = cluster(stays, mount("p", 0))

    assert checks.unmoved(before, before, ["p"]) == ()
    elsewhere = cluster(stays, mount("p", 1))
    assert len(checks.unmoved(before, elsewhere, ["p"])) == 1
    annotated = cluster(replace(stays, real=(1,)), mount("p", 0))
    assert len(checks.unmoved(before, annotated, ["p"])) == 1
