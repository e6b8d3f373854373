"""What `/v1/explain` tells of many nodes, and of pods that it does not know."""

import json
from pathlib import Path

import pytest

from extender.queries.routes import QueryRoutes
from tests.extender.queries.asked import asked, made, text_of
from tests.extender.test_app import beside_an_api_server
from tests.support import objects
from tests.support.caches import cluster
from tests.support.extender import world
from tests.support.servers import asking
from tests.support.watched import tenant


async def test_p16_many_nodes_are_told_by_reason_and_each_only_if_so_asked() -> None:
    names = [f"n{number:02}" for number in range(60)]
    full = [tenant(f"t-{name}", name, (0,)) for name in names]
    async with asked(*full, nodes=names) as it:
        it.world.add(*(made(name, size=4) for name in "abcd"))
        await it.filter("a")

        found = await it.explain("a", "?nodes=false")
        each = await it.explain("a", "?nodes=true")
        async with it.session.get("/v1/explain/default/a?nodes=1") as answer:
            refused = answer.status, await answer.json()

    assert found["reasons"] == [
        {"nodes": 60, "text": "without 8 free chips", "names": ["n00", "n01", "n02"]}
    ]
    line = "    60 nodes: without 8 free chips (n00, n01, n02 and 57 more)"
    assert line in found["text"].splitlines()
    assert len(found["text"].splitlines()) < 15
    assert each["nodes"] == dict.fromkeys(names, "without 8 free chips")
    assert refused == (400, {"error": "nodes: expected true or false"})


@pytest.mark.parametrize(
    ("resource", "meant"),
    [
        ("huawei.com/Ascend910B", "huawei.com/Ascend910"),
        ("huawei.com/ascend910", "huawei.com/Ascend910"),
        ("huawei.com/Ascend310p3", "huawei.com/Ascend310P"),
        ("huawei.com/NPU", "huawei.com/npu"),
    ],
)
async def test_a_resource_that_does_not_exist_is_named_with_the_one_that_was_meant(
    resource: str, meant: str
) -> None:
    async with asked() as it:
        sent = objects.pod("p", 1, resource=resource, meta={"uid": "uid-p"})
        it.world.api.pods["default", "p"] = sent

        found = await it.explain("p")

    assert found["text"] == text_of(
        (
            "default/p: pending",
            f"problem: {resource} is no resource of chips, so no node ever offers it",
            f"advice: ask for {meant}",
        )
    )


async def test_the_program_finds_the_mistake_on_its_api_server(tmp_path: Path) -> None:
    async with beside_an_api_server(tmp_path) as programs:
        sent = objects.pod("p", 1, resource="huawei.com/Ascend910B")
        await programs.api.create(objects.PODS, sent)
        status, text = await programs.get("/v1/explain/default/p")
        missing, _ = await programs.get("/v1/explain/default/q")

    assert (status, missing) == (200, 404)
    assert json.loads(text)["advice"] == ["ask for huawei.com/Ascend910"]


@pytest.mark.parametrize(
    "limits", [{"cpu": "1"}, {"huawei.com/Ascend910-4c": "1"}, {}, None]
)
async def test_a_pod_that_asks_for_no_chips_is_unknown(
    limits: dict[str, str] | None,
) -> None:
    async with asked() as it:
        if limits is not None:
            it.world.api.pods["default", "p"] = objects.pod("p", limits=limits)
        for is_readable in (True, False):
            it.world.api.is_readable = is_readable
            found = await it.explain("p")
            assert found["state"] == "unknown: no such pod, or it asks for no NPU"


async def test_questions_about_pods_that_are_read_are_bounded() -> None:
    async with world(cluster()) as w:
        queries = QueryRoutes(
            w.sources, lambda: None, read_pod=w.pod_api.get, waiting_most=0
        )
        async with (
            asking(queries.routes()) as session,
            session.get("/v1/explain/default/p") as answer,
        ):
            assert answer.status == 429
        assert w.api.reads == 0
