"""Pods are ended, controllers read and records kept, beside an API server."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from extender.apiserver.move_requests import RECORD_LABEL, KubeMoves, record_name
from extender.metrics import Metrics
from extender.preemption.attempt import Outcome, Victim
from extender.rescheduling.ends import End, Reach
from kube import credentials
from kube.client import Client
from kube.errors import NotFoundError, TooManyRequestsError, api_error
from kube.objects import Meta
from sandbox.apiclient import ApiClient, ApiStatusError
from sandbox.apiserver import ApiServer
from tests.support import objects
from tests.support.objects import CONFIGMAPS, PODS
from tests.support.servers import api_server, listening

METRICS = Metrics(CollectorRegistry())
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


def requests(client: Client) -> KubeMoves:
    return KubeMoves(client, "kube-system", METRICS)


class World:
    """An API server with a pod `a` on a node, and requests about moves."""

    def __init__(self, server: ApiServer, api: ApiClient, client: Client) -> None:
        self.server, self.api = server, api
        self.moves = requests(client)
        self.pod = Victim(uid="", namespace="default", name="a")

    async def run(self) -> None:
        await self.api.create("/api/v1/nodes", objects.node("n1"))
        labels = {"labels": {"app": "a"}}
        made = await self.api.create(PODS, objects.pod("a", 1, meta=labels, node="n1"))
        ready = [{"type": "Ready", "status": "True"}]
        status = {"phase": "Running", "conditions": ready}
        await self.api.patch_status(f"{PODS}/a", {"status": status})
        uid = made["metadata"]["uid"]
        self.pod = Victim(uid=uid, namespace="default", name="a")

    async def find(self) -> dict[str, Any] | None:
        try:
            return await self.api.get(f"{PODS}/a")
        except ApiStatusError:
            return None

    def called(self) -> list[str]:
        """Verb and resource of each call that is about ends of pods."""
        asked = {"pods/eviction", "pods/status", "pods"}
        return [
            f"{call.verb} {call.resource}"
            for call in self.server.calls
            if call.resource in asked and call.verb in {"create", "patch", "delete"}
        ]


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    async with (
        api_server() as server,
        ApiClient(server.url, "user:test") as api,
        Client(credentials.from_url(server.url)) as client,
    ):
        found = World(server, api, client)
        await found.run()
        server.calls.clear()
        yield found


# -- ends of pods ---------------------------------------------------------------------


async def test_a_pod_is_evicted_with_its_own_grace_period() -> None:
    async with world() as w:
        assert await w.moves.end_pod(w.pod, is_forced=False) == (Outcome.YES, "")

        pod = await w.find()
        assert pod is not None
        assert "deletionTimestamp" in pod["metadata"]
        told = {each["type"] for each in pod["status"]["conditions"]}
        assert "DisruptionTarget" in told
        assert w.called() == ["create pods/eviction"]


async def test_a_budget_that_refuses_is_named() -> None:
    async with world() as w:
        budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}
        await w.api.create(BUDGETS, {"metadata": {"name": "keep"}, "spec": budget})

        outcome, text = await w.moves.end_pod(w.pod, is_forced=False)

        assert outcome is Outcome.BUDGET
        assert text.startswith("The disruption budget keep ")
        assert await w.moves.end_pod(w.pod, is_forced=True) == (Outcome.YES, "")
        assert await w.find() is None


async def test_budgets_are_asked_without_evicting() -> None:
    async with world() as w:
        made = await w.api.create(PODS, objects.pod("b", 1, node="n1"))
        pods = {
            uid: ("", Meta(namespace="default", name=name, uid=uid))
            for name, uid in (("a", w.pod.uid), ("b", made["metadata"]["uid"]))
        }
        gone = {"u": ("", Meta(namespace="default", name="gone", uid="u"))}
        assert await w.moves.ask_budgets(pods | gone) == ""

        budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}
        await w.api.create(BUDGETS, {"metadata": {"name": "keep"}, "spec": budget})
        why = await w.moves.ask_budgets(pods)

        assert why.startswith("The disruption budget keep ")
        pod = await w.find()
        assert pod is not None
        assert "deletionTimestamp" not in pod["metadata"]


async def test_a_pod_is_told_of_its_disruption_before_it_is_deleted_at_once() -> None:
    async with world() as w:
        assert await w.moves.end_pod(w.pod, is_forced=True) == (Outcome.YES, "")

        assert await w.find() is None
        assert w.called() == ["patch pods/status", "delete pods"]


@pytest.mark.parametrize("is_forced", [False, True])
async def test_another_pod_of_the_name_is_left_alone(*, is_forced: bool) -> None:
    async with world() as w:
        before = Victim(uid="before", namespace="default", name="a")

        outcome = await w.moves.end_pod(before, is_forced=is_forced)

        assert outcome == (Outcome.GONE, "")
        pod = await w.find()
        assert pod is not None
        assert "deletionTimestamp" not in pod["metadata"]
        assert "conditions" not in pod["status"] or all(
            each["type"] != "DisruptionTarget" for each in pod["status"]["conditions"]
        )


async def test_without_the_condition_no_pod_is_deleted() -> None:
    refused: list[str] = []

    async def refuse(request: web.Request) -> web.Response:
        refused.append(request.method)
        return web.Response(status=403, text="no")

    async with answering(refuse) as moves:
        pod = Victim(uid="u", namespace="default", name="a")
        outcome, text = await moves.end_pod(pod, is_forced=True)

    assert (outcome, refused) == (Outcome.FAILED, ["PATCH"])
    assert "403" in text


async def test_a_server_that_is_overloaded_is_no_budget() -> None:
    async def refuse(_request: web.Request) -> web.Response:
        return web.json_response({"code": 429, "message": "too many"}, status=429)

    async with answering(refuse) as moves:
        pod = Victim(uid="u", namespace="default", name="a")
        outcome = await moves.end_pod(pod, is_forced=False)

    assert outcome == (Outcome.FAILED, "too many")


def test_the_cause_of_a_refusal_is_kept() -> None:
    body = b'{"message": "no", "details": {"causes": [{"message": "budget b"}]}}'
    error = api_error(429, body, request_line="POST /x")

    assert isinstance(error, TooManyRequestsError)
    assert (error.message, error.cause) == ("no", "budget b")
    assert api_error(429, b"{}", request_line="POST /x").cause == ""


# -- controllers ----------------------------------------------------------------------


@asynccontextmanager
async def answering(answer: Any) -> AsyncIterator[KubeMoves]:
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    async with (
        listening(application) as url,
        Client(credentials.from_url(url)) as client,
    ):
        yield requests(client)


@asynccontextmanager
async def reading(
    found: Mapping[str, Any], asked: list[str]
) -> AsyncIterator[KubeMoves]:
    """An API server that has these objects, by the ends of their paths."""

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.path.removeprefix("/apis/").removeprefix("/api/"))
        if request.path not in found:
            return web.json_response({"message": "not found"}, status=404)
        return web.json_response(found[request.path])

    async with answering(answer) as moves:
        yield moves


def owned(api_version: str, kind: str, name: str) -> dict[str, Any]:
    owner = {"apiVersion": api_version, "kind": kind, "name": name, "uid": "u"}
    return {"ownerReferences": [owner | {"controller": True}]}


def leaving(*names: str, owner: str, **labels: str) -> dict[str, tuple[str, Meta]]:
    return {
        f"uid-{name}": (owner, Meta(namespace="default", name=name, labels=labels))
        for name in names
    }


JOBS = "/apis/batch/v1/namespaces/default/jobs"
SETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"
POD_OF_JOB = {"metadata": {"name": "a", **owned("batch/v1", "Job", "j")}}


async def test_a_controller_is_read_once_for_all_its_pods() -> None:
    job = {"spec": {"completions": 4, "backoffLimit": 1}}
    asked: list[str] = []
    async with reading({f"{PODS}/b": POD_OF_JOB, f"{JOBS}/j": job}, asked) as moves:
        two = leaving("a", "b", owner="Job/default/j")
        ends = await moves.read_ends(two)
        one = await moves.read_ends({"uid-b": two["uid-b"]})

    assert isinstance(ends, dict)
    assert isinstance(one, dict)
    assert [end.can_evict for end in ends.values()] == [False, False]
    assert one["uid-b"].can_evict
    assert asked == 2 * [
        "v1/namespaces/default/pods/b",
        "batch/v1/namespaces/default/jobs/j",
    ]


async def test_the_object_with_which_a_job_ends_is_named() -> None:
    found = {
        f"{PODS}/a": POD_OF_JOB,
        f"{JOBS}/j": {
            "metadata": owned("jobset.x-k8s.io/v1alpha2", "JobSet", "s") | {"uid": "1"},
            "spec": {"completions": 4},
        },
        f"{SETS}/s": {"metadata": {"uid": "2"}},
    }
    async with reading(found, []) as moves:
        ends = await moves.read_ends(leaving("a", owner="Job/default/j"))

    assert isinstance(ends, dict)
    assert ends["uid-a"].controller == f"{SETS}/s 2"


@pytest.mark.parametrize(
    ("found", "has_ended"),
    [
        ({"metadata": {"uid": "1"}}, False),
        ({"metadata": {"uid": "2"}}, True),
        ({"metadata": {"uid": "1", "deletionTimestamp": "now"}}, True),
        (
            {
                "metadata": {"uid": "1"},
                "status": {"conditions": [{"type": "Complete", "status": "True"}]},
            },
            True,
        ),
        (None, True),
    ],
    ids=["runs", "another of the name", "is being deleted", "is complete", "is gone"],
)
async def test_a_job_has_ended_with_its_object(found: Any, *, has_ended: bool) -> None:
    objects_found = {} if found is None else {f"{JOBS}/j": found}
    async with reading(objects_found, []) as moves:
        assert await moves.has_ended([f"{JOBS}/j 1"]) is has_ended
        assert not await moves.has_ended([])


async def test_a_job_that_cannot_be_read_goes_on() -> None:
    async def refuse(_request: web.Request) -> web.Response:
        return web.json_response({"message": "try later"}, status=503)

    async with answering(refuse) as moves:
        assert not await moves.has_ended([f"{JOBS}/j 1"])


async def test_the_job_set_that_owns_a_job_says_what_its_end_does() -> None:
    found = {
        f"{PODS}/a": POD_OF_JOB,
        f"{JOBS}/j": {
            "metadata": owned("jobset.x-k8s.io/v1alpha2", "JobSet", "s"),
            "spec": {"completions": 4, "backoffLimit": 0},
        },
        f"{SETS}/s": {
            "metadata": owned("example.com/v1", "Trainer", "t"),
            "spec": {"failurePolicy": {"maxRestarts": 3}},
        },
    }
    asked: list[str] = []
    async with reading(found, asked) as moves:
        ends = await moves.read_ends(leaving("a", owner="Job/default/j"))

    assert ends == {"uid-a": End(reach=Reach.JOB)}
    assert len(asked) == 3


async def test_many_jobs_of_a_set_are_read_few_at_once() -> None:
    open_reads, most, asked = 0, 0, list[str]()

    async def answer(request: web.Request) -> web.Response:
        nonlocal open_reads, most
        asked.append(request.path)
        open_reads += 1
        most = max(most, open_reads)
        await asyncio.sleep(0.01)
        open_reads -= 1
        kind, name = request.path.split("/")[-2:]
        owner = ("jobset.x-k8s.io/v1alpha2", "JobSet", "s")
        if kind == "pods":
            owner = ("batch/v1", "Job", name)
        meta: dict[str, Any] = {"name": name, "uid": "u"}
        if kind != "jobsets":
            meta |= owned(*owner)
        spec = {"completions": 4, "failurePolicy": {"maxRestarts": 1}}
        return web.json_response({"metadata": meta, "spec": spec})

    pods = {
        uid: pod
        for number in range(20)
        for uid, pod in leaving(f"p{number}", owner=f"Job/default/{number}").items()
    }
    async with answering(answer) as moves:
        ends = await moves.read_ends(pods)

    assert isinstance(ends, dict)
    assert {end.controller for end in ends.values()} == {f"{SETS}/s u"}
    assert (len(asked), most) == (60, 4)


async def test_a_worker_set_stands_in_place_of_its_stateful_sets() -> None:
    base = "/apis/leaderworkerset.x-k8s.io/v1/namespaces/default/leaderworkersets"
    spec = {"leaderWorkerTemplate": {"restartPolicy": "None"}}
    labels = {"leaderworkerset.sigs.k8s.io/name": "w"}
    asked: list[str] = []
    async with reading({f"{base}/w": {"spec": spec}}, asked) as moves:
        ends = await moves.read_ends(leaving("a", owner="StatefulSet/x", **labels))

    assert ends == {"uid-a": End()}
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("kind", "can_evict"), [("ReplicaSet", True), ("DaemonSet", False)]
)
async def test_of_sets_of_pods_the_kind_is_enough(
    kind: str, *, can_evict: bool
) -> None:
    pod = {"metadata": {"name": "a", **owned("apps/v1", kind, "r")}}
    asked: list[str] = []
    async with reading({f"{PODS}/a": pod}, asked) as moves:
        ends = await moves.read_ends(leaving("a", owner=f"{kind}/default/r"))

    assert isinstance(ends, dict)
    assert ends["uid-a"].can_evict is can_evict
    assert asked == ["v1/namespaces/default/pods/a"]


async def test_a_controller_that_is_gone_makes_no_pod() -> None:
    async with reading({f"{PODS}/a": POD_OF_JOB}, []) as moves:
        ends = await moves.read_ends(leaving("a", owner="Job/default/j"))

    assert isinstance(ends, dict)
    assert ends["uid-a"].reason == "Job has ended or is being deleted"


async def test_a_pod_without_a_controller_is_not_made_again() -> None:
    async with reading({f"{PODS}/a": {"metadata": {"name": "a"}}}, []) as moves:
        ends = await moves.read_ends(leaving("a", owner=""))

    assert isinstance(ends, dict)
    assert not ends["uid-a"].can_evict


async def test_what_cannot_be_read_now_is_told() -> None:
    async def refuse(_request: web.Request) -> web.Response:
        return web.json_response({"message": "try later"}, status=503)

    async with answering(refuse) as moves:
        why = await moves.read_ends(leaving("a", owner="Job/default/j"))

    assert isinstance(why, str)
    assert why.startswith("what an eviction does to the job cannot be read: ")


# -- records --------------------------------------------------------------------------

JOB = "JobSet/a-namespace-with-a-long-name/" + "j" * 200


async def test_a_record_is_written_found_written_again_and_deleted() -> None:
    async with world() as w:
        assert await w.moves.write_record(JOB, {"move": "one"})
        assert await w.moves.write_record(JOB, {"move": "two"})
        assert await w.moves.write_record("uid-x", {"move": "of another"})

        found = dict(await w.moves.find_records())
        assert found == {
            record_name(JOB): {"move": "two"},
            record_name("uid-x"): {"move": "of another"},
        }
        record = await w.api.get(f"{CONFIGMAPS}/{record_name(JOB)}")
        assert record["metadata"]["labels"] == {RECORD_LABEL: "true"}

        await w.moves.delete_record(JOB)
        await w.moves.delete_record(JOB)
        assert [name for name, _ in await w.moves.find_records()] == [
            record_name("uid-x")
        ]


async def test_a_record_of_an_earlier_leader_is_deleted() -> None:
    async with world() as w:
        await w.moves.write_record(JOB, {"move": "one"})
        async with Client(credentials.from_url(w.server.url)) as client:
            await requests(client).delete_record(JOB)

        assert await w.moves.find_records() == []


async def test_a_record_that_another_has_written_since_is_not_overwritten() -> None:
    async with world() as w, Client(credentials.from_url(w.server.url)) as client:
        later = requests(client)
        assert await w.moves.write_record(JOB, {"move": "one"})
        await later.find_records()
        assert await later.write_record(JOB, {"move": "two"})

        assert not await w.moves.write_record(JOB, {"move": "of before"})
        assert await later.find_records() == [(record_name(JOB), {"move": "two"})]
        assert await w.moves.write_record(JOB, {"move": "leads after all"})


async def test_a_record_that_somebody_has_deleted_is_written_again() -> None:
    async with world() as w:
        assert await w.moves.write_record(JOB, {"move": "one"})
        await w.api.delete(f"{CONFIGMAPS}/{record_name(JOB)}")

        assert not await w.moves.write_record(JOB, {"move": "two"})
        assert await w.moves.write_record(JOB, {"move": "two"})
        assert await w.moves.find_records() == [(record_name(JOB), {"move": "two"})]


async def test_a_record_that_is_refused_is_not_written() -> None:
    async def refuse(_request: web.Request) -> web.Response:
        return web.Response(status=403, text="no")

    async with answering(refuse) as moves:
        assert not await moves.write_record(JOB, {"move": "one"})
        with pytest.raises(Exception, match="403"):
            await moves.find_records()


def test_the_name_of_a_record_is_one_that_kubernetes_takes() -> None:
    names = {record_name(job) for job in (JOB, JOB + "2", "uid-a")}

    assert len(names) == 3
    assert all(len(name) < 63 and name.islower() for name in names)


def test_an_error_without_a_body_has_no_cause() -> None:
    assert NotFoundError(404).cause == ""
