"""Many pods at once: none gets a chip of another's, none gets other chips than said."""

import random  # noqa: TID251  # with a seed: the same moments in each run
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import kubernetes.client
import pytest

from tests.e2e import truth
from tests.e2e.cluster import Cluster
from tests.e2e.commands import until
from tests.e2e.faults import witness
from tests.e2e.faults.audit import Audit, audit
from tests.e2e.faults.chronicle import Chronicle
from tests.e2e.faults.churn import Churn, Kind, body

_NOTHING_WRONG = ((), (), ())
_EIGHT = 8


@pytest.fixture
def chronicle(cluster: Cluster, namespace: str) -> Iterator[Chronicle]:
    witness.begin()
    with Chronicle(cluster, namespace) as chronicle:
        yield chronicle


def _audit(chronicle: Chronicle) -> Audit:
    return audit(chronicle.stories(), witness.lines())


def _told(found: Audit) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    return (found.wrong, found.doubles, found.unconfirmed)


def test_eight_pods_at_once_get_a_chip_each(
    cluster: Cluster, namespace: str, chronicle: Chronicle
) -> None:
    names = [f"one-{number}" for number in range(_EIGHT)]
    pods = [body(name, Kind(chips=(1,), life="infinity")) for name in names]
    with ThreadPoolExecutor(_EIGHT) as hands:
        list(
            hands.map(
                lambda pod: cluster.core.create_namespaced_pod(namespace, pod), pods
            )
        )
    for name in names:
        chronicle.wait(lambda story: story.phase == "Running", name)

    served = truth.until_agreed(cluster)

    assert sorted(pod.chips for pod in served) == [(chip,) for chip in range(_EIGHT)]
    assert _told(_audit(chronicle)) == _NOTHING_WRONG


def test_twenty_pods_take_turns_on_eight_chips(
    cluster: Cluster, namespace: str, chronicle: Chronicle
) -> None:
    kinds = [Kind(chips=(1,), life="2")]
    with Churn(
        cluster, chronicle, namespace, at_once=20, kinds=kinds, total=20
    ) as churn:
        churn.wait_succeeded(20, within_s=120)
        churn.wait_idle(within_s=20)

    truth.until_agreed(cluster)

    found = _audit(chronicle)
    assert _told(found) == _NOTHING_WRONG
    assert found.pod_count == 20


def test_unlike_pods_with_equal_counts_are_told_apart(
    cluster: Cluster, namespace: str, chronicle: Chronicle
) -> None:
    kinds = [
        Kind(chips=(1,)),
        Kind(chips=(1, 1)),
        Kind(chips=(1,), init_chips=1),
        Kind(chips=(2,)),
        Kind(chips=(2, 1, 1)),
        Kind(chips=(1,), init_chips=2),
    ]
    with Churn(
        cluster, chronicle, namespace, at_once=12, kinds=kinds, total=24
    ) as churn:
        churn.wait_succeeded(24, within_s=150)
        churn.wait_idle(within_s=20)

    truth.until_agreed(cluster)

    found = _audit(chronicle)
    assert _told(found) == _NOTHING_WRONG
    assert found.pod_count == 24


def test_a_pod_that_comes_again_under_its_name_is_another_pod(
    cluster: Cluster, namespace: str, chronicle: Chronicle
) -> None:
    chance = random.Random(4)  # noqa: S311  # nobody is to be surprised
    with ThreadPoolExecutor(4) as hands:
        moments = [[chance.uniform(0, 2) for _ in range(6)] for _ in range(4)]
        last = list(
            hands.map(
                lambda number: _come_and_go(
                    cluster, namespace, f"again-{number}", moments[number]
                ),
                range(4),
            )
        )

    for uid in last:
        chronicle.wait_uid(lambda story: story.phase == "Running", uid)
    served = truth.until_agreed(cluster)

    assert len(served) == 4
    found = _audit(chronicle)
    assert (found.wrong, found.doubles) == ((), ())
    assert len({story.uid for story in chronicle.stories()}) == 28


@pytest.mark.parametrize("count", [100, pytest.param(500, marks=pytest.mark.faults)])
@pytest.mark.timeout(900)
def test_churn_leaves_nothing_behind(
    cluster: Cluster, namespace: str, chronicle: Chronicle, count: int
) -> None:
    kinds = [Kind(chips=(1,), life="0.5"), Kind(chips=(2,), life="0.5")]
    with Churn(
        cluster, chronicle, namespace, at_once=12, kinds=kinds, total=count
    ) as churn:
        churn.wait_succeeded(count, within_s=880)
        churn.wait_idle(within_s=20)

    truth.until_agreed(cluster)

    found = _audit(chronicle)
    assert _told(found) == _NOTHING_WRONG
    assert found.pod_count == count


def _come_and_go(
    cluster: Cluster, namespace: str, name: str, moments: list[float]
) -> str:
    """Create it, delete it after each of these moments, create it again at once.

    Returns:
        UID of the last one, which stays.
    """
    for moment_s in moments:
        _create(cluster, namespace, name)
        time.sleep(moment_s)
        cluster.core.delete_namespaced_pod(name, namespace)
    return _create(cluster, namespace, name)


def _create(cluster: Cluster, namespace: str, name: str) -> str:
    pod = body(name, Kind(chips=(1,), life="infinity"))

    uids: list[str] = []

    def created() -> bool:
        try:
            made = cluster.core.create_namespaced_pod(namespace, pod)
        except kubernetes.client.ApiException as error:
            if error.status == 409:  # its predecessor is still going
                return False
            raise
        uids.append(made.metadata.uid)
        return True

    until(created, f"{name} created", within_s=60, every_s=0.02)
    return uids[0]
