"""The agent with its real gRPC servicer against the embedded kubelet.

Smaller than the machine over the pure ledger: it is slow, and it is there to
show that ledger, servicer, reconciler and annotator together do what the pure
ledger promises. A pod is bound as the extender binds: claim and binding in one
call.
"""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from sandbox.apiclient import Object
from tests.agent.site import NODE, Site
from tests.agent.two_lines import BESIDE
from tests.support.objects import PODS, container, pod

#: Examples of a run in CI; each starts an API server, a kubelet and an agent.
EXAMPLES = int(os.environ.get("KUBELET_EXAMPLES", "5"))

T = TypeVar("T")


class AgainstKubelet(RuleBasedStateMachine):
    """Bind, admit in any order, ignore preferences, reject, delete, restart."""

    told: tuple[str, ...] = ()
    beside = ""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.root = Path(tempfile.mkdtemp(prefix="kb-"))
        self.site = Site(self.root, *self.told)
        self.waiting: list[str] = []
        self.admitted: list[str] = []
        self.number = 0

    def do(self, what: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(what)

    @initialize()
    def start(self) -> None:
        self.do(self.start_site())

    async def start_site(self) -> None:
        await self.site.start()
        with (self.root / "npu.yaml").open("a") as shown:  # a line
            shown.write(self.beside)
        self.site.kubelet.switches.hold_admission = True
        self.site.start_agent()
        await self.site.until_allocatable()

    @rule(count=st.sampled_from((1, 1, 2)))
    def bind(self, count: int) -> None:
        self.number += 1
        name = f"p{self.number}"
        if self.do(self.site.bind(name, count)):
            self.waiting.append(name)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def admit(self, data: st.DataObject) -> None:
        order = data.draw(st.permutations(self.waiting))
        self.do(self.site.kubelet.admit(order))
        self.admitted += order
        self.waiting.clear()

    @rule(chips=st.lists(st.integers(0, 7), min_size=1, max_size=2, unique=True))
    def ignore_the_next_preference(self, chips: list[int]) -> None:
        ids = [f"Ascend910-{chip}" for chip in chips]
        self.site.kubelet.switches.scripted_ids.append(ids)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def reject_one_after_its_allocate(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self.waiting))
        self.site.kubelet.switches.reject_after_allocate.add(name)

    @precondition(lambda self: self.admitted)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self.admitted))
        self.admitted.remove(name)
        self.do(self.site.api.delete(f"{PODS}/{name}"))

    @rule()
    def restart_the_kubelet(self) -> None:
        self.do(self.site.kubelet.restart())
        self.do(self.site.until_allocatable())

    @rule()
    def restart_the_agent(self) -> None:
        self.do(self.site.restart_agent())

    @precondition(lambda self: self.admitted and not self.waiting)
    @rule()
    def everything_agrees_when_it_settles(self) -> None:
        self.do(self.site.settle())

    def teardown(self) -> None:
        try:
            if self.site.agent is not None:
                if self.waiting:
                    self.do(self.site.kubelet.admit(self.waiting))
                self.do(self.site.settle())
        finally:
            if self.site.agent is not None:
                self.do(self.site.stop())
            self.loop.close()
            shutil.rmtree(self.root)


class Standalone(AgainstKubelet):
    """The same without claims, and pods of several containers."""

    told = ("--mode", "standalone")

    @rule(
        counts=st.lists(st.sampled_from((1, 1, 2, 3)), min_size=1, max_size=3),
        has_init=st.booleans(),
    )
    def create(self, counts: list[int], *, has_init: bool) -> None:
        self.number += 1
        name = f"s{self.number}"
        self.do(self.site.api.create(PODS, standalone_pod(name, counts, has_init)))
        self.waiting.append(name)


class SecondLine(AgainstKubelet):
    """The same where the chips are the second line of the node."""

    beside = BESIDE


def standalone_pod(name: str, counts: list[int], has_init: bool) -> Object:
    """A pod that some scheduler has put onto the node."""
    asking = [container(f"c{index}", count) for index, count in enumerate(counts)]
    first = [{**asking[0], "name": "init"}] if has_init else []
    return pod(name, node=NODE, initContainers=first, containers=asking)


@pytest.mark.property
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "machine",
    [AgainstKubelet, Standalone, pytest.param(SecondLine, marks=pytest.mark.long)],
)
def test_mounts_annotations_and_holds_agree_whatever_the_kubelet_does(
    machine: type[AgainstKubelet],
) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=12,
            deadline=None,
            derandomize=True,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
