"""Many pods at once: none gets a chip of another's, none gets other chips than said."""

import random  # noqa: TID251  # with a seed: the same moments in each run
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.e2e import truth
from tests.e2e.commands import until
from tests.e2e.faults import witness
from tests.e2e.faults.audit import audit, wait_nothing_wrong
from tests.e2e.faults.chronicle import Chronicle
from tests.e2e.faults.churn import Churn, Kind, body
from tests.e2e.namespaces import Namespace

_EIGHT = 8
#: Pods of different shapes with counts that occur in several of them.
_UNLIKE = (
    Kind(chips=(1,), is_patient=True),
    Kind(chips=(1, 1), is_patient=True),
    Kind(chips=(1,), init_chips=1, is_patient=True),
    Kind(chips=(2,), is_patient=True),
    Kind(chips=(2, 1, 1), is_patient=True),
    Kind(chips=(1,), init_chips=2, is_patient=True),
)
_LONG = (Kind(chips=(1,), life="2", is_patient=True),)
_SHORT = (
    Kind(chips=(1,), life="0.3", is_patient=True),
    Kind(chips=(2,), life="0.3", is_patient=True),
)


@pytest.mark.core("race")
def test_eight_pods_at_once_get_a_chip_each(
    namespace: Namespace, chronicle: Chronicle
) -> None:
    names = [f"one-{number}" for number in range(_EIGHT)]
    pods = [body(name, Kind(chips=(1,), life="infinity")) for name in names]
    with ThreadPoolExecutor(_EIGHT) as hands:
        list(hands.map(namespace.create, pods))
    for name in names:
        chronicle.wait(lambda story: story.phase == "Running", name)

    served = truth.until_agreed(namespace.cluster)

    assert sorted(pod.chips for pod in served) == [(chip,) for chip in range(_EIGHT)]
    wait_nothing_wrong(chronicle, _EIGHT)


def test_a_pod_that_comes_again_under_its_name_is_another_pod(
    namespace: Namespace, chronicle: Chronicle
) -> None:
    chance = random.Random(4)  # noqa: S311  # nobody is to be surprised
    with ThreadPoolExecutor(4) as hands:
        moments = [[chance.uniform(0, 2) for _ in range(6)] for _ in range(4)]
        last = list(
            hands.map(
                lambda number: _come_and_go(
                    namespace, f"again-{number}", moments[number]
                ),
                range(4),
            )
        )

    for uid in last:
        chronicle.wait_uid(lambda story: story.phase == "Running", uid)
    served = truth.until_agreed(namespace.cluster)

    assert len(served) == 4
    until(
        lambda: len(chronicle.stories()) == 28,
        lambda: f"28 pods seen: {len(chronicle.stories())}",
        within_s=60,
    )
    found = audit(chronicle.stories(), witness.lines())
    assert (found.wrong, found.doubles) == ((), ())


@pytest.mark.parametrize(
    ("kinds", "at_once", "count"),
    [
        pytest.param(_LONG, 20, 20, id="turns-on-eight-chips"),
        pytest.param(_UNLIKE, 12, 24, id="unlike-pods"),
        pytest.param(_SHORT, 12, 60, id="short-lives"),
        pytest.param(_SHORT, 12, 500, id="many", marks=pytest.mark.faults),
    ],
)
@pytest.mark.timeout(2400)
def test_pods_that_come_and_go_leave_nothing_behind(
    namespace: Namespace,
    chronicle: Chronicle,
    kinds: Sequence[Kind],
    at_once: int,
    count: int,
) -> None:
    with Churn(
        chronicle, namespace, at_once=at_once, kinds=kinds, total=count
    ) as churn:
        churn.wait_succeeded(count, within_s=300 + 3 * count)
        churn.wait_idle()

    truth.until_agreed(namespace.cluster)

    wait_nothing_wrong(chronicle, count)


def _come_and_go(namespace: Namespace, name: str, moments: list[float]) -> str:
    """Create it, delete it after each of these moments, create it again at once.

    Returns:
        UID of the last one, which stays.
    """
    pod = body(name, Kind(chips=(1,), life="infinity"))
    for moment_s in moments:
        namespace.create_when_free(pod)
        time.sleep(moment_s)
        namespace.delete(name)
    return namespace.create_when_free(pod)
