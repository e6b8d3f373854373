"""The cluster's fault configuration, followed on a real socket."""

import json
from collections.abc import AsyncIterator

import pytest

from agent.health import fault_config
from agent.health.rules import DEFAULT, FaultConfig
from agent.monitor.fault_config import FaultConfigWatch
from kube import configmaps
from kube.client import Client
from kube.credentials import from_url
from kube.objects import ConfigMap
from tests.support.servers import api_server
from tests.support.tasks import in_background
from tests.support.until import until

NAMESPACE = "kube-system"
MILD = {"faultCode.json": json.dumps({"NotHandleFaultCodes": ["80E3A201"]})}
WRONG = {"faultCode.json": "{"}
UNUSABLE = (
    "of the fault configuration kube-system/mindx-dl-fault-config all is used but what "
    "cannot be understood: faultCode.json: expected JSON (Expecting property name "
    "enclosed in double quotes: line 1 column 2 (char 1)), found '{'"
)


def config(data: dict[str, str]) -> FaultConfig:
    return fault_config.parse(data).config


class World:
    def __init__(self, client: Client) -> None:
        self.client = client
        self.applied: list[FaultConfig] = []
        self.told: list[str] = []
        self.watch = FaultConfigWatch(
            client,
            namespace=NAMESPACE,
            apply=self.applied.append,
            on_problem=self.told.append,
        )

    async def create(self, data: dict[str, str]) -> ConfigMap:
        return await configmaps.create(
            self.client,
            namespace=NAMESPACE,
            name=fault_config.NAME,
            labels={},
            data=data,
        )

    async def write(self, data: dict[str, str]) -> None:
        await configmaps.patch(
            self.client, namespace=NAMESPACE, name=fault_config.NAME, data=data
        )


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with api_server() as server, Client(from_url(server.url)) as client:
        found = World(client)
        async with in_background(found.watch.run()):
            await until(lambda: found.watch.watch.synced)
            yield found


async def test_it_counts_from_the_moment_it_is_written(world: World) -> None:
    await world.create(MILD)
    await until(lambda: len(world.applied) == 1)
    await world.write({"faultCode.json": "{}"})
    await until(lambda: len(world.applied) == 2)

    assert world.applied == [
        config(MILD),
        config({"faultCode.json": "{}"}),
    ]
    assert set(world.told) == {""}


async def test_a_text_that_is_no_json_changes_nothing_and_is_told(world: World) -> None:
    await world.create(MILD)
    await until(lambda: len(world.applied) == 1)
    await world.write(WRONG)
    await until(lambda: len(world.told) == 2)

    assert world.applied == [config(MILD), config(MILD)]
    assert world.told == ["", UNUSABLE]
    await world.write(MILD)
    await until(lambda: len(world.told) == 3)
    assert world.told[2] == ""


async def test_what_is_understood_is_used_and_the_rest_is_named(world: World) -> None:
    codes = {"NotHandleFaultCodes": ["80E3A201", "x"], "NewLevelCodes": ["80E01801"]}
    await world.create({"faultCode.json": json.dumps(codes)})
    await until(lambda: len(world.told) == 1)

    assert world.applied == [config(MILD)]
    assert "faultCode.json.NotHandleFaultCodes[1]: expected" in world.told[0]
    assert "faultCode.json.NewLevelCodes: no such key" in world.told[0]


async def test_without_it_the_built_in_one_holds_again(world: World) -> None:
    await world.create(MILD)
    path = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{fault_config.NAME}"
    await until(lambda: len(world.applied) == 1)
    await world.client.request("DELETE", path)
    await until(lambda: len(world.applied) == 2)

    assert world.applied[1] is DEFAULT


async def test_other_configmaps_are_not_followed(world: World) -> None:
    await configmaps.create(
        world.client, namespace=NAMESPACE, name="other", labels={}, data=WRONG
    )
    await world.create(MILD)
    await until(lambda: len(world.applied) == 1)

    assert world.told == [""]
