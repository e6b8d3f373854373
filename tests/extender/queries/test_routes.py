"""The read endpoints: what-if, snapshot, and the description of both."""

import io
import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from jsonschema import Draft202012Validator

from extender.cache.cache import Cache
from extender.queries import openapi
from extender.queries.routes import QueryRoutes
from scheduler_core import __main__ as program
from scheduler_core.snapshot import document
from tests.extender.kube_scheduler.test_verbs import recorded_cluster, served
from tests.support.caches import apply, cluster, switched
from tests.support.extender import World
from tests.support.servers import asking
from tests.support.watched import LARGE, RESOURCE, member, tenant

DOCUMENT = Path(__file__).parents[3] / "docs" / "openapi.json"
RefuseBind = tuple[int, dict[str, Any]]


def routes_of(
    cache: Cache, waits: str | None = None, **more: Any
) -> list[web.RouteDef]:
    world = World(cache)
    routes = QueryRoutes(
        world.sources, lambda: waits, read_pod=world.pod_api.get, **more
    )
    return routes.routes()


def reading(
    cache: Cache, *, waits: str | None = None, **more: Any
) -> AbstractAsyncContextManager[aiohttp.ClientSession]:
    return asking(routes_of(cache, waits, **more), waits)


async def plan(cache: Cache, question: object) -> RefuseBind:
    body = question if isinstance(question, bytes) else json.dumps(question).encode()
    async with reading(cache) as session, session.post("/v1/plan", data=body) as said:
        found: dict[str, Any] = await said.json()
        assert is_as_described("/v1/plan", "post", said.status, found)
        return said.status, found


async def get(cache: Cache, path: str, **more: Any) -> tuple[int, str]:
    async with reading(cache, **more) as session, session.get(path) as said:
        text = await said.text()
        where = path.partition("?")[0]
        assert is_as_described(where, "get", said.status, json.loads(text))
        return said.status, text


def is_as_described(path: str, method: str, status: int, answer: object) -> bool:
    """Whether an answer is one of those that the description allows."""
    operation = openapi.DOCUMENT["paths"][path][method]
    content = operation["responses"][str(status)]["content"]
    schema = content["application/json"]["schema"] | {
        "components": openapi.DOCUMENT["components"]
    }
    Draft202012Validator(schema).validate(answer)
    return True


def job(chips: int, pods: int = 1, **more: object) -> dict[str, object]:
    return {"resource": RESOURCE, "chips": chips, "pods": pods, **more}


def question(asked: object, **more: object) -> dict[str, object]:
    return {"version": 1, "job": asked, **more}


def half_full() -> Cache:
    return cluster(tenant("a", "n1", (0, 1, 2, 3)), nodes=("n1", "n2"))


async def test_a_job_that_fits_is_told_where_it_would_go() -> None:
    status, said = await plan(half_full(), question(job(4)))

    assert (status, said["fits"], said["node"]) == (200, True, "n1")
    assert said["chips"] == [4, 5, 6, 7]
    assert said["text"].startswith("n1: chips 4, 5, 6, 7; ")


async def test_all_pods_of_a_job_are_told_theirs() -> None:
    cache = switched("n1", "n2", "n3", "n4")
    asked = job(8, 2, labels={"tor-affinity": "large-model-schema"})
    asked["node_selector"] = {"accelerator-type": "module"}
    apply(cache, tenant("a", "n1", (0,)))

    status, said = await plan(cache, question(asked))

    assert (status, said["fits"]) == (200, True)
    assert [(each["pod"], each["node"]) for each in said["pods"]] == [
        ("pod-0", "n3"),
        ("pod-1", "n4"),
    ]


async def test_one_that_does_not_fit_is_told_why_and_what_would_help() -> None:
    status, said = await plan(half_full(), question(job(8, priority=1), drain=["n2"]))

    assert (status, said["fits"]) == (200, False)
    assert said["reasons"] == [{"nodes": 1, "text": "without 8 free chips"}]
    assert said["advice"]["parts"]
    assert said["eviction"]["victims"] == ["default/a"]


async def test_for_a_job_of_very_many_pods_there_is_no_advice() -> None:
    few = await plan(half_full(), question(job(8, 100)))
    many = await plan(half_full(), question(job(8, 101)))

    assert [said["fits"] for _, said in (few, many)] == [False, False]
    assert ["advice" in said for _, said in (few, many)] == [True, False]


async def test_a_drained_node_takes_nothing_and_an_added_one_does() -> None:
    cache = half_full()
    new = {"name": "new", "product": "atlas-800-training"}

    drained = await plan(cache, question(job(8), drain=["n2"]))
    added = await plan(cache, question(job(8), drain=["n2"], add=[new]))
    made_anew = {**new, "name": "n2", "unhealthy": [0]}
    worse = await plan(cache, question(job(8), drain=["n2"], add=[made_anew]))

    assert [drained[1]["fits"], added[1]["fits"], worse[1]["fits"]] == [
        *(False, True, False)
    ]
    assert added[1]["node"] == "new"


async def test_asking_changes_nothing() -> None:
    cache = half_full()
    before = {state.name: state for state in cache.index}, cache.version[0]

    await plan(cache, question(job(4)))
    await get(cache, "/v1/snapshot")

    assert ({state.name: state for state in cache.index}, cache.version[0]) == before


async def test_the_answer_is_the_one_that_the_file_gives(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = half_full()
    asked = job(2)
    _, text = await get(cache, "/v1/snapshot")
    files = (tmp_path / "snapshot.json", tmp_path / "job.json")
    files[0].write_text(text, encoding="utf-8")
    files[1].write_text(json.dumps({"version": 1, **asked}), encoding="utf-8")

    code = program.main(["place", *map(str, files), "--json"])

    _, said = await plan(cache, question(asked))
    assert code == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer == {key: said[key] for key in said if key not in {"fits", "text"}}


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "document: expected JSON"),
        (b"\xff", "body: expected UTF-8, found other bytes"),
        (b"[" * 100_000, "document: expected JSON of fewer levels"),
        (b'{"version":1,"version":1}', "document: expected each key of an object once"),
        ([], "document: expected an object"),
        ({}, "version: expected 1, found nothing"),
        (question(job(1)) | {"version": 2}, "version: expected 1, found 2"),
        ({"version": 1}, "job: expected an object, found nothing"),
        (question(None), "job: expected an object, found nothing"),
        (question({}), "job.resource: expected one of huawei.com/"),
        (question(job(0)), "job.chips: expected a whole number of at least 1"),
        (question(job(1, version=2)), "job.version: expected 1, found 2"),
        (question(job(1), jobs=1), "jobs: no such key"),
        (question(job(1), drain="n1"), "drain: expected a list"),
        (question(job(1), drain=[1]), "drain[0]: expected a text"),
        (question(job(1), drain=["n9"]), "drain: expected nodes with NPUs, found n9"),
        (
            question(job(1), drain=["a\nb"]),
            "drain: expected nodes with NPUs, found 'a\\nb'",
        ),
        (question(job(1), add=[{"name": "x"}]), "add[0].product: expected"),
        (
            question(job(1), add=[{"name": "n1", "product": "npu-flat-16"}]),
            "add: expected names that no node has, found n1",
        ),
        (question(job(1, 10**9)), "job.pods: expected at most 10000, found 1000000000"),
        (
            question(job(1, node_selector={"disk": "ssd"})),
            "job.node_selector: expected accelerator-type or nothing",
        ),
    ],
)
async def test_a_question_that_cannot_be_read_is_told_why(
    body: object, why: str
) -> None:
    status, said = await plan(half_full(), body)

    assert (status, said["error"][: len(why)]) == (400, why)
    assert len(said["error"]) < 1000


async def test_a_question_of_a_megabyte_is_refused() -> None:
    async def in_pieces() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b" " * 65_536

    text = {"error": "body: expected at most 1048576 bytes"}
    async with reading(half_full()) as session:
        async with session.post("/v1/plan", data=io.BytesIO(b" " * 1_100_000)) as whole:
            assert (whole.status, await whole.json()) == (413, text)
        async with session.post("/v1/plan", data=in_pieces()) as pieces:
            assert (pieces.status, await pieces.json()) == (413, text)


async def test_the_snapshot_is_the_same_each_time_and_can_be_read() -> None:
    cache = switched("n1", "n2", "n3", "n4")
    apply(cache, *(member(name, traits=LARGE, node="n1") for name in "ab"))

    status, text = await get(cache, "/v1/snapshot")

    assert status == 200
    assert (200, text) == await get(cache, "/v1/snapshot?pod-names=true")
    assert [pod.name for pod in document.parse(text).pods] == ["default/a", "default/b"]


async def test_names_of_pods_are_left_out_if_so_asked() -> None:
    _, text = await get(half_full(), "/v1/snapshot?pod-names=false")
    status, said = await get(half_full(), "/v1/snapshot?pod-names=no")

    assert [pod.name for pod in document.parse(text).pods] == ["pod-0"]
    assert (status, json.loads(said)) == (
        400,
        {"error": "pod-names: expected true or false"},
    )


async def test_on_half_a_cluster_nothing_is_answered() -> None:
    text = {"error": "the extender is not ready: waiting for pods"}

    status, said = await get(half_full(), "/v1/snapshot", waits="waiting for pods")

    assert (status, json.loads(said)) == (503, text)


async def test_too_many_questions_at_once_are_refused() -> None:
    status, said = await get(half_full(), "/v1/snapshot", waiting_most=0)

    assert (status, json.loads(said)) == (
        429,
        {"error": "too many questions at once: ask again in a moment"},
    )


async def test_the_description_is_served_as_it_is_in_the_docs() -> None:
    _, text = await get(half_full(), "/v1/openapi.json")

    assert json.loads(text) == json.loads(DOCUMENT.read_text(encoding="utf-8"))


def test_the_description_speaks_of_every_read_endpoint() -> None:
    paths = {route.path for route in routes_of(half_full())}

    assert paths == set(openapi.DOCUMENT["paths"])


async def test_explanations_are_as_described() -> None:
    path = "/v1/explain/{namespace}/{name}"
    cache = recorded_cluster()
    apply(cache, member("m0", size=3), member("m1", size=3))

    async with served(cache) as (extender, _):
        for name, status in (("a", 200), ("m0", 200), ("nobody", 404)):
            found = await extender.explain(name)
            assert found[0] == status
            assert is_as_described(path, "get", *found)
