"""The admission policies speak of the keys that the programs write, and of no others.

What they refuse is asked of a real API server: tests/e2e/test_policies.py, and
tests/e2e/test_writers.py for each installation.
"""

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.report import content
from scheduler_core.products import lookup
from scheduler_core.products.table import PRODUCTS
from scheduler_core.wire import annotations, deviceinfo, job_annotations
from tests.agent.reporting import ONE
from tests.daemonset import installations
from tests.daemonset.installations import FORMS, INSTALLATIONS, WRITERS
from tests.daemonset.rendered import (
    DAEMONSET,
    Object,
    kustomize,
    needs_kubectl,
    of_kind,
    unknown_fields,
)

FOLDER = DAEMONSET / "components" / "policies"
#: As MindCluster's device plugin calls it on other hardware.
CONFIGURATIONS = {
    annotations.CONFIGURATION,
    "ascend.kubectl.kubernetes.io/ascend-npu-configuration",
}
MOUNTS = {annotations.ASCEND_REAL, annotations.KLT_DEV}
#: {account: group, resource and verb by which the policies know it}
RIGHTS = {
    "ascend-agent": ("ascend-affinity", "chips", "serve"),
    "ascend-extender": ("ascend-affinity", "chips", "schedule"),
}
RESOURCES = [
    *dict.fromkeys(product.resource for product in PRODUCTS),
    *("huawei.com/Ascend910-4c", "huawei.com/Ascend910-4c.3cpu"),
    *("huawei.com/Ascend310P-2c.1cpu.ndvpp", "huawei.com/npu-core"),
]


def shipped() -> list[Object]:
    return [
        each
        for path in sorted(FOLDER.glob("*.yaml"))
        for each in yaml.safe_load_all(path.read_text())
        if each["kind"].startswith("Validating")
    ]


POLICIES: dict[str, Any] = {
    each["metadata"]["name"]: each["spec"]
    for each in shipped()
    if each["kind"] == "ValidatingAdmissionPolicy"
}
CLAIMS = {
    each["name"]: each["expression"] for each in POLICIES["ascend-claims"]["variables"]
}


def keys(expression: str) -> set[str]:
    """What is quoted in the list that an expression looks into."""
    (listed,) = re.findall(r"\bin \[([^]]+)\]", expression)
    return {*re.findall("'([^']+)'", listed)}


def resource_pattern(expression: str) -> re.Pattern[str]:
    (pattern,) = re.findall(r"matches\('([^']+)'\)", expression)
    return re.compile(pattern)


def test_kubernetes_knows_every_field() -> None:
    assert [unknown_fields(each) for each in shipped()] == [[]] * len(shipped())


def test_every_policy_is_bound_and_refuses() -> None:
    bound = {
        each["metadata"]["name"]: each["spec"]
        for each in shipped()
        if each["kind"] == "ValidatingAdmissionPolicyBinding"
    }

    assert bound == {
        name: {"policyName": name, "validationActions": ["Deny"]} for name in POLICIES
    }
    assert {spec["failurePolicy"] for spec in POLICIES.values()} == {"Fail"}


def test_the_claims_are_those_that_are_written_at_bind_and_after() -> None:
    assert keys(CLAIMS["mounts"]) == MOUNTS
    assert keys(CLAIMS["claims"]) == {
        annotations.ALLOCATED_ON,
        annotations.PREDICATE_TIME,
        *CONFIGURATIONS,
    }
    assert f"k == '{job_annotations.RANK_INDEX}'" in CLAIMS["places"]
    assert keys(CLAIMS["places"]) == {
        job_annotations.DISTRIBUTED_JOB,
        job_annotations.IS_HEALTHY,
        job_annotations.IS_SHARED_TOR,
        job_annotations.SHARED_TOR_IP,
        job_annotations.SUPER_POD_ID,
        job_annotations.SUPER_POD_RANK,
    }


def test_an_agent_may_write_claims_and_mounts() -> None:
    may = POLICIES["ascend-agent-pods"]["validations"][1]["expression"]

    assert keys(may) == {*MOUNTS, annotations.PREDICATE_TIME, *CONFIGURATIONS}
    assert resource_pattern(may) == resource_pattern(CLAIMS["claims"])


@pytest.mark.parametrize("resource", RESOURCES)
def test_every_resource_has_its_claim(resource: str) -> None:
    assert resource_pattern(CLAIMS["claims"]).search(resource)


@pytest.mark.parametrize(
    "key",
    [
        *sorted(MOUNTS | CONFIGURATIONS),
        "huawei.com/schedule_policy",
        "huawei.com/schedule_minAvailable",
        "huawei.com/Ascend910x/y",
        "x/huawei.com/Ascend910",
    ],
)
def test_no_other_key_is_a_claim(key: str) -> None:
    assert not resource_pattern(CLAIMS["claims"]).search(key)


def test_an_agent_may_set_the_marks_of_its_node() -> None:
    """Those of every kind of server, with all that a driver can tell."""
    written: set[str] = set()
    for product in PRODUCTS:
        told = replace(
            ONE,
            product=product,
            chip_name="910B3",
            driver_version="1",
            memory_mb=65536,
            ai_core_count=20,
            addresses=replace(ONE.addresses, super_pod_id=1, server_index=1),
        )
        said = content.node_marks(told)
        written |= {*said.labels, *said.annotations, *said.defaults}
        written |= {lookup.ACCELERATOR_TYPE} if said.accelerator_type else set()

    may = POLICIES["ascend-agent-nodes"]["validations"][1]["expression"]

    assert keys(may) == written


def test_an_agent_may_write_the_configmap_of_its_node() -> None:
    (may,) = POLICIES["ascend-agent-configmaps"]["validations"]

    assert f"'{deviceinfo.configmap_name('')}' + variables.node" in may["expression"]
    assert f"in ['{deviceinfo.CONFIGMAP_NAMESPACE}', " in may["expression"]


@needs_kubectl
def test_the_accounts_are_those_of_the_manifests() -> None:
    named = re.findall(r"\^system:serviceaccount:\[\^:\]\+:([\w-]+)\$", str(POLICIES))

    assert {*named} == of_kind("base", "ServiceAccount").keys()
    assert len(named) == str(POLICIES).count("system:serviceaccount")


@needs_kubectl
@pytest.mark.long
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("installation", INSTALLATIONS)
def test_what_is_installed_holds_the_rights_that_the_policies_ask_for(
    tmp_path: Path, installation: str, form: str
) -> None:
    found = kustomize(installations.write(tmp_path, installation, form))

    asked = re.findall(
        r"group\('([\w-]+)'\)\.resource\('(\w+)'\)\.check\('(\w+)'\)", str(POLICIES)
    )
    assert {*asked} == {*RIGHTS.values()}
    assert [
        (subject["namespace"], subject["name"], right)
        for right in RIGHTS.values()
        for subject in holders(found, *right)
    ] == [
        (FORMS[form], account, right)
        for account, right in RIGHTS.items()
        if account in WRITERS[installation]
    ]
    rendered = {
        each["metadata"]["name"]: each["spec"]
        for each in found
        if each["kind"] == "ValidatingAdmissionPolicy"
    }
    assert rendered == POLICIES


def holders(
    found: Iterable[Object], group: str, resource: str, verb: str
) -> list[Object]:
    """The subjects of whatever is bound to a right in the whole cluster."""
    wanted = {"apiGroups": [group], "resources": [resource], "verbs": [verb]}
    roles = {
        each["metadata"]["name"]
        for each in found
        if each["kind"] == "ClusterRole" and wanted in each["rules"]
    }
    return [
        subject
        for each in found
        if each["kind"] == "ClusterRoleBinding" and each["roleRef"]["name"] in roles
        for subject in each["subjects"]
    ]


def test_the_list_of_others_comes_first_so_that_a_patch_finds_it() -> None:
    first = POLICIES["ascend-claims"]["variables"][0]

    assert first == {"name": "others", "expression": "['']"}
