"""Objects of an API group whose versions come and go, from an API server that says so.

The versions are those of Kubernetes' own PodGroups: v1alpha2 of 1.36; v1alpha3 and
v1beta1 of 1.37. Both releases serve PriorityClasses in v1 of the same group.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from itertools import combinations

import pytest
from aiohttp import web

from kube.client import Client
from kube.credentials import Credentials
from kube.errors import (
    ApiError,
    ForbiddenError,
    MalformedError,
    NotFoundError,
    UnservedError,
)
from kube.workloads import WorkloadRequests
from tests.support.servers import listening
from tests.support.until import until

VERSIONS = ("v1beta1", "v1alpha3", "v1alpha2")
GROUP = "/apis/scheduling.k8s.io"
PATH = f"{GROUP}/{{version}}/namespaces/ml/podgroups/train"


class Server:
    """Its versions of the group, its PodGroups, and what it was asked."""

    def __init__(self) -> None:
        #: versions in which it serves PodGroups
        self.served: list[str] = []
        #: other versions of the group
        self.others = ["v1"]
        self.names = {"train"}
        #: {path: status} of requests that it refuses
        self.refused: dict[str, int] = {}
        #: requests in their order, each without `GROUP`
        self.asked: list[str] = []
        self.goes_on = asyncio.Event()
        self.goes_on.set()

    async def handle(self, request: web.Request) -> web.Response:
        asked = request.path.removeprefix(GROUP)
        self.asked.append(asked.partition("/namespaces")[0])
        await self.goes_on.wait()
        if status := self.refused.get(request.path):
            return web.json_response({"kind": "Status", "code": status}, status=status)
        if not asked:
            return self.group()
        version, name = asked.split("/")[1], asked.rpartition("/")[2]
        if version not in self.served or name not in self.names:
            # As the real one says of a version that it does not serve.
            return web.Response(status=404, text="404 page not found\n")
        return web.json_response(
            {
                "apiVersion": f"scheduling.k8s.io/{version}",
                "kind": "PodGroup",
                "spec": {"schedulingPolicy": {"gang": {"minCount": 3}}},
            }
        )

    def group(self) -> web.Response:
        names = [*self.others, *self.served]
        if not names:
            return web.Response(status=404, text="404 page not found\n")
        versions = [
            {"groupVersion": f"scheduling.k8s.io/{name}", "version": name}
            for name in names
        ]
        body = {"kind": "APIGroup", "name": "scheduling.k8s.io", "versions": versions}
        return web.json_response(body)

    def take_asked(self) -> list[str]:
        asked, self.asked = self.asked, []
        return asked


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
async def requests(server: Server) -> AsyncIterator[WorkloadRequests]:
    app = web.Application()
    app.router.add_get("/{path:.*}", server.handle)
    async with (
        listening(app, shutdown_s=0.01) as url,
        Client(Credentials(url)) as client,
    ):
        yield WorkloadRequests(client)


async def version_of(requests: WorkloadRequests, path: str = PATH) -> str:
    """The version in which the object was read."""
    found = await requests.get(path, VERSIONS)
    assert isinstance(found, dict)
    return str(found["apiVersion"]).partition("/")[2]


def subsets(values: Iterable[str]) -> list[tuple[str, ...]]:
    all_values = tuple(values)
    sizes = range(1, len(all_values) + 1)
    return [some for size in sizes for some in combinations(all_values, size)]


@pytest.mark.parametrize("served", subsets(VERSIONS))
async def test_the_best_served_version_is_read(
    server: Server, requests: WorkloadRequests, served: tuple[str, ...]
) -> None:
    server.served = [*reversed(served)]  # the API server's order does not matter

    assert await version_of(requests) == served[0]
    assert server.take_asked() == ["", f"/{served[0]}"]


async def test_a_version_that_was_found_is_not_asked_for_again(
    server: Server, requests: WorkloadRequests
) -> None:
    server.served = ["v1alpha3"]
    await version_of(requests)
    server.take_asked()

    assert await version_of(requests) == "v1alpha3"
    assert server.take_asked() == ["/v1alpha3"]


@pytest.mark.parametrize("before", VERSIONS)
@pytest.mark.parametrize("after", VERSIONS)
async def test_an_upgrade_or_a_return_is_followed(
    server: Server, requests: WorkloadRequests, before: str, after: str
) -> None:
    server.served = [before]
    await version_of(requests)

    server.served = [after]

    assert await version_of(requests) == after


async def test_a_version_that_comes_beside_changes_nothing(
    server: Server, requests: WorkloadRequests
) -> None:
    server.served = ["v1alpha3"]
    await version_of(requests)

    server.served = ["v1alpha3", "v1beta1"]

    assert await version_of(requests) == "v1alpha3"


async def test_a_served_version_without_the_kind_is_passed_over(
    server: Server, requests: WorkloadRequests
) -> None:
    """Before 1.22, v1beta1 had PriorityClasses only; a kind can be off as well."""
    server.others, server.served = ["v1", "v1beta1"], ["v1alpha2"]

    assert await version_of(requests) == "v1alpha2"
    assert server.take_asked() == ["", "/v1beta1", "/v1alpha2"]


@pytest.mark.parametrize(
    ("others", "reason"),
    [
        (["v1"], f"{GROUP} is served in v1; the extender reads v1beta1, v1alpha3, v1"),
        ([], f"{GROUP} is not served in any version"),
    ],
)
async def test_no_version_is_an_error_until_one_is_served(
    server: Server, requests: WorkloadRequests, others: list[str], reason: str
) -> None:
    server.others = others
    with pytest.raises(UnservedError) as caught:
        await version_of(requests)
    assert str(caught.value).startswith(reason)
    assert server.take_asked() == [""]

    server.served = ["v1beta1"]

    assert await version_of(requests) == "v1beta1"


async def test_a_group_that_vanishes_is_an_error_until_it_is_back(
    server: Server, requests: WorkloadRequests
) -> None:
    server.served = ["v1beta1"]
    await version_of(requests)
    server.served = []
    with pytest.raises(UnservedError):
        await version_of(requests)

    server.served = ["v1alpha3"]

    assert await version_of(requests) == "v1alpha3"


async def test_a_missing_object_is_not_found_and_others_are(
    server: Server, requests: WorkloadRequests
) -> None:
    server.served = ["v1beta1", "v1alpha3"]
    with pytest.raises(NotFoundError):
        await version_of(requests, PATH + "-2")
    assert server.take_asked() == ["", "/v1beta1", "/v1alpha3"]

    assert await version_of(requests) == "v1beta1"


async def test_who_may_not_ask_tries_all_versions(
    server: Server, requests: WorkloadRequests
) -> None:
    server.refused[GROUP] = 403
    server.served = ["v1alpha2"]

    assert await version_of(requests) == "v1alpha2"
    assert server.take_asked() == ["", "/v1beta1", "/v1alpha3", "/v1alpha2"]
    assert await version_of(requests) == "v1alpha2"
    assert server.take_asked() == ["/v1alpha2"]


async def test_who_may_not_read_is_told_so_at_once(
    server: Server, requests: WorkloadRequests
) -> None:
    server.served = ["v1beta1", "v1alpha3"]
    server.refused[PATH.replace("{version}", "v1beta1")] = 403

    with pytest.raises(ForbiddenError):
        await version_of(requests)
    assert server.take_asked() == ["", "/v1beta1"]


@pytest.mark.parametrize("status", [429, 500, 503])
@pytest.mark.parametrize("where", [GROUP, PATH.replace("{version}", "v1beta1")])
async def test_after_a_failure_the_next_try_reads_it(
    server: Server, requests: WorkloadRequests, status: int, where: str
) -> None:
    server.served = ["v1beta1"]
    server.refused[where] = status
    with pytest.raises(ApiError) as caught:
        await version_of(requests)
    assert caught.value.status == status

    server.refused.clear()

    assert await version_of(requests) == "v1beta1"


async def test_a_failure_does_not_change_the_version(
    server: Server, requests: WorkloadRequests
) -> None:
    server.served = ["v1alpha3"]
    await version_of(requests)
    server.refused[PATH.replace("{version}", "v1alpha3")] = 500
    with pytest.raises(ApiError):
        await version_of(requests)
    server.take_asked()

    server.refused.clear()

    assert await version_of(requests) == "v1alpha3"
    assert server.take_asked() == ["/v1alpha3"]


async def test_many_jobs_that_ask_a_slow_server_are_all_answered(
    server: Server, requests: WorkloadRequests
) -> None:
    server.served = ["v1alpha3"]
    server.goes_on.clear()
    asked = [asyncio.create_task(version_of(requests)) for _ in range(5)]
    await until(lambda: server.asked)

    server.goes_on.set()

    assert await asyncio.gather(*asked) == ["v1alpha3"] * 5
    server.take_asked()
    assert await version_of(requests) == "v1alpha3"
    assert server.take_asked() == ["/v1alpha3"]


async def test_an_upgrade_between_question_and_answer_is_met_at_the_next_try(
    server: Server, requests: WorkloadRequests
) -> None:
    """Two API servers of unequal release: one tells, the other is asked."""
    server.others, server.served = ["v1", "v1beta1"], []
    with pytest.raises(NotFoundError):
        await version_of(requests)

    server.others, server.served = ["v1"], ["v1beta1"]

    assert await version_of(requests) == "v1beta1"


async def test_an_answer_that_is_no_group_is_malformed(
    server: Server, requests: WorkloadRequests
) -> None:
    server.others = [7]  # type: ignore[list-item]

    with pytest.raises(MalformedError):
        await version_of(requests)


async def test_a_path_with_its_version_is_read_without_a_question(
    server: Server, requests: WorkloadRequests
) -> None:
    server.served = ["v1alpha2"]

    found = await requests.get(PATH.replace("{version}", "v1alpha2"))

    assert isinstance(found, dict)
    assert server.take_asked() == ["/v1alpha2"]
