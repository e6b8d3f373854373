"""The device tables alone: no socket, no loop, answers by hand."""

import random  # noqa: TID251  # with a seed
from collections.abc import Callable, Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubelet_api.deviceplugin.v1beta1 import api_pb2
from sandbox.apiclient import Object
from sandbox.kubelet.devices import (
    Allocated,
    AskAllocate,
    AskPreference,
    DeviceError,
    DeviceTables,
    KubeletPanicError,
    Preferred,
    Procedure,
)
from sandbox.pods import Pod, pod_of
from tests.support import objects

CHIPS = "example.com/chips"
ANSWER = Allocated(responses=(api_pb2.ContainerAllocateResponse(),))
Prefer = Callable[[AskPreference], tuple[str, ...]]


def tables(health: Mapping[str, str], *, seed: int = 0) -> DeviceTables:
    made = DeviceTables(
        chance=random.Random(seed),  # noqa: S311  # an order, not a secret
        sources_ready=True,
        active=_Everybody,
    )
    made.connected(CHIPS)
    made.reported(CHIPS, health)
    return made


class _Everybody(frozenset[str]):
    """The active pods, where none ever ends."""

    def __contains__(self, uid: object) -> bool:
        return True


def healthy(count: int) -> dict[str, str]:
    return {f"d{i}": "Healthy" for i in range(count)}


def pod(uid: str, *counts: int, init: tuple[int, ...] = (), dra: bool = False) -> Pod:
    def containers(letter: str, counts: Sequence[int]) -> list[Object]:
        return [
            objects.container(f"{letter}{number}", count, resource=CHIPS)
            for number, count in enumerate(counts)
        ]

    made = objects.pod(
        uid,
        meta={"uid": uid},
        containers=containers("c", counts),
        initContainers=containers("i", init),
    )
    mapping = {"containerName": "c0", "resourceName": CHIPS}
    claimed = {"extendedResourceClaimStatus": {"requestMappings": [mapping]}}
    return pod_of({**made, "status": claimed if dra else {}})


def admit(
    made: DeviceTables, wanted: Pod, prefer: Prefer = lambda _: ()
) -> list[AskPreference | AskAllocate]:
    """Allocate for every container, answering every question; return these."""
    asked: list[AskPreference | AskAllocate] = []
    for container in wanted.containers:
        procedure = made.allocate(wanted, container)
        try:
            question = next(procedure)
            while True:
                asked.append(question)
                question = procedure.send(
                    Preferred(ids=prefer(question))
                    if isinstance(question, AskPreference)
                    else ANSWER
                )
        except StopIteration:
            pass
    return asked


def begun(made: DeviceTables, wanted: Pod) -> Procedure:
    """The allocation of the first container, which has asked for a preference."""
    procedure = made.allocate(wanted, wanted.containers[0])
    next(procedure)
    return procedure


def ids(made: DeviceTables, uid: str, container: str = "c0") -> frozenset[str]:
    return made.assigned(uid, container)[CHIPS].ids


def test_equal_seeds_give_equal_ids_and_others_do_not() -> None:
    orders = []
    for seed in (1, 1, 2, 3, 4):
        made = tables(healthy(8), seed=seed)
        for number in range(8):
            admit(made, pod(str(number), 1))
        orders.append([next(iter(ids(made, str(number)))) for number in range(8)])

    assert orders[0] == orders[1]
    assert len({tuple(order) for order in orders}) == 4


def test_questions_name_their_ids_in_random_order() -> None:
    made = tables(healthy(8))

    preference, allocate = admit(made, pod("a", 8))

    assert isinstance(preference, AskPreference)
    assert isinstance(allocate, AskAllocate)
    assert sorted(preference.available) == sorted(allocate.ids) == sorted(healthy(8))
    assert preference.available != allocate.ids


def test_a_resource_that_dra_serves_is_not_allocated() -> None:
    made = tables(healthy(8))

    assert admit(made, pod("a", 2, dra=True)) == []


def test_a_second_call_for_the_same_container_asks_nothing() -> None:
    made = tables(healthy(8))
    admit(made, pod("a", 2))

    assert admit(made, pod("a", 2)) == []


def test_a_changed_count_is_refused() -> None:
    made = tables(healthy(8))
    admit(made, pod("a", 2))

    with pytest.raises(DeviceError) as refused:
        admit(made, pod("a", 3))

    assert str(refused.value) == (
        'pod "a" container "c0" changed request for resource '
        '"example.com/chips" from 2 to 3'
    )


def test_ids_that_are_unhealthy_now_are_refused_to_a_pod_that_has_them() -> None:
    made = tables(healthy(2))
    admit(made, pod("a", 2))
    made.reported(CHIPS, {"d0": "Unhealthy", "d1": "Healthy"})

    with pytest.raises(DeviceError, match="previously allocated devices are no longer"):
        admit(made, pod("a", 2))


def test_an_error_of_the_preference_leaves_reused_ids_marked() -> None:
    # manager.go:693 returns without repair, so the init container's ids stay taken.
    made = tables(healthy(4))
    wanted = pod("a", 2, init=(1,))
    admit(made, pod("a", init=(1,)))
    taken = set(ids(made, "a", "i0"))
    procedure = made.allocate(wanted, wanted.containers[1])
    question = next(procedure)
    assert isinstance(question, AskPreference)
    assert set(question.must_include) == taken

    with pytest.raises(DeviceError):
        procedure.throw(DeviceError("plugin is confused"))

    assert made.allocated == {CHIPS: taken}
    assert made.assigned("a", "c0") == {}


def test_an_error_of_allocate_frees_what_it_would_have_given() -> None:
    made = tables(healthy(4))
    procedure = begun(made, pod("a", 2))
    assert isinstance(procedure.send(Preferred(ids=())), AskAllocate)

    with pytest.raises(DeviceError):
        procedure.throw(DeviceError("no"))

    assert made.allocated == {}


def test_a_plugin_that_unregistered_before_allocate_is_unknown() -> None:
    made = tables(healthy(4))
    procedure = begun(made, pod("a", 2))
    del made.endpoints[CHIPS]

    with pytest.raises(DeviceError, match=f"unknown Device Plugin {CHIPS}"):
        procedure.send(Preferred(ids=()))


def test_an_id_that_left_the_list_during_allocate_is_a_panic() -> None:
    made = tables(healthy(1))
    procedure = begun(made, pod("a", 1))
    procedure.send(Preferred(ids=()))
    made.reported(CHIPS, {})

    with pytest.raises(KubeletPanicError):
        procedure.send(ANSWER)


def test_ids_are_freed_lazily_once_sources_are_ready() -> None:
    active = {"a"}
    made = tables(healthy(2))
    made.active = lambda: active
    admit(made, pod("a", 2))
    active.clear()
    assert made.allocated == {CHIPS: {"d0", "d1"}}

    made.sources_ready = False
    made.forget_inactive()
    assert made.allocated == {CHIPS: {"d0", "d1"}}
    made.sources_ready = True
    made.forget_inactive()

    assert (made.allocated, made.assignments) == ({}, {})


def test_a_stopped_plugin_counts_as_unhealthy_and_then_not_at_all() -> None:
    made = tables(healthy(2))

    made.disconnected(CHIPS, now=100.0)

    assert made.capacity(now=400.0) == ({CHIPS: 2}, {CHIPS: 0})
    assert made.capacity(now=400.1) == ({}, {})
    assert not made.is_plugin_resource(CHIPS)


def test_while_pods_are_read_again_running_containers_keep_what_they_have() -> None:
    made = tables({})
    made.sources_ready = False
    made.running_at_start = frozenset({("a", "c0")})

    assert admit(made, pod("a", 2)) == []
    with pytest.raises(DeviceError, match="no healthy devices present"):
        admit(made, pod("b", 2))


@pytest.mark.property
@given(data=st.data())
def test_no_id_is_given_twice_and_only_healthy_ones_are_given(
    data: st.DataObject,
) -> None:
    health = data.draw(
        st.fixed_dictionaries(
            {f"d{i}": st.sampled_from(["Healthy", "Unhealthy"]) for i in range(8)}
        )
    )
    made = tables(health, seed=data.draw(st.integers(0, 9)))
    good = {name for name, state in health.items() if state == "Healthy"}
    prefer: Prefer = lambda _: tuple(  # noqa: E731  # one line, used once
        data.draw(st.lists(st.sampled_from([*health, "unknown"]), max_size=8))
    )
    given_out: set[str] = set()
    for number, count in enumerate(data.draw(st.lists(st.integers(1, 5), max_size=5))):
        wanted = pod(str(number), count)
        if not good or count > len(good - given_out):
            with pytest.raises(DeviceError):
                admit(made, wanted, prefer)
            continue

        asked = admit(made, wanted, prefer)

        preference, allocate = asked
        assert isinstance(preference, AskPreference)
        assert set(preference.available) == good - given_out
        assert set(allocate.ids) == ids(made, str(number))  # type: ignore[union-attr]
        assert len(ids(made, str(number))) == count
        assert ids(made, str(number)) <= good - given_out
        given_out |= ids(made, str(number))
    assert made.allocated.get(CHIPS, set()) == given_out
