import pytest

from tests.contract.apiserver.client import JSON_PATCH, STRATEGIC, Api, config, problem

pytestmark = pytest.mark.contract

STALE = (
    'Operation cannot be fulfilled on configmaps "a": the object has been modified; '
    "please apply your changes to the latest version and try again"
)


async def test_an_update_of_a_stale_version_is_a_conflict(api: Api) -> None:
    stale = await api.create("configmaps", config("a"))
    await api.patch("configmaps/a", {"data": {"k": "1"}})

    _, status = await api.put("configmaps/a", {**stale, "data": {"k": "2"}})

    assert problem(status) == (409, "Conflict", STALE)
    assert status["details"] == {"name": "a", "kind": "configmaps"}


async def test_a_patch_of_a_stale_version_is_a_conflict(api: Api) -> None:
    made = await api.create("configmaps", config("a"))
    await api.patch("configmaps/a", {"data": {"k": "1"}})
    version = {"resourceVersion": made["metadata"]["resourceVersion"]}

    _, status = await api.patch(
        "configmaps/a", {"metadata": version, "data": {"k": "2"}}
    )

    assert problem(status) == (409, "Conflict", STALE)


async def test_an_update_without_a_version_wins(api: Api) -> None:
    await api.create("configmaps", config("a", data={"k": "1"}))

    code, updated = await api.put("configmaps/a", config("a", data={"k": "2"}))

    assert (code, updated["data"]) == (200, {"k": "2"})


async def test_versions_rise_with_every_change(api: Api) -> None:
    first = await api.create("configmaps", config("a"))
    _, second = await api.patch("configmaps/a", {"data": {"k": "1"}})
    third = await api.create("configmaps", config("b"))

    versions = [
        int(made["metadata"]["resourceVersion"]) for made in (first, second, third)
    ]
    assert versions == sorted(set(versions))


async def test_a_change_that_changes_nothing_keeps_the_version(api: Api) -> None:
    made = await api.create("configmaps", config("a", data={"k": "1"}))

    _, patched = await api.patch("configmaps/a", {"data": {"k": "1"}})
    _, put = await api.put("configmaps/a", config("a", data={"k": "1"}))

    version = made["metadata"]["resourceVersion"]
    assert patched["metadata"]["resourceVersion"] == version
    assert put["metadata"]["resourceVersion"] == version


async def test_an_update_with_another_uid_is_a_conflict(api: Api) -> None:
    made = await api.create("configmaps", config("a"))
    made["metadata"]["uid"] = "another"

    code, status = await api.put("configmaps/a", made)

    assert (code, status["reason"]) == (409, "Conflict")
    assert "Precondition failed: UID in precondition: another" in status["message"]


@pytest.mark.parametrize(
    ("media_type", "patch"),
    [
        ("application/merge-patch+json", {"metadata": {"uid": "another"}}),
        (STRATEGIC, {"metadata": {"uid": "another"}}),
        (JSON_PATCH, [{"op": "add", "path": "/metadata/uid", "value": "another"}]),
    ],
)
async def test_a_patch_with_another_uid_is_invalid_and_changes_nothing(
    api: Api, media_type: str, patch: object
) -> None:
    """Not 409, as for PUT: a patch has no preconditions, the uid is just immutable."""
    made = await api.create("configmaps", config("a"))

    _, status = await api.patch("configmaps/a", patch, media_type)

    assert problem(status) == (
        422,
        "Invalid",
        (
            'ConfigMap "a" is invalid: metadata.uid: Invalid value: "another": '
            "field is immutable"
        ),
    )
    assert status["details"]["causes"][0] == {
        "reason": "FieldValueInvalid",
        "message": 'Invalid value: "another": field is immutable',
        "field": "metadata.uid",
    }
    _, after = await api.get("configmaps/a")
    assert after["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_a_patch_with_the_right_uid_is_done(api: Api) -> None:
    made = await api.create("configmaps", config("a"))
    uid = made["metadata"]["uid"]

    code, patched = await api.patch(
        "configmaps/a",
        {"metadata": {"uid": uid, "annotations": {"k": "v"}}},
    )

    assert (code, patched["metadata"]["annotations"]) == (200, {"k": "v"})


async def test_a_delete_with_another_uid_is_a_conflict(api: Api) -> None:
    made = await api.create("configmaps", config("a"))

    code, status = await api.delete(
        "configmaps/a", {"preconditions": {"uid": "another"}}
    )
    right, _ = await api.delete(
        "configmaps/a",
        {"preconditions": {"uid": made["metadata"]["uid"]}},
    )

    assert (code, status["reason"], right) == (409, "Conflict", 200)
    assert "the UID in the precondition (another) does not match" in status["message"]


async def test_a_delete_of_a_stale_version_is_a_conflict(api: Api) -> None:
    made = await api.create("configmaps", config("a"))
    await api.patch("configmaps/a", {"data": {"k": "1"}})
    version = made["metadata"]["resourceVersion"]

    code, status = await api.delete(
        "configmaps/a", {"preconditions": {"resourceVersion": version}}
    )

    assert (code, status["reason"]) == (409, "Conflict")


async def test_a_lease_is_created_by_put_and_never_overwritten_unseen(api: Api) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{api.namespace}/leases/lead"
    lease = {"metadata": {"name": "lead"}, "spec": {"holderIdentity": "one"}}

    created, made = await api.put(path, lease)
    blind, status = await api.put(path, {**lease, "spec": {"holderIdentity": "two"}})
    seen, updated = await api.put(path, {**made, "spec": {"holderIdentity": "two"}})

    assert (created, blind, seen) == (201, 422, 200)
    assert "metadata.resourceVersion" in status["message"]
    assert updated["spec"] == {"holderIdentity": "two"}
