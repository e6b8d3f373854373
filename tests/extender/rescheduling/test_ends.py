"""What is common to all controllers: a row for each policy, and an answer to all."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.rescheduling.ends import ENDS, End, Reach, Replacement
from extender.rescheduling.policies import policies_of
from tests.extender.rescheduling import test_ends_of_jobs, test_ends_of_operators
from tests.extender.rescheduling.controllers import (
    ALONE,
    OVER,
    Case,
    case,
    ends,
    job,
    resource,
)


def unsure(kind: str) -> End:
    text = f"the extender does not know whether {kind} makes the pod again"
    return End(replacement=Replacement.UNKNOWN, reason=text)


CASES: dict[str, tuple[Case, End]] = {
    "a pod without a controller is not made again": (
        case(),
        ends("no controller makes the pod again; run it by a Job"),
    ),
    "an unknown controller may make the pod again": (
        case(resource("example.com/v1", "Trainer")),
        unsure("Trainer"),
    ),
    "of an unknown controller nothing else is read": (
        case(resource("example.com/v1", "Trainer", status="Failed")),
        unsure("Trainer"),
    ),
    "a controller of a known kind in another group is unknown": (
        case(resource("example.com/v1", "Job")),
        unsure("Job"),
    ),
    "an object without kind is unknown": (case({}), unsure("its controller")),
    "a Job of another manager is unknown": (
        case(job(managedBy="kueue.x-k8s.io/multikueue")),
        unsure("Job"),
    ),
    "a JobSet of another manager makes its Jobs unknown": (
        case(
            job(),
            resource(
                "jobset.x-k8s.io/v1alpha2",
                "JobSet",
                spec={"managedBy": "kueue.x-k8s.io/multikueue"},
            ),
        ),
        unsure("JobSet"),
    ),
    "a Job that names its usual manager is known": (
        case(job(managedBy="kubernetes.io/job-controller")),
        ALONE,
    ),
    "a controller that is being deleted makes no pod": (
        case(job() | {"metadata": {"deletionTimestamp": "2026-11-28T08:00:00Z"}}),
        ends("Job has ended or is being deleted"),
    ),
    "a Job that has ended makes no pod": (
        case(job({"conditions": [OVER]})),
        ends("Job has ended or is being deleted"),
    ),
    "a Job that is about to fail makes no pod": (
        case(job({"conditions": [OVER | {"type": "FailureTarget"}]})),
        ends("Job has ended or is being deleted"),
    ),
    "a condition that is not true ends nothing": (
        case(job({"conditions": [OVER | {"status": "False"}]})),
        ALONE,
    ),
    # Values of another type
    "a controller that is no object": (
        case("Job"),
        ends("controller: expected an object, found 'Job'"),
    ),
    "a number that is a text": (
        case(job(backoffLimit="6")),
        ends("Job.spec.backoffLimit: expected a whole number, found '6'"),
    ),
    "a number below zero": (
        case(job(backoffLimit=-1)),
        ends("Job.spec.backoffLimit: expected a number of at least 0, found -1"),
    ),
    "a list that is an object": (
        case(job(podFailurePolicy={"rules": {}})),
        ends("Job.spec.podFailurePolicy.rules: expected a list, found {}"),
    ),
}
ALL = CASES | test_ends_of_jobs.CASES | test_ends_of_operators.CASES


@pytest.mark.parametrize("name", CASES)
def test_an_eviction_does_to_a_job_what_its_controller_does(name: str) -> None:
    pods, end = CASES[name]

    assert pods.end == end


def test_each_row_of_the_table_has_a_case() -> None:
    found = {
        (policy.kind, policy.name)
        for pods, _ in ALL.values()
        for policy in policies_of(pods.controllers, pods.pod, pods.count)
    }

    assert found == {(kind, name) for kind, rows in ENDS.items() for name in rows}


def test_the_table_has_a_reason_where_a_job_may_not_survive_and_nowhere_else() -> None:
    rows = [end for rows in ENDS.values() for end in rows.values()]

    assert all(is_whole(end) for end in rows)


def is_whole(end: End) -> bool:
    """Whether an end has a reason if it needs one, and labels if it has a group."""
    has_reason = bool(end.reason) == (end.replacement is not Replacement.YES)
    return has_reason and bool(end.group) == (end.reach is Reach.GROUP)


def test_pods_are_evicted_unless_they_are_not_made_again() -> None:
    assert [some for some in Replacement if End(replacement=some).can_evict] == [
        Replacement.YES,
        Replacement.UNKNOWN,
    ]


#: Fields that are there or not, whatever their value is.
PRESENT = (
    "completions",
    "deletionTimestamp",
    "gcsFaultToleranceOptions",
    "terminalState",
)


def changes(value: Any, wrong: object) -> Iterator[Any]:
    """Copies of a value in which one of its parts is wrong."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            if key not in PRESENT:
                yield {**value, key: wrong}
                yield from ({**value, key: each} for each in changes(part, wrong))
    elif isinstance(value, list):
        for index, part in enumerate(value):
            for each in (wrong, *changes(part, wrong)):
                yield [*value[:index], each, *value[index + 1 :]]


@pytest.mark.parametrize("wrong", [True, 1.5, [["wrong"]]], ids=str)
def test_a_field_of_another_type_lets_nobody_be_evicted(wrong: object) -> None:
    """Or it is none that decides."""
    count = 0
    for pods, end in ALL.values():
        for changed in changes([*pods.controllers], wrong):
            count += 1
            found = replace(pods, controllers=changed).end
            assert found == end or found.replacement is Replacement.NO, changed

    assert count > 500


KEYS = sorted(
    {
        *("apiVersion", "kind", "metadata", "spec", "status", "conditions", "type"),
        *("labels", "annotations", "managedBy", "runPolicy", "backoffLimit", "failed"),
        *("podFailurePolicy", "rules", "action", "onExitCodes", "operator", "values"),
        *("onPodConditions", "backoffLimitPerIndex", "failurePolicy", "maxRestarts"),
        *("policies", "tasks", "event", "events", "exitCode", "maxRetry", "state"),
        *("pytorchReplicaSpecs", "Worker", "restartPolicy", "workerGroupSpecs"),
        *("leaderWorkerTemplate", "failedIndexes", "fault-retry-times", "phase"),
    }
)
TEXTS = st.one_of(
    st.text(max_size=5), st.sampled_from(["Ignore", "In", "0-2", "*", "9" * 5000])
)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), TEXTS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(st.sampled_from(KEYS), TEXTS), inner, max_size=5),
    ),
    max_leaves=20,
)
KINDS = sorted(
    {
        (str(each["apiVersion"]), str(each["kind"]))
        for pods, _ in ALL.values()
        for each in pods.controllers
        if isinstance(each, Mapping) and "kind" in each
    }
)
OBJECTS = st.builds(
    lambda identity, fields: (
        dict(zip(("apiVersion", "kind"), identity, strict=True)) | fields
    ),
    st.sampled_from(KINDS),
    st.dictionaries(st.sampled_from(["metadata", "spec", "status"]), JSON),
)
MARKS = st.dictionaries(
    st.sampled_from(sorted({key for pods, _ in ALL.values() for key in pods.marks})),
    TEXTS,
)


@pytest.mark.property
@settings(max_examples=100)
@given(st.lists(st.one_of(OBJECTS, JSON), max_size=3), MARKS, st.integers(1, 9))
def test_whatever_the_api_server_has_there_is_an_answer(
    controllers: list[Any], marks: dict[str, str], count: int
) -> None:
    assert is_whole(Case(controllers, marks, count).end)
