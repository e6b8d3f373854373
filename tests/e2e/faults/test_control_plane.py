"""What the agent and the extender are told by goes away: extender, API server, etcd."""

import threading
import time

import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.commands import until
from tests.e2e.faults import witness
from tests.e2e.faults.between import Between
from tests.e2e.faults.conftest import Try
from tests.e2e.faults.trial import Trial

pytestmark = pytest.mark.faults

_OUTAGE_S = 60


def test_the_extender_dies_between_filter_and_bind(
    attempt: Try, cluster: Cluster
) -> None:
    with (
        Between(cluster) as between,
        attempt("extender, between filter and bind", "kill -9") as this,
    ):
        killed = threading.Event()

        def kill() -> None:
            this.extender.kill()
            killed.set()

        between.after["filter", "cut-off"] = kill
        uid = this.victim("cut-off")
        assert killed.wait(120)

        this.recover()
        this.wait_succeeded(uid)


def test_the_extender_dies_with_a_bind_in_flight(
    attempt: Try, cluster: Cluster
) -> None:
    with (
        Between(cluster) as between,
        attempt(
            "extender, bind in flight", "API server frozen, kill -9, API server thawed"
        ) as this,
    ):
        done = threading.Event()
        apiserver = cluster.programs.apiserver

        def kill() -> None:
            this.extender.kill()
            time.sleep(0.3)
            apiserver.thaw()
            done.set()

        def begin() -> None:
            apiserver.freeze()
            threading.Timer(0.5, kill).start()

        between.before["bind", "cut-off"] = begin
        uid = this.victim("cut-off")
        assert done.wait(120)

        this.recover()
        this.wait_succeeded(uid)


@pytest.mark.parametrize("how", ["frozen", "killed"])
def test_the_api_server_is_away(attempt: Try, cluster: Cluster, how: str) -> None:
    apiserver = cluster.programs.apiserver
    words = {"frozen": "SIGSTOP", "killed": "kill -9"}
    with attempt("API server", f"{words[how]}, away for {_OUTAGE_S} s") as this:
        if how == "frozen":
            apiserver.freeze()
            time.sleep(_OUTAGE_S)
            apiserver.thaw()
        else:
            apiserver.kill()
            time.sleep(_OUTAGE_S)
            back = time.monotonic()
            apiserver.start()
            # As all its clients it tries less and less often, at last each 30 s.
            this.agent.wait_connected(back)
            this.remark = f"connected again after {time.monotonic() - back:.0f} s"
        until(apiserver.is_ready, "API server ready", within_s=180)
        _wait_kubelet_connected(this)


def _wait_kubelet_connected(this: Trial) -> None:
    """Wait until scheduler and kubelet hear of a pod, and say what became of it.

    Their watches try again after a minute at the longest.
    """
    plain = witness.pod(
        "plain", witness.container("c0", 0, life="0"), labels={"part": "plain"}
    )
    uid = this.load.namespace.create_when_free(plain)
    this.load.chronicle.wait_uid(lambda story: story.is_over, uid, within_s=300)
    this.wait_succeeded(uid)


def test_etcd_is_away(attempt: Try, cluster: Cluster) -> None:
    with attempt("etcd", "kill -9, away for 15 s") as this:
        cluster.programs.etcd.kill()
        time.sleep(15)
        cluster.programs.etcd.start()
        until(cluster.programs.apiserver.is_ready, "API server ready", within_s=180)
        # Whoever wrote in vain tries again after a while; then short pods run again.
        this.load.churn.wait_succeeded(2)
