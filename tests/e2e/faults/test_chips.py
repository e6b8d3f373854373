"""A chip fails while it is held, claimed or free; the driver hangs."""

import time
from collections.abc import Iterator

import pytest

from tests.e2e import truth
from tests.e2e.cluster import Cluster
from tests.e2e.commands import until
from tests.e2e.faults import witness
from tests.e2e.faults.conftest import Try
from tests.e2e.faults.ours import Chips
from tests.e2e.faults.trial import Trial

pytestmark = pytest.mark.faults

_HANGS_S = 60


@pytest.fixture
def chips(cluster: Cluster) -> Iterator[Chips]:
    chips = Chips(cluster)
    yield chips
    chips.mend()


@pytest.mark.core("broken-chip")
def test_a_chip_fails_while_it_is_held(attempt: Try, chips: Chips) -> None:
    with attempt("chip fails, held", "a fault on a running pod's chip") as this:
        container = this.load.containers()["stays-1/c0"]
        [chip] = container.chips
        chips.break_(chip)
        truth.wait_node(this.cluster, unhealthy=(chip,))
        this.load.churn.wait_succeeded(3)
        assert this.load.containers()["stays-1/c0"] == container

        chips.mend()
        truth.wait_node(this.cluster, unhealthy=())


def test_a_chip_fails_while_it_is_claimed(attempt: Try, chips: Chips) -> None:
    with attempt("chip fails, claimed", "a fault between bind and Allocate") as this:
        kubelet = this.cluster.programs.kubelet
        # Nobody else may take the chips that are to replace the broken one: the agent
        # would rightly refuse the claimant. So churn waits until it has been served.
        this.quiet()
        kubelet.freeze()
        uid = this.victim("claimant", chips=2)
        claimed = truth.numbers(this.wait_bound(uid).bound_claim)
        chips.break_(claimed[0])
        truth.wait_node(this.cluster, unhealthy=(claimed[0],))
        kubelet.thaw()

        this.wait_succeeded(uid)
        this.load.churn.go_on()
        [line] = [each for each in witness.lines() if each.pod_uid == uid]
        assert claimed[0] not in line.environment
        this.remark = f"claimed {claimed}, served {line.environment}"
        chips.mend()
        truth.wait_node(this.cluster, unhealthy=())


def test_a_chip_fails_while_it_is_free(attempt: Try, chips: Chips) -> None:
    with attempt("chip fails, free", "a fault on a chip that nobody has") as this:
        this.quiet()
        broken = truth.node(this.cluster).available[-1]
        chips.break_(broken)
        truth.wait_node(this.cluster, unhealthy=(broken,))
        known = len(witness.lines())
        this.load.churn.go_on()
        this.load.churn.wait_succeeded(5)
        this.quiet()
        assert all(broken not in line.environment for line in witness.lines()[known:])

        chips.mend()
        truth.wait_node(this.cluster, unhealthy=())


def test_the_driver_hangs(attempt: Try, chips: Chips) -> None:
    with attempt("driver hangs", f"its call does not return for {_HANGS_S} s") as this:
        end = time.monotonic() + _HANGS_S
        pid = this.agent.running_pid()
        chips.hang(pid)
        try:
            until(lambda: _is_stale(this), "the reading counts as stale", within_s=60)
            this.load.churn.wait_succeeded(5)
            time.sleep(max(0.0, end - time.monotonic()))
        finally:
            chips.let_go(pid)
        until(lambda: not _is_stale(this), "the driver answers again", within_s=60)


def _is_stale(this: Trial) -> bool:
    return this.agent.metrics()["ascend_agent_driver_stale"] == 1
