"""Keeping ConfigMap and Node right, against an API server on a real socket."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from agent.devices.simulated import file
from agent.report import content, schedule
from agent.report.content import NodeReport
from kube import configmaps, nodes
from kube.client import Client
from kube.credentials import from_url
from kube.objects import ManagedNode, encode
from sandbox.apiserver import ApiServer
from scheduler_core.products import lookup
from scheduler_core.wire import deviceinfo
from tests.agent.reporting import (
    NAME,
    NAMESPACE,
    ONE,
    PATH,
    TWO,
    create_node,
    drawn,
    edit,
    report_of,
    reporting,
)
from tests.support.servers import api_server
from tests.support.until import until


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with api_server() as server:
        yield server


@pytest.fixture
async def client(server: ApiServer) -> AsyncIterator[Client]:
    """The administrator's, and the reporters'."""
    async with Client(from_url(server.url)) as made:
        await create_node(made)
        yield made


@pytest.mark.seed("000-01")
async def test_the_first_picture_makes_the_configmap(client: Client) -> None:
    async with reporting(client) as world:
        assert world.reporter.problem() == f"{NAME} is not written yet"

        world.reporter.publish(ONE)
        found = await world.standing(ONE)

        assert found.data == content.configmap_data(ONE, update_time=1000)
        assert found.metadata.labels == {"mx-consumer-cim": "true"}
        assert found.metadata.annotations == {"ascend-affinity/writer": "me"}
        assert world.reporter.problem() is None
        assert world.metric("report_publish_duration_seconds_count") == 1
        assert world.metric("report_writes_total", result="written") == 1


async def test_a_change_is_published_and_an_administrators_edit_stays(
    client: Client,
) -> None:
    async with reporting(client, shown=ONE) as world:
        await edit(client, ManuallySeparateNPU="Ascend910-3", Note="do not touch")

        world.reporter.publish(TWO)
        found = await world.standing(TWO)

        assert (found.data or {})["ManuallySeparateNPU"] == "Ascend910-3"
        assert (found.data or {})["Note"] == "do not touch"


async def test_an_equal_picture_is_not_written_again(client: Client) -> None:
    async with reporting(client, shown=ONE) as world:
        world.reporter.publish(drawn(1))
        world.reporter.publish(TWO)
        await world.standing(TWO)

        assert world.metric("report_writes_total", result="written") == 2


async def test_what_was_edited_by_hand_is_restored(client: Client) -> None:
    async with reporting(client, shown=ONE) as world:
        await edit(client, DeviceInfoCfg="{}", AscendAffinity=None)

        await world.standing(ONE)

        assert world.metric("report_restored_total") == 1


async def test_a_deleted_configmap_is_made_again(client: Client) -> None:
    async with reporting(client, shown=ONE) as world:
        await client.request("DELETE", PATH)

        found = await world.standing(ONE)

        assert found.data == content.configmap_data(ONE, update_time=1000)
        assert world.metric("report_restored_total") == 1


async def test_the_administrators_key_comes_back_if_it_was_removed(
    client: Client,
) -> None:
    async with reporting(client, shown=ONE) as world:
        await edit(client, ManuallySeparateNPU=None)

        wanted = content.configmap_data(ONE, update_time=1000)
        await until(world.configmap, lambda found: found and found.data == wanted)


async def test_the_heartbeat_renews_the_time(client: Client) -> None:
    async with reporting(client, heartbeat_s=1.0, shown=ONE) as world:
        world.clock.now_s = 2000.0

        await world.standing(ONE)


async def test_an_outage_delays_the_truth_and_does_not_lose_it(
    client: Client, server: ApiServer
) -> None:
    async with reporting(client, shown=ONE) as world:
        await server.pause()
        world.reporter.publish(TWO)
        await until(lambda: world.metric("report_writes_total", result="failed"))
        await server.resume()

        await world.standing(TWO)


async def test_a_second_agent_is_noticed_not_fought_and_replaced_when_it_goes(
    client: Client,
) -> None:
    async with reporting(client, shown=ONE) as first:
        async with reporting(client, writer="other") as second:
            second.reporter.publish(TWO)
            await second.standing(TWO)
            [text] = await until(lambda: first.told)
            assert text == (
                f"other writes the ConfigMap kube-system/{NAME} besides this agent, "
                "which leaves it alone until the other one has been silent for 900 s "
                "or the ConfigMap is deleted"
            )
            assert second.reporter.problem() is None
            first.reporter.publish(drawn(3))
            await asyncio.sleep(0.1)
            await second.standing(TWO)
            assert first.metric("report_writes_total", result="written") == 1
        await second.reporter.release_configmap()

        await first.standing(drawn(3))

        assert (first.reporter.problem(), first.told) == (None, [text, ""])


async def test_a_nameless_program_is_noticed_at_once_and_not_fought(
    client: Client,
) -> None:
    async with reporting(client) as world:
        world.reporter.publish(ONE)
        found = await world.standing(ONE)
        theirs = deviceinfo.render(
            replace(TWO.info, available=(1,), update_time=int(world.clock.now_s) + 1),
            TWO.affinity,
            TWO.product,
        )[deviceinfo.DEVICE_INFO_KEY]
        await edit(client, DeviceInfoCfg=theirs)
        [text] = await until(lambda: world.told)
        world.reporter.publish(drawn(3))
        await asyncio.sleep(0.1)
        left = await configmaps.get(client, NAMESPACE, NAME)

        assert text.startswith("a program that gives no name writes the ConfigMap ")
        assert (left.data or {})[deviceinfo.DEVICE_INFO_KEY] == theirs
        assert world.metric("report_writes_total", result="written") == 1
        assert found.data != left.data


async def test_while_the_node_is_anothers_nothing_is_said_about_it(
    client: Client,
) -> None:
    async with reporting(client, shown=ONE) as world:
        world.reporter.set_silent(is_silent=True)
        world.reporter.publish(TWO)
        await asyncio.sleep(1.2)  # longer than between two writes
        await world.standing(ONE)
        world.reporter.set_silent(is_silent=False)

        await world.standing(TWO)


async def test_the_next_agent_takes_over_at_once(client: Client) -> None:
    async with reporting(client, shown=ONE):
        pass

    async with reporting(client, writer="successor") as world:
        world.reporter.publish(TWO)
        found = await world.standing(TWO)

        assert (found.metadata.annotations or {})[schedule.WRITER] == "successor"
        assert world.reporter.problem() is None


async def test_a_farewell_to_nobody_is_no_failure(
    client: Client, server: ApiServer
) -> None:
    async with reporting(client) as world:
        await world.reporter.release_configmap()
        assert await world.configmap() is None
        world.reporter.publish(ONE)
        await world.standing(ONE)
        await server.pause()

        await world.reporter.release_configmap()


MARKS = content.node_marks(ONE)
#: What the API server calls the client of these tests.
ME = "ascend-affinity"
KEY = lookup.ACCELERATOR_TYPE


def is_marked(node: ManagedNode) -> bool:
    patch = content.own_labels_patch(node, MARKS, manager=ME)
    return not patch and content.node_patch(node, MARKS) == ({}, {})


async def test_the_node_is_marked_and_set_right_when_somebody_changes_it(
    client: Client,
) -> None:
    async with reporting(client) as world:
        world.reporter.publish(ONE)
        await world.node_with(is_marked)
        wrong: dict[str, str | None] = {"accelerator": "x", "servertype": None}
        await nodes.patch(client, "node-1", labels=wrong, annotations={"mine": "1"})

        node = await world.node_with(is_marked)

        assert node.labels == {**MARKS.labels, **MARKS.defaults, KEY: "module"}
        assert node.annotations == {**MARKS.annotations, "mine": "1"}


async def test_the_accelerator_type_of_an_agent_follows_the_row_and_others_stay(
    client: Client,
) -> None:
    def is_of(text: str | None) -> Callable[[ManagedNode], bool]:
        return lambda node: node.labels.get(KEY) == text

    def row(key: str) -> NodeReport:
        return report_of(file.parse(f"product: {key}"))

    async with reporting(client) as world:
        for key, text in (
            ("atlas-a3-16", "module-a3-16"),
            ("atlas-a3-16-superpod", "module-a3-16-super-pod"),
            ("atlas-310p", None),
            ("atlas-a2-8", "module-910b-8"),
        ):
            world.reporter.publish(row(key))
            node = await world.node_with(is_of(text))
            assert node.label_managers(KEY) == ({ME} if text else set())
        await _label(client, "half")

        world.reporter.publish(row("atlas-a3-16"))
        await world.node_with(lambda node: "Ascend910-15" in str(node.annotations))
        await asyncio.sleep(0.1)

        node = await world.node_with(is_of("half"))
        assert node.label_managers(KEY) == {"somebody"}


async def test_an_accelerator_type_that_another_set_first_is_left_alone(
    client: Client,
) -> None:
    await _label(client, "module-910b-8")
    async with reporting(client) as world:
        world.reporter.publish(ONE)
        node = await world.node_with(is_marked)

    assert node.labels[KEY] == "module-910b-8"


async def test_d1_a_label_that_contradicts_the_chips_is_told_until_it_is_right(
    client: Client,
) -> None:
    await _label(client, "module-910b-8")
    async with reporting(client) as world:
        world.reporter.publish(ONE)
        await world.node_with(is_marked)
        await until(lambda: world.label_problems[-1])
        await _label(client, "module")
        await until(lambda: not world.label_problems[-1])

    [first, last] = dict.fromkeys(world.label_problems)
    assert first.startswith("label accelerator-type: expected module, ")
    assert last == ""


@web.middleware
async def _earlier_policies(http: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse a label that admission policies of an earlier release do not know."""
    if http.method == "PATCH" and KEY.encode() in await http.read():
        return web.json_response({"kind": "Status", "code": 403}, status=403)
    return await handler(http)


async def test_a_refused_accelerator_type_leaves_the_other_marks() -> None:
    async with (
        api_server(middlewares=[_earlier_policies]) as server,
        Client(from_url(server.url)) as client,
    ):
        await create_node(client)
        async with reporting(client) as world:
            world.reporter.publish(ONE)
            node = await world.node_with(lambda node: "servertype" in node.labels)
            await world.standing(ONE)

    assert node.labels == {**MARKS.labels, **MARKS.defaults}
    assert node.annotations == MARKS.annotations


def _refusing(status: int) -> Middleware:
    """An API server that lets nobody make a ConfigMap."""

    @web.middleware
    async def refuse(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not request.path.endswith("/configmaps") or request.method != "POST":
            return await handler(request)
        answer = {"code": status, "message": "no post here"}
        return web.json_response(answer, status=status)

    return refuse


@pytest.mark.parametrize("status", [400, 403, 404, 413, 422])
async def test_d17_a_refused_configmap_is_told_with_the_servers_words(
    status: int,
) -> None:
    async with (
        api_server(middlewares=[_refusing(status)]) as server,
        Client(from_url(server.url)) as client,
    ):
        await create_node(client)
        async with reporting(client) as world:
            world.reporter.publish(ONE)
            await until(lambda: world.refusals)
            problem = world.reporter.problem()

    assert problem is not None
    assert problem.startswith(f"{NAME} is not written yet: POST ")
    assert problem.endswith(f": {status}  no post here")
    said = problem.replace(" is not written yet: ", " is not written: ")
    assert world.refusals[0] == f"{NAMESPACE}/{said}"


async def test_d17_what_the_server_may_take_later_is_told_by_readiness_alone() -> None:
    async with (
        api_server(middlewares=[_refusing(503)]) as server,
        Client(from_url(server.url)) as client,
    ):
        await create_node(client)
        async with reporting(client) as world:
            world.reporter.publish(ONE)
            await until(lambda: "503" in (world.reporter.problem() or ""))

    assert world.refusals == []


async def test_d17_a_refusal_is_over_once_the_configmap_is_written(
    client: Client,
) -> None:
    async with reporting(client, shown=ONE) as world:
        assert (world.reporter.problem(), world.refusals) == (None, [""])


@pytest.mark.parametrize("length", [1, 63, 64, 233, 234, 236, 252, 253])
async def test_d17_a_node_of_any_name_is_marked_and_told_where_no_configmap_can_be(
    client: Client, length: int
) -> None:
    name = "n" * length
    await create_node(client, name)
    async with reporting(client, node=name) as world:
        world.reporter.publish(ONE)
        await until(lambda: nodes.get(client, name), is_marked)
        await until(lambda: world.refusals)
        problem = world.reporter.problem()

    # one character more than fits, and each beyond
    assert bool(problem) == bool(world.refusals[0]) == (length > 233)
    assert world.metric("report_writes_total", result="failed") == 0
    if problem:
        why = (
            "expected a node name of at most 233 characters, because the name of a "
            f"ConfigMap has at most 253, found one of {length}. Join the node to the "
            "cluster under a shorter name"
        )
        of_node = f"mindx-dl-deviceinfo-{name}"
        assert problem == f"{of_node} is not written yet: {why}"
        assert world.refusals == [f"{NAMESPACE}/{of_node} is not written: {why}"]


async def _label(client: Client, text: str) -> None:
    """Set the label as another program does."""
    await client.request(
        "PATCH",
        "/api/v1/nodes/node-1",
        params={"fieldManager": "somebody"},
        body=encode({"metadata": {"labels": {KEY: text}}}),
        content_type="application/merge-patch+json",
    )


async def test_a_node_that_comes_later_or_again_is_marked(client: Client) -> None:
    await client.request("DELETE", "/api/v1/nodes/node-1")
    async with reporting(client, shown=ONE) as world:
        await create_node(client)
        await world.node_with(is_marked)
        await client.request("DELETE", "/api/v1/nodes/node-1")
        await create_node(client)

        await world.node_with(is_marked)


@pytest.mark.seed("000-07")
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
async def test_kubectl_describes_what_is_reported(
    client: Client, server: ApiServer
) -> None:
    async with reporting(client, shown=ONE):
        process = await asyncio.create_subprocess_exec(
            "kubectl",
            f"--server={server.url}",
            "--kubeconfig=/dev/null",
            "describe",
            "cm",
            NAME,
            "-n",
            NAMESPACE,
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await process.communicate()

    assert '"huawei.com/Ascend910":"Ascend910-0,Ascend910-1,' in output.decode()
    assert '{"version":1,"held":[],"releasing":[],"sequence":1,' in output.decode()
