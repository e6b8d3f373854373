"""What the API server does to a Job by itself; nobody has to run it.

All are suspended, so that a controller has nothing to do where there is one.
"""

from typing import Any

import pytest

from tests.contract.apiserver.client import Api, Object, problem

pytestmark = pytest.mark.contract

_POD = {
    "restartPolicy": "Never",
    "containers": [
        {
            "name": "main",
            "image": "example/image:1",
            "resources": {"limits": {"cpu": "1000m"}},
        }
    ],
}
_INDEXED = {"completionMode": "Indexed", "completions": 2, "parallelism": 2}
_DISRUPTED = {"onPodConditions": [{"type": "DisruptionTarget"}]}


def job(name: str = "j", **spec: Any) -> Object:
    template = {"spec": _POD}
    return {
        "metadata": {"name": name},
        "spec": {"suspend": True, "template": template, **spec},
    }


def path(api: Api, *steps: str) -> str:
    whole = f"/apis/batch/v1/namespaces/{api.namespace}/jobs"
    return "/".join([whole, *steps])


async def made(api: Api, **spec: Any) -> Object:
    code, found = await api.post(path(api), job(**spec))
    assert code == 201, found
    return found


async def test_a_job_gets_defaults_and_a_selector(api: Api) -> None:
    found = await made(api)

    uid, spec = found["metadata"]["uid"], found["spec"]
    batch = "batch.kubernetes.io"
    assert (found["metadata"]["generation"], found["status"]) == (1, {})
    assert spec["selector"] == {"matchLabels": {f"{batch}/controller-uid": uid}}
    template = spec["template"]
    assert template["metadata"]["labels"] == {
        "controller-uid": uid,
        "job-name": "j",
        f"{batch}/controller-uid": uid,
        f"{batch}/job-name": "j",
    }
    assert {
        key: spec[key] for key in sorted(spec) if not isinstance(spec[key], dict)
    } == {
        "backoffLimit": 6,
        "completionMode": "NonIndexed",
        "completions": 1,
        "manualSelector": False,
        "parallelism": 1,
        "podReplacementPolicy": "TerminatingOrFailed",
        "suspend": True,
    }
    assert template["spec"] == {
        "containers": [
            {
                "image": "example/image:1",
                "imagePullPolicy": "IfNotPresent",
                "name": "main",
                "resources": {"limits": {"cpu": "1"}},
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
            }
        ],
        "dnsPolicy": "ClusterFirst",
        "restartPolicy": "Never",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "terminationGracePeriodSeconds": 30,
    }


async def test_a_policy_of_failures_makes_ends_be_awaited(api: Api) -> None:
    rules = [{"action": "Ignore", **_DISRUPTED}]

    found = await made(api, podFailurePolicy={"rules": rules}, parallelism=3)

    spec = found["spec"]
    assert (spec["podReplacementPolicy"], spec["parallelism"]) == ("Failed", 3)
    assert "completions" not in spec
    patterns = spec["podFailurePolicy"]["rules"][0]["onPodConditions"]
    assert patterns == [{"type": "DisruptionTarget", "status": "True"}]


async def test_a_job_takes_the_labels_of_its_template(api: Api) -> None:
    template = {"metadata": {"labels": {"app": "train"}}, "spec": _POD}

    found = await made(api, template=template)

    labels = found["spec"]["template"]["metadata"]["labels"]
    assert (labels["app"], len(labels)) == ("train", 5)
    assert found["metadata"]["labels"] == labels


#: {what is wrong: (part of the spec, what the refusal says of it)}
REFUSED: dict[str, tuple[Object, str]] = {
    "pods that restart for ever": (
        {"template": {"spec": {**_POD, "restartPolicy": "Always"}}},
        (
            "spec.template.spec.restartPolicy: Required value: valid values: "
            '"OnFailure", '
            '"Never"'
        ),
    ),
    "no restart policy": (
        {"template": {"spec": {"containers": _POD["containers"]}}},
        (
            "spec.template.spec.restartPolicy: Required value: valid values: "
            '"OnFailure", '
            '"Never"'
        ),
    ),
    "a restart in place, and a policy of failures": (
        {
            "podFailurePolicy": {"rules": [{"action": "Count", **_DISRUPTED}]},
            "template": {"spec": {**_POD, "restartPolicy": "OnFailure"}},
        },
        (
            'spec.template.spec.restartPolicy: Invalid value: "OnFailure": only '
            '"Never" is '
            "supported when podFailurePolicy is specified"
        ),
    ),
    "an unknown mode": (
        {"completionMode": "Ordered"},
        (
            'spec.completionMode: Unsupported value: "Ordered": supported values: '
            '"NonIndexed", "Indexed"'
        ),
    ),
    "indexes without a number": (
        {"completionMode": "Indexed", "parallelism": 2},
        "spec.completions: Required value: when completion mode is Indexed",
    ),
    "more than all pods at once": (
        {**_INDEXED, "parallelism": 100_001},
        (
            "spec.parallelism: Invalid value: 100001: must be less than or equal to "
            "100000 "
            "when completion mode is Indexed"
        ),
    ),
    "fewer than no pods": (
        {"parallelism": -1},
        "spec.parallelism: Invalid value: -1: must be greater than or equal to 0",
    ),
    "replacement before the end, and a policy of failures": (
        {
            "podFailurePolicy": {"rules": [{"action": "Count", **_DISRUPTED}]},
            "podReplacementPolicy": "TerminatingOrFailed",
        },
        (
            "spec.podReplacementPolicy: Unsupported value: "
            '"TerminatingOrFailed": supported values: "Failed"'
        ),
    ),
    "an unknown replacement": (
        {"podReplacementPolicy": "Soon"},
        (
            'spec.podReplacementPolicy: Unsupported value: "Soon": supported values: '
            '"Failed", "TerminatingOrFailed"'
        ),
    ),
    "an index that fails where indexes have no limit": (
        {"podFailurePolicy": {"rules": [{"action": "FailIndex", **_DISRUPTED}]}},
        (
            'spec.podFailurePolicy.rules[0].action: Invalid value: "FailIndex": '
            "requires "
            "the backoffLimitPerIndex to be set"
        ),
    ),
    "an unknown action": (
        {"podFailurePolicy": {"rules": [{"action": "Forget", **_DISRUPTED}]}},
        (
            'spec.podFailurePolicy.rules[0].action: Unsupported value: "Forget": '
            "supported "
            'values: "Count", "FailIndex", "FailJob", "Ignore"'
        ),
    ),
    "a rule without a cause": (
        {"podFailurePolicy": {"rules": [{"action": "Count"}]}},
        (
            "spec.podFailurePolicy.rules[0]: Invalid value: specifying one of "
            "OnExitCodes "
            "and OnPodConditions is required"
        ),
    ),
    "a rule with two causes": (
        {
            "podFailurePolicy": {
                "rules": [
                    {
                        "action": "Count",
                        "onExitCodes": {"operator": "In", "values": [1]},
                        **_DISRUPTED,
                    }
                ]
            }
        },
        (
            "spec.podFailurePolicy.rules[0]: Invalid value: specifying both "
            "OnExitCodes "
            "and OnPodConditions is not supported"
        ),
    ),
    "an unknown operator": (
        {
            "podFailurePolicy": {
                "rules": [
                    {
                        "action": "Count",
                        "onExitCodes": {"operator": "Above", "values": [1]},
                    }
                ]
            }
        },
        (
            "spec.podFailurePolicy.rules[0].onExitCodes.operator: Unsupported value: "
            '"Above": supported values: "In", "NotIn"'
        ),
    ),
    "no container": (
        {"template": {"spec": {"restartPolicy": "Never", "containers": []}}},
        "spec.template.spec.containers: Required value",
    ),
}


@pytest.mark.parametrize("wrong", REFUSED)
async def test_a_job_is_refused(api: Api, wrong: str) -> None:
    spec, text = REFUSED[wrong]

    _, status = await api.post(path(api), job(**spec))

    assert problem(status) == (422, "Invalid", f'Job.batch "j" is invalid: {text}')


async def test_the_host_name_of_each_pod_has_to_be_one(api: Api) -> None:
    name = "j" * 62
    body = job(name, **_INDEXED)

    _, status = await api.post(path(api), body)

    assert problem(status)[2] == (
        f'Job.batch "{name}" is invalid: metadata.name: Invalid value: "{name}": will '
        f"not able to create pod with invalid DNS label: {name}-1"
    )


async def test_labels_of_another_job_are_refused(api: Api) -> None:
    labels = {"batch.kubernetes.io/job-name": "another"}
    template = {"metadata": {"labels": labels}, "spec": _POD}

    _, status = await api.post(path(api), job(template=template))

    causes = status["details"]["causes"]
    assert "must be 'j'" in causes[0]["message"]
    field = "spec.template.metadata.labels[batch.kubernetes.io/job-name]"
    assert (status["code"], causes[0]["field"]) == (422, field)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"completionMode": "NonIndexed"}, "spec.completionMode"),
        ({"completions": 3}, "spec.completions"),
        (
            {"podFailurePolicy": {"rules": [{"action": "Count", **_DISRUPTED}]}},
            "spec.podFailurePolicy",
        ),
        ({"template": {"spec": {"hostNetwork": True}}}, "spec.template"),
    ],
)
async def test_most_of_a_job_stays_as_it_is(
    api: Api, changes: Object, field: str
) -> None:
    await made(api, **_INDEXED, podReplacementPolicy="Failed")

    code, status = await api.patch(path(api, "j"), {"spec": changes})

    fields = [cause["field"] for cause in status["details"]["causes"]]
    # The real server names what of a suspended job's template is not free.
    assert code == 422
    assert any(found.startswith(field) for found in fields), fields


async def test_a_job_of_indexes_grows_and_shrinks(api: Api) -> None:
    await made(api, **_INDEXED)

    code, found = await api.patch(
        path(api, "j"), {"spec": {"completions": 4, "parallelism": 4}}
    )

    assert (code, found["spec"]["completions"]) == (200, 4)
    assert found["metadata"]["generation"] == 2


async def test_a_suspended_job_can_be_sent_elsewhere(api: Api) -> None:
    await made(api)
    spec = {"template": {"spec": {"nodeSelector": {"zone": "a"}}}}

    code, found = await api.patch(path(api, "j"), {"spec": spec})

    assert code == 200, found
    assert found["spec"]["template"]["spec"]["nodeSelector"] == {"zone": "a"}


async def test_a_status_is_written_by_itself_only(api: Api) -> None:
    await made(api)

    _, plain = await api.patch(path(api, "j"), {"status": {"ready": 0}})
    _, own = await api.patch(
        path(api, "j", "status"),
        {"status": {"terminating": 0}, "spec": {"suspend": False}},
    )

    assert "ready" not in plain["status"]
    assert own["status"]["terminating"] == 0
    assert own["spec"]["suspend"]


async def test_a_deletion_that_says_nothing_of_pods_is_warned_of(api: Api) -> None:
    await made(api)

    code, _ = await api.delete(path(api, "j"))

    assert (code, api.warnings) == (
        200,
        [
            (
                '299 - "child pods are preserved by default when jobs are deleted; set '
                "propagationPolicy=Background to remove them or set "
                'propagationPolicy=Orphan to suppress this warning"'
            )
        ],
    )


async def test_a_deletion_in_the_background_is_over_at_once(api: Api) -> None:
    uid = (await made(api))["metadata"]["uid"]

    code, status = await api.delete(path(api, "j"), {"propagationPolicy": "Background"})
    gone, _ = await api.get(path(api, "j"))

    assert (code, gone, api.warnings) == (200, 404, [])
    assert status["status"] == "Success"
    assert status["details"] == {
        "name": "j",
        "group": "batch",
        "kind": "jobs",
        "uid": uid,
    }


async def test_an_unknown_way_to_delete_is_refused(api: Api) -> None:
    await made(api)

    _, status = await api.delete(path(api, "j"), {"propagationPolicy": "Later"})

    assert problem(status)[2].endswith(
        'propagationPolicy: Unsupported value: "Later": supported values: '
        '"Foreground", "Background", "Orphan", "nil"'
    )
