"""What jobs say about faults of their chips: all of the small tables."""

from collections.abc import Mapping
from itertools import product

import pytest

from extender.gang import fault_policy
from extender.gang.fault_policy import FaultPolicy, Switch
from kube.objects import Meta, Pod, PodSpec
from scheduler_core.rescheduling.ladder import Rung

#: {key: values of a job that says something else or nothing}
SWITCHES = (None, "off", "grace", "force", "external-grace", "external-force", "Grace")
BY_POD = (None, "on", "off", "true")
BY_PROCESS = (None, "on", "pause", "off", "On")
PATHS = (None, "pod", "job")
POD, JOB = Rung.PODS, Rung.JOB


def texts_of(
    switch: str | None, by_pod: str | None, by_process: str | None, path: str | None
) -> Mapping[str, str]:
    texts = {
        "fault-scheduling": switch,
        "pod-rescheduling": by_pod,
        "process-recover-enable": by_process,
        "huawei.com/recover_policy_path": path,
    }
    return {key: text for key, text in texts.items() if text is not None}


def policy(**texts: str) -> FaultPolicy:
    """The policy of a job of one pod; `_` stands for `-` in keys."""
    named = {key.replace("_", "-"): text for key, text in texts.items()}
    return fault_policy.policy_of([named])


@pytest.mark.parametrize("said", list(product(SWITCHES, BY_POD, BY_PROCESS, PATHS)))
def test_each_combination_of_labels_has_its_rungs_or_moves_nothing(
    said: tuple[str | None, ...],
) -> None:
    switch, by_pod, by_process, path = said

    found = fault_policy.policy_of([texts_of(*said)])

    if switch in {None, "off"}:
        assert found == FaultPolicy()
        return
    is_known = (
        switch in {"grace", "force"}
        and by_pod != "true"
        and by_process != "On"
        and path != "job"
    )
    assert bool(found.problem) is not is_known
    assert found.switch is (Switch(switch) if is_known else Switch.OFF)
    if is_known:
        never_more = by_process == "on" or path == "pod"
        expected = (POD, JOB) if by_pod == "on" else (JOB,)
        assert found.rungs == ((POD,) if never_more else expected)


@pytest.mark.parametrize(
    ("texts", "problem"),
    [
        (
            {"fault_scheduling": "Grace"},
            "fault-scheduling: expected grace or force or off, found 'Grace'",
        ),
        (
            {"fault_scheduling": "external-force"},
            "fault-scheduling=external-force is not served yet: others move the job",
        ),
        (
            {"fault_scheduling": "grace", "ProcessRecoverStrategy": "anything"},
            "ProcessRecoverStrategy is not served yet: a platform moves the job",
        ),
        (
            {"fault_scheduling": "grace", "pod_rescheduling": "yes"},
            "pod-rescheduling: expected on or off, found 'yes'",
        ),
    ],
)
def test_a_value_that_moves_nothing_is_told(
    texts: dict[str, str], problem: str
) -> None:
    assert (policy(**texts).problem, policy(**texts).switch) == (problem, Switch.OFF)


def test_what_has_no_effect_yet_is_told_and_its_default_is_not() -> None:
    asking = {"fault-scheduling": "force", "subHealthyStrategy": "hotSwitch"}
    asking |= {"fault-retry-times": "3", "recover-strategy": "retry,dump"}
    idle = {"fault-scheduling": "force", "subHealthyStrategy": "ignore"}
    idle |= {"fault-retry-times": "0"}

    assert fault_policy.policy_of([asking]).remarks == (
        "fault-retry-times='3' is not served yet",
        "recover-strategy='retry,dump' is not served yet",
        "subHealthyStrategy='hotSwitch' is not served yet",
    )
    assert fault_policy.policy_of([asking]).switch is Switch.FORCE
    assert fault_policy.policy_of([idle]).remarks == ()


def test_pods_that_say_nothing_follow_those_that_say_something() -> None:
    found = fault_policy.policy_of([{}, {"fault-scheduling": "grace"}, {}])

    assert (found.switch, found.problem) == (Switch.GRACE, "")


def test_pods_that_contradict_each_other_do_not_move() -> None:
    said = [{"fault-scheduling": "grace"}, {"fault-scheduling": "force"}]

    assert fault_policy.policy_of(said) == FaultPolicy(
        problem="fault-scheduling: expected one value for all pods of the job, found "
        "'force' and 'grace'"
    )


def test_contradictions_are_no_news_of_a_job_that_asks_for_nothing() -> None:
    said = [{"pod-rescheduling": "on"}, {"pod-rescheduling": "off"}]

    assert fault_policy.policy_of(said) == FaultPolicy()


def test_contradictions_of_what_has_no_effect_keep_no_pod_from_moving() -> None:
    said = [{"fault-scheduling": "grace", "fault-retry-times": n} for n in "12"]

    assert fault_policy.policy_of(said) == FaultPolicy(switch=Switch.GRACE)


def test_the_pod_group_counts_and_what_pods_say_is_told() -> None:
    """MindCluster joins the two, and `grace|force` is no value (trap R18)."""
    said = [{"fault-scheduling": "grace"}]

    found = fault_policy.policy_of(said, {"fault-scheduling": "force"})

    assert found == FaultPolicy(
        switch=Switch.FORCE,
        remarks=(
            "fault-scheduling='force' of the PodGroup counts, not 'grace' of pods",
        ),
    )


def test_a_pod_group_that_is_silent_leaves_it_to_the_pods() -> None:
    said = [{"fault-scheduling": "grace", "pod-rescheduling": "on"}]

    assert fault_policy.policy_of(said, {}) == fault_policy.policy_of(said)


def labelled(scheduler_name: str = "") -> Pod:
    labels = {"fault-scheduling": "grace", "app": "x"}
    notes = {"huawei.com/recover_policy_path": "pod", "fault-scheduling": "force"}
    meta = Meta(name="a", namespace="ns", uid="u", labels=labels, annotations=notes)
    return Pod(metadata=meta, spec=PodSpec(scheduler_name=scheduler_name))


def test_labels_and_annotations_are_read_and_labels_count_first() -> None:
    found = fault_policy.read_wishes(labelled(), None)

    assert found is not None
    assert found.texts == {
        "fault-scheduling": "grace",
        "huawei.com/recover_policy_path": "pod",
    }
    assert found.alone is not None
    assert found.alone.membership.job == "Pod/ns/a"
    assert not found.is_of_volcano


def test_a_pod_of_volcano_is_known_by_its_scheduler() -> None:
    found = fault_policy.read_wishes(labelled("volcano"), None)

    assert found is not None
    assert found.is_of_volcano


def test_most_pods_say_nothing() -> None:
    assert fault_policy.read_wishes(Pod(metadata=Meta(labels={"a": "b"})), None) is None
