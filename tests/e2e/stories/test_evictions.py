"""One pod is evicted; its controller ends and makes again what our table says."""

from dataclasses import dataclass
from typing import Any

import pytest

from extender.rescheduling.ends import End, Reach, Replacement
from extender.rescheduling.policies import end_of
from kube.objects import Meta
from sandbox.apiclient import Object
from tests.e2e.stories.kinds import (
    DEPLOYMENTS,
    JOB_SETS,
    JOBS,
    PODS,
    STATEFUL_SETS,
    WORKER_SETS,
    deployment,
    job,
    job_set,
    stateful_set,
    worker_set,
)
from tests.e2e.stories.lives import JOBSET, LWS
from tests.e2e.stories.story import Story

pytestmark = pytest.mark.asyncio(loop_scope="session")

#: A Job makes a pod again after 10 s.
_MADE_WITHIN_S = 13.0
_IGNORE = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A job of three pods, and what the eviction of one of them does to it."""

    path: str
    body: Object
    job: str
    rank: str = "1"
    reach: Reach = Reach.POD
    replacement: Replacement = Replacement.YES


def of_job(
    reach: Reach = Reach.POD,
    replacement: Replacement = Replacement.YES,
    *rules: Object,
    **spec: Any,
) -> Cell:
    """A Job with such rules of a podFailurePolicy; our kubelets end pods by SIGKILL."""
    if rules:
        spec["podFailurePolicy"] = {"rules": [*rules]}
    body = job("train", 3, **spec)
    return Cell(
        path=JOBS, body=body, job="Job train", reach=reach, replacement=replacement
    )


def of_set(
    reach: Reach,
    replacement: Replacement,
    policy: Object | None,
    backoff_limit: int = 0,
) -> Cell:
    """A JobSet of three Jobs, with this failurePolicy."""
    body = job_set("train", 3, 1, backoffLimit=backoff_limit)
    body["spec"]["failurePolicy"] = policy
    if policy is None:
        del body["spec"]["failurePolicy"]
    return Cell(
        path=JOB_SETS,
        body=body,
        job="JobSet train",
        rank="train/1/0",
        reach=reach,
        replacement=replacement,
    )


def of_group(reach: Reach, policy: str, rank: str) -> Cell:
    body = worker_set("serve", 1, 3, restartPolicy=policy)
    return Cell(
        path=WORKER_SETS,
        body=body,
        job="LeaderWorkerSet serve/0",
        rank=rank,
        reach=reach,
    )


def on_exit(action: str) -> Object:
    return {"action": action, "onExitCodes": {"operator": "In", "values": [137]}}


CELLS = {
    "Job, counted": of_job(),
    "Job, Ignore": of_job(Reach.POD, Replacement.YES, _IGNORE, backoffLimit=0),
    "Job, backoffLimit": of_job(Reach.JOB, Replacement.NO, backoffLimit=0),
    "Job, FailJob": of_job(Reach.JOB, Replacement.NO, on_exit("FailJob"), _IGNORE),
    "Job, backoffLimitPerIndex": of_job(
        Reach.POD, Replacement.NO, backoffLimitPerIndex=0
    ),
    "Job, FailIndex": of_job(
        Reach.POD, Replacement.NO, on_exit("FailIndex"), backoffLimitPerIndex=3
    ),
    "Job, maxFailedIndexes": of_job(
        Reach.JOB, Replacement.NO, backoffLimitPerIndex=0, maxFailedIndexes=0
    ),
    "JobSet, counted": of_set(Reach.POD, Replacement.YES, {"maxRestarts": 0}, 1),
    "JobSet, failurePolicy": of_set(Reach.JOB, Replacement.NO, None),
    "JobSet, RestartJobSet": of_set(Reach.JOB, Replacement.YES, {"maxRestarts": 1}),
    "JobSet, maxRestarts": of_set(Reach.JOB, Replacement.NO, {"maxRestarts": 0}),
    "JobSet, RestartJobSetAndIgnoreMaxRestarts": of_set(
        Reach.JOB,
        Replacement.YES,
        {"maxRestarts": 0, "rules": [{"action": "RestartJobSetAndIgnoreMaxRestarts"}]},
    ),
    "JobSet, FailJobSet": of_set(
        Reach.JOB,
        Replacement.NO,
        {"maxRestarts": 3, "rules": [{"action": "FailJobSet"}]},
    ),
    "LeaderWorkerSet, RecreateGroupOnPodRestart": of_group(
        Reach.GROUP, "RecreateGroupOnPodRestart", "1"
    ),
    "LeaderWorkerSet, RecreateGroupAfterStart": of_group(
        Reach.GROUP, "RecreateGroupAfterStart", "1"
    ),
    "LeaderWorkerSet, None": of_group(Reach.POD, "None", "1"),
    "LeaderWorkerSet, leader": of_group(Reach.GROUP, "None", "0"),
    "ReplicaSet, any": Cell(
        path=DEPLOYMENTS,
        body=deployment("serve", 3, 3),
        job="Deployment serve",
        rank="",
    ),
    "StatefulSet, any": Cell(
        path=STATEFUL_SETS,
        body=stateful_set("store", 3, 3),
        job="StatefulSet store",
        rank="",
    ),
}


@pytest.mark.parametrize("name", CELLS)
async def test_an_eviction_does_what_the_table_says(story: Story, name: str) -> None:
    cell = CELLS[name]
    await story.create(cell.path, cell.body)
    await story.runs(cell.job, 3)
    before = await living(story)
    pod = before[story.name(cell.job, cell.rank)]
    end = await judge(story, pod)
    assert (end.reach, end.replacement) == (cell.reach, cell.replacement)

    await story.evict(pod["metadata"]["name"])

    gone = {uid(each) for each in before.values() if ends_with(each, pod, end)}
    await story.until(lambda: are_gone(story, gone), "the pods that are to end")
    if end.replacement is Replacement.YES:
        await story.runs(cell.job, 3)
    await story.goes_on(_MADE_WITHIN_S)
    after = await living(story)
    assert {uid(each) for each in before.values()} - {*map(uid, after.values())} == gone
    assert len(after) == (3 if end.replacement is Replacement.YES else 3 - len(gone))


async def living(story: Story) -> dict[str, Object]:
    """{name: pod} of all that neither end nor have ended."""
    return {
        each["metadata"]["name"]: each
        for each in await story.api.items(PODS)
        if "deletionTimestamp" not in each["metadata"]
        and each["status"].get("phase") not in ("Failed", "Succeeded")
    }


async def judge(story: Story, pod: Object) -> End:
    """Return what the table says of the pod, by the objects that are there now."""
    labels, owners = pod["metadata"]["labels"], pod["metadata"]["ownerReferences"]
    owner = next(each for each in owners if each.get("controller"))
    controllers: list[Object] = []
    if f"{LWS}/name" in labels:
        name = labels[f"{LWS}/name"]
        controllers = [await story.api.get(f"{WORKER_SETS}/{name}")]
    elif owner["kind"] == "Job":
        controllers = [await story.api.get(f"{JOBS}/{owner['name']}")]
        if f"{JOBSET}/jobset-name" in labels:
            name = labels[f"{JOBSET}/jobset-name"]
            controllers.append(await story.api.get(f"{JOB_SETS}/{name}"))
    else:
        controllers = [owner]
    notes = pod["metadata"].get("annotations")
    return end_of(controllers, Meta(labels=labels, annotations=notes))


def uid(pod: Object) -> str:
    return str(pod["metadata"]["uid"])


def ends_with(other: Object, pod: Object, end: End) -> bool:
    """Whether a pod ends with the one that is evicted."""
    one, two = other["metadata"]["labels"], pod["metadata"]["labels"]
    match end.reach:
        case Reach.POD:
            return uid(other) == uid(pod)
        case Reach.GROUP:
            return all(one.get(key) == two.get(key) for key in end.group)
        case Reach.JOB:
            return True


async def are_gone(story: Story, uids: set[str]) -> bool:
    return not uids & {uid(each) for each in await story.api.items(PODS)}
