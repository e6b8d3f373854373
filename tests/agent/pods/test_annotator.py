import asyncio
import json
import random  # noqa: TID251  # fixed seeds: the test knows the jitter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import product

import pytest

from agent.claims.annotations import Patch
from agent.pods.annotator import _Delay
from agent.report.reporter import LONGEST_PAUSE_S
from kube.errors import KubeError, UnreachableError, api_error
from kube.events import Regarding
from scheduler_core.wire.pods import NpuPod
from service.backoff import Backoff
from tests.agent.annotating import SERVED, FakeApi, annotator_of
from tests.agent.node import RESOURCE, NodeLedger, current, pod
from tests.support.tasks import in_background


async def publish(now: NodeLedger, api: FakeApi) -> None:
    annotator = annotator_of(now, api)
    while await annotator.run_once():
        pass


@pytest.mark.seed("000-11")
async def test_a_served_pod_gets_all_its_keys_in_one_patch() -> None:
    train = pod("train", [0, 1])
    now, api = current(train), FakeApi(train)
    now.mounts_for("train", 0, 1)

    await publish(now, api)

    assert api.written("train") == {
        RESOURCE: "Ascend910-0,Ascend910-1",
        "predicate-time": SERVED,
        "huawei.com/AscendReal": "Ascend910-0,Ascend910-1",
        "huawei.com/kltDev": "Ascend910-0,Ascend910-1",
    }
    assert len(api.patches) == 1


@pytest.mark.seed("000-03")
async def test_a_swap_is_written_so_that_no_held_chip_is_ever_unclaimed() -> None:
    first, second = pod("first", [0, 1], 1), pod("second", [2, 3], 2)
    now, api = current(first, second), FakeApi(first, second)
    now.mounts_for("second", 0, 1)

    await publish(now, api)

    order = [(patch.name, sorted(patch.annotations)) for patch in api.patches]
    configuration = "ascend.kubectl.kubernetes.io/ascend-910-configuration"
    assert order == [
        ("second", [configuration, "huawei.com/AscendReal", "huawei.com/kltDev"]),
        ("first", [RESOURCE]),
        ("second", [RESOURCE, "predicate-time"]),
    ]
    assert api.written("first")[RESOURCE] == "Ascend910-2,Ascend910-3"
    assert api.written("second")[RESOURCE] == "Ascend910-0,Ascend910-1"


@pytest.mark.parametrize("is_gone", [False, True])
async def test_every_patch_names_the_uid_of_its_pod_and_one_that_has_gone_has_none(
    *, is_gone: bool
) -> None:
    train = pod("train", [0])
    now, api = current(train), FakeApi() if is_gone else FakeApi(train)
    now.mounts_for("train", 0)

    await publish(now, api)

    assert {patch.uid for patch in api.patches} == (set() if is_gone else {"uid-train"})


@pytest.mark.looptime
@pytest.mark.parametrize("seed", [1, 120])  # with 120 a timer is a hair early
async def test_an_api_server_that_is_down_is_tried_until_it_is_back(seed: int) -> None:
    train = pod("train", [0])
    now, api = current(train), FakeApi(train)
    api.is_down = True
    now.mounts_for("train", 0)
    jitter = random.Random(seed)  # noqa: S311  # no secret
    annotator = annotator_of(
        now,
        api,
        new_backoff=lambda: Backoff(cap_s=LONGEST_PAUSE_S, rng=jitter),
    )
    async with in_background(annotator.run()):
        await asyncio.sleep(60)
        api.is_down = False
        await asyncio.sleep(60)

    assert api.written("train")["predicate-time"] == SERVED


#: Status and message.
Answered = tuple[int, str]
#: What the API server answers to the patch of one pod, whatever it answers to others:
#: the pod breaks a rule, is too large, a webhook or a policy refuses it, a webhook is
#: away.
OF_POD: list[Answered] = [
    (422, "Pod is invalid: metadata.annotations: Too long"),
    (413, "etcdserver: request is too large"),
    (400, 'admission webhook "w" denied the request: no'),
    (403, 'admission webhook "w" denied the request: you cannot patch this'),
    (500, 'failed calling webhook "w": connection refused'),
]
#: What it answers about none in particular.
OF_NODE: list[Answered] = [
    (403, 'pods "p" is forbidden: User "a" cannot patch resource "pods" in API group'),
    (503, "the server is currently unable to handle the request"),
    (0, "connection refused"),
]
LACKS_RIGHT = OF_NODE[0]
TAKEN: Answered = (200, "")
ALL = [TAKEN, *OF_POD, *OF_NODE]
SOME = [TAKEN, OF_POD[0], OF_POD[-1], *OF_NODE]
#: The longest pause between two patches, and a little.
SETTLED_S = LONGEST_PAUSE_S + 2.0


def failure(answer: Answered) -> KubeError:
    status, message = answer
    if not status:
        return UnreachableError(message)
    body = json.dumps({"code": status, "message": message}).encode()
    return api_error(status, body, request_line="PATCH")


class Told:
    """What an annotator has told last of the node, and of each pod."""

    def __init__(self) -> None:
        self.node: KubeError | None = None
        self.pods: dict[str, str] = {}

    def tell(self, pod: Regarding, problem: str) -> None:
        assert (pod.kind, pod.namespace, pod.uid) == (
            *("Pod", "default"),
            f"uid-{pod.name}",
        )
        self.pods[pod.name] = problem

    @property
    def refused(self) -> set[str]:
        return {name for name, problem in self.pods.items() if problem}


def set_answers(api: FakeApi, answers: dict[str, Answered]) -> None:
    api.errors = {
        name: failure(answer) for name, answer in answers.items() if answer != TAKEN
    }


@asynccontextmanager
async def answered(
    answers: dict[str, Answered],
) -> AsyncIterator[tuple[NodeLedger, FakeApi, Told]]:
    """An annotator that has sent a patch of each pod, and has these answers."""
    pods = [pod(name, [chip], chip + 1) for chip, name in enumerate(answers)]
    now, api, told = current(*pods), FakeApi(*pods), Told()
    set_answers(api, answers)
    for chip, name in enumerate(answers):
        now.mounts_for(name, chip)

    def tell_node(error: KubeError | None) -> None:
        told.node = error

    annotator = annotator_of(now, api, on_outcome=tell_node, on_pod=told.tell)
    async with in_background(annotator.run()):
        await asyncio.sleep(SETTLED_S)
        yield now, api, told


def is_of_node(answers: Iterable[Answered], *, is_any_taken: bool) -> bool:
    """Whether the answers to all pods are the node's problem."""
    failed = [answer for answer in answers if answer != TAKEN]
    is_unclear = bool(failed) and not is_any_taken
    return LACKS_RIGHT in failed or (
        is_unclear and (len(failed) > 1 or failed[0] in OF_NODE)
    )


def of_pods(answers: Mapping[str, Answered], *, is_any_taken: bool) -> set[str]:
    """The pods whose own problem the answers are."""
    own = {*OF_POD, *(OF_NODE if is_any_taken else ())} - {LACKS_RIGHT}
    return {name for name, answer in answers.items() if answer in own}


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("count", "kinds"),
    [(1, ALL), (2, ALL), pytest.param(3, SOME, marks=pytest.mark.long)],
)
async def test_an_answer_is_told_of_the_pod_or_of_the_node(
    count: int, kinds: Sequence[Answered]
) -> None:
    """Each combination of answers, then with one pod more that is annotated.

    One pod whose patch was refused made the agent of its node not ready.
    """
    for combination in product(kinds, repeat=count):
        answers = {f"pod-{number}": each for number, each in enumerate(combination)}
        is_taken = TAKEN in combination
        async with answered(answers) as (now, api, told):
            is_told = told.node is not None
            assert is_told == is_of_node(combination, is_any_taken=is_taken), answers
            assert told.refused == of_pods(answers, is_any_taken=is_taken), answers

            other = pod("other", [7], 99)
            api.pods[other.uid] = other
            now.update(other)
            now.mounts_for("other", 7)
            await asyncio.sleep(SETTLED_S)
            assert (told.node is not None) == (LACKS_RIGHT in combination), answers
            assert told.refused == of_pods(answers, is_any_taken=True), answers


@pytest.mark.looptime
@pytest.mark.parametrize("is_pod", [False, True])
async def test_what_is_told_ends_with_the_refusal_or_the_pod(*, is_pod: bool) -> None:
    for combination in product(SOME, repeat=2):
        answers = {f"pod-{number}": each for number, each in enumerate(combination)}
        is_taken = TAKEN in combination or not is_pod
        async with answered(answers) as (now, api, told):
            for name in [*answers]:
                if is_pod:
                    now.delete(name)
                    del answers[name]
                else:
                    answers[name] = TAKEN
                    set_answers(api, answers)
                await asyncio.sleep(SETTLED_S)
                assert (told.node is not None) == is_of_node(
                    answers.values(), is_any_taken=is_taken
                ), (combination, answers)
                assert told.refused == of_pods(answers, is_any_taken=is_taken)

            written = {api.written(name)["predicate-time"] for name in answers}
            assert written == (set() if is_pod else {SERVED})


@pytest.mark.looptime
async def test_a_patch_that_has_to_be_sent_again_is_told_until_none_is_left() -> None:
    first, second = pod("first", [0], 1), pod("second", [1], 2)
    now, api, told = current(first, second), FakeApi(first, second), Told()
    api.refused = {first.name, second.name}
    outcomes: list[KubeError | None] = []
    annotator = annotator_of(now, api, on_outcome=outcomes.append, on_pod=told.tell)
    async with in_background(annotator.run()):
        await asyncio.sleep(1)
        before = set(outcomes)
        now.mounts_for(first.name, 0)
        now.mounts_for(second.name, 1)
        await asyncio.sleep(20)
        both = str(outcomes[-1]), told.refused
        api.refused = {second.name}
        await asyncio.sleep(20)
        one = outcomes[-1], told.refused
        now.delete(second.name)
        await asyncio.sleep(20)

    assert before == {None}
    assert both == ("a webhook denies the patch of first", set())
    assert one == (None, {"second"})
    assert (outcomes[-1], told.refused) == (None, set())


@pytest.mark.looptime
async def test_patches_of_a_refused_pod_go_on_with_back_off() -> None:
    async with answered({"large": OF_POD[0], "fine": TAKEN}) as (_, api, told):
        sent = api.asked.count("large")
        await asyncio.sleep(10 * LONGEST_PAUSE_S)

    assert told.refused == {"large"}
    assert 10 <= api.asked.count("large") - sent <= 20


@pytest.mark.looptime
async def test_a_pod_whose_patch_is_refused_holds_up_no_other() -> None:
    train, *others = (pod(f"pod-{chip}", [chip], chip + 1) for chip in range(4))
    now, api = current(train, *others), FakeApi(train, *others)
    api.refused.add(train.name)
    now.mounts_for(train.name, 0)
    annotator = annotator_of(now, api)
    async with in_background(annotator.run()):
        await asyncio.sleep(60)

        for chip, other in enumerate(others, start=1):
            now.mounts_for(other.name, chip)
            await asyncio.sleep(0.1)
        written = [api.written(other.name)["predicate-time"] for other in others]
        api.refused.clear()
        await asyncio.sleep(10)

    assert written == [SERVED, SERVED, SERVED]
    assert api.written(train.name)["predicate-time"] == SERVED


@pytest.mark.looptime
async def test_a_patch_that_hangs_is_not_overtaken_by_its_successor() -> None:
    slow, train = pod("slow", [0], 1), pod("train", [1], 2)
    now, api = current(slow, train), FakeApi(slow, train)
    api.refused.add(train.name)
    under_way: list[str] = []
    most = 0

    async def send(patch: Patch) -> NpuPod | None:
        nonlocal most
        under_way.append(patch.name)
        most = max(most, under_way.count(patch.name))
        await asyncio.sleep(9 if patch.name == "slow" else 0)
        under_way.remove(patch.name)
        return await api.send(patch)

    now.mounts_for("slow", 0)
    now.mounts_for("train", 1)
    annotator = annotator_of(now, api, send=send)
    async with in_background(annotator.run()):
        await asyncio.sleep(30)

    assert most == 1
    assert api.written("slow")["predicate-time"] == SERVED


async def test_an_answer_that_comes_late_does_not_bring_back_what_has_ended() -> None:
    train, gone = pod("train", [0], 1), pod("gone", [1], 2)
    now, api = current(train, gone), FakeApi(train, gone)
    now.mounts_for("train", 0)
    now.mounts_for("gone", 1)

    async def send(patch: Patch) -> NpuPod | None:
        answer = await api.send(patch)
        if patch.name == "gone":
            now.delete("gone")
        else:
            now.update(replace(train, phase="Succeeded"))
        return answer

    await annotator_of(now, api, send=send).run_once()

    assert {uid: each.phase for uid, each in now.ledger.pods.items()} == {
        "uid-train": "Succeeded"
    }


@pytest.mark.looptime
async def test_no_pod_gives_a_chip_up_to_one_that_may_have_been_patched() -> None:
    """The answer was lost, and no watch has told yet."""
    before, after = pod("a", [2], 1), pod("b", [2], 2)
    now, api = current(before, after), FakeApi(before, after)
    slots = {
        uid: replace(slot, chips=1 << chip)
        for (uid, slot), chip in zip(now.ledger.slots.items(), (0, 2), strict=True)
    }
    now.replace(replace(now.ledger, slots=slots))
    annotator = annotator_of(now, api)
    patch = Patch(
        uid="uid-b", namespace="default", name="b", resource=RESOURCE, annotations={}
    )
    annotator._delays["uid-b"] = _Delay(
        backoff=Backoff(), until_s=5.0, patch=patch, error=KubeError(), since_s=0.0
    )

    at_once = await annotator.run_once()
    await asyncio.sleep(6)
    later = await annotator.run_once()

    assert (at_once, later) == (0, 1)


async def test_what_was_right_is_written_again_once_it_is_not() -> None:
    train, other = pod("train", [0, 1]), pod("other", [2])
    now, api, host_ips = current(train, other), FakeApi(train, other), ["10.0.0.1"]
    annotator = annotator_of(now, api, host_ip=lambda: host_ips[-1])
    now.mounts_for("train", 0, 1)
    assert [await annotator.run_once(), await annotator.run_once()] == [1, 0]

    right = api.pods["uid-train"]
    edited = {**right.annotations, "huawei.com/kltDev": "Ascend910-7"}
    now.update(replace(right, annotations=edited))
    assert [await annotator.run_once(), await annotator.run_once()] == [1, 0]
    host_ips.append("10.0.0.2")
    assert [await annotator.run_once(), await annotator.run_once()] == [1, 0]
    now.mounts_for("other", 2)
    assert [await annotator.run_once(), await annotator.run_once()] == [1, 0]

    assert [(patch.name, len(patch.annotations)) for patch in api.patches] == [
        ("train", 4),
        ("train", 1),
        ("train", 1),
        ("other", 4),
    ]
