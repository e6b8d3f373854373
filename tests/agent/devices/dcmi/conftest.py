"""Servers of each family, as the library of the tests shows them."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from agent.devices.dcmi.driver import DcmiDriver
from tests.agent.devices import fake_machine
from tests.agent.devices.asking import driver_on
from tests.agent.devices.fake_machine import FakeMachine

Family = Callable[[Path], FakeMachine]
Build = Callable[[Family], FakeMachine]


@pytest.fixture
def build(libdcmi: Path, tmp_path: Path) -> Build:
    """Makes a server of a family."""

    def made(family: Family) -> FakeMachine:
        machine = family(tmp_path / "machine")
        machine.library = libdcmi
        return machine

    return made


@pytest.fixture
def machine(build: Build) -> FakeMachine:
    """A module of 910B chips."""
    return build(fake_machine.module_910b)


@pytest.fixture
async def driver(machine: FakeMachine) -> AsyncIterator[DcmiDriver]:
    """A driver of that module, which it has read once."""
    async with driver_on(machine) as driver:
        await driver.read()
        yield driver
