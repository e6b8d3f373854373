import re

import pytest

from tests.contract.apiserver.client import Api, Object, config, pod, problem

pytestmark = pytest.mark.contract


async def test_create_answers_201_and_what_the_server_added(api: Api) -> None:
    code, made = await api.post("configmaps", config("a", data={"k": "v"}))

    metadata = made["metadata"]
    metadata.pop("managedFields", None)
    assert code == 201
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", metadata["uid"])
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", metadata["creationTimestamp"]
    )
    assert int(metadata["resourceVersion"]) > 0
    assert made == {
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {
            "name": "a",
            "namespace": api.namespace,
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
            "creationTimestamp": metadata["creationTimestamp"],
        },
        "data": {"k": "v"},
    }


async def test_what_only_the_server_may_say_is_ignored_in_create(api: Api) -> None:
    stamp = "2001-01-01T00:00:00Z"
    made = await api.create(
        "configmaps",
        config("a", metadata={"uid": "mine", "creationTimestamp": stamp}),
    )

    assert made["metadata"]["uid"] != "mine"
    assert made["metadata"]["creationTimestamp"] != stamp


async def test_generate_name_adds_five_characters(api: Api) -> None:
    body = {"metadata": {"generateName": "some-"}}

    names = [
        (await api.create("configmaps", body))["metadata"]["name"] for _ in range(3)
    ]

    assert len(set(names)) == 3
    assert all(re.fullmatch(r"some-[bcdfghjklmnpqrstvwxz2456789]{5}", n) for n in names)


async def test_a_name_that_exists_is_refused(api: Api) -> None:
    await api.create("configmaps", config("a"))

    _, status = await api.post("configmaps", config("a"))

    assert problem(status) == (409, "AlreadyExists", 'configmaps "a" already exists')
    assert status["details"] == {"name": "a", "kind": "configmaps"}


async def test_an_object_that_does_not_exist_is_not_found(api: Api) -> None:
    _, status = await api.get("pods/nobody")

    assert problem(status) == (404, "NotFound", 'pods "nobody" not found')
    assert status["details"] == {"name": "nobody", "kind": "pods"}


async def test_a_namespace_must_exist(api: Api) -> None:
    api.namespace = "no-such-namespace"

    _, status = await api.post("configmaps", config("a"))

    assert problem(status) == (
        404,
        "NotFound",
        'namespaces "no-such-namespace" not found',
    )


async def test_an_object_without_a_name_is_invalid(api: Api) -> None:
    _, status = await api.post("configmaps", {"data": {}})

    assert problem(status) == (
        422,
        "Invalid",
        (
            'ConfigMap "" is invalid: metadata.name: Required value: '
            "name or generateName is required"
        ),
    )
    assert status["details"] == {
        "kind": "ConfigMap",
        "causes": [
            {
                "reason": "FieldValueRequired",
                "message": "Required value: name or generateName is required",
                "field": "metadata.name",
            }
        ],
    }


async def test_a_name_with_capital_letters_is_invalid(api: Api) -> None:
    code, status = await api.post("configmaps", config("A"))

    assert code == 422
    assert status["details"]["causes"][0]["reason"] == "FieldValueInvalid"
    assert status["message"].startswith(
        'ConfigMap "A" is invalid: metadata.name: Invalid value: "A": '
        "a lowercase RFC 1123 subdomain must consist of"
    )


async def test_nulls_and_empty_maps_are_not_kept(api: Api) -> None:
    empty: Object = {"annotations": {}, "labels": None}

    made = await api.create("configmaps", config("a", metadata=empty, data={}))

    assert "annotations" not in made["metadata"]
    assert "labels" not in made["metadata"]
    assert "data" not in made


async def test_delete_answers_a_status_for_config_maps_and_the_object_for_pods(
    api: Api,
) -> None:
    made = await api.create("configmaps", config("a"))
    await api.create("pods", pod("p"))

    code, status = await api.delete("configmaps/a")
    pod_code, deleted = await api.delete("pods/p")

    assert code == 200
    assert status == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {"name": "a", "kind": "configmaps", "uid": made["metadata"]["uid"]},
    }
    assert (pod_code, deleted["kind"], deleted["metadata"]["name"]) == (200, "Pod", "p")


async def test_delete_of_a_collection_deletes_what_is_selected(api: Api) -> None:
    await api.create("configmaps", config("a", metadata={"labels": {"go": "yes"}}))
    await api.create("configmaps", config("b"))

    code, _ = await api.call("DELETE", "configmaps", query={"labelSelector": "go=yes"})

    names = await api.names("configmaps")
    assert code == 200
    assert [name for name in names if name != "kube-root-ca.crt"] == ["b"]


async def test_finalizers_keep_a_deleted_object_until_they_are_gone(api: Api) -> None:
    finalizers = ["example.com/wait"]
    await api.create("configmaps", config("a", metadata={"finalizers": finalizers}))

    code, waiting = await api.delete("configmaps/a")
    _, still = await api.get("configmaps/a")
    patched, _ = await api.patch("configmaps/a", {"metadata": {"finalizers": None}})
    gone, _ = await api.get("configmaps/a")

    assert (code, patched, gone) == (200, 200, 404)
    assert waiting["kind"] == "ConfigMap"
    assert "deletionTimestamp" in still["metadata"]
    assert still["metadata"]["deletionGracePeriodSeconds"] == 0


async def test_a_dry_run_answers_and_changes_nothing(api: Api) -> None:
    kept = await api.create("configmaps", config("kept"))
    dry = {"dryRun": "All"}

    created, made = await api.call("POST", "configmaps", config("a"), query=dry)
    patched, shown = await api.call(
        "PATCH",
        "configmaps/kept",
        {"data": {"k": "v"}},
        query=dry,
        media_type="application/merge-patch+json",
    )
    deleted, _ = await api.call("DELETE", "configmaps/kept", query=dry)

    missing, _ = await api.get("configmaps/a")
    _, after = await api.get("configmaps/kept")
    assert (created, patched, deleted, missing) == (201, 200, 200, 404)
    assert (made["metadata"]["name"], shown["data"]) == ("a", {"k": "v"})
    assert after == kept
