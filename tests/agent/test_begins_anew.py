"""The whole agent on chips that come late: how it waits, and how it begins anew."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from agent.app import Agent
from agent.claims import confirm
from agent.claims.values import Hold
from agent.report.schedule import WRITER
from agent.status import socket
from sandbox.apiserver.outages import Trouble, What
from scheduler_core.products.table import by_key
from scheduler_core.wire import annotations
from tests.agent.devices import fake_machine
from tests.agent.devices.fake_machine import FakeMachine
from tests.agent.site import Site, page_of, running_site
from tests.support.objects import PODS
from tests.support.until import until

pytestmark = pytest.mark.long

WAIT_S = "2"
HALF, WHOLE = by_key("atlas-800-training-half"), by_key("atlas-800-training")
CHIP = "name=910A cores=32 board=0x40 memory=32768 network=0"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeMachine:
    """A server of eight chips, four of which the driver cannot name yet."""
    machine = fake_machine.training_910a(tmp_path / "machine")
    for name, value in machine.environment.items():
        monkeypatch.setenv(name, value)
    take_out(machine, 4, 5, 6, 7)
    return machine


@pytest.fixture
def wait_s() -> str:
    """How long a complete survey is waited for."""
    return WAIT_S


@pytest.fixture
async def site(libdcmi: Path, machine: FakeMachine, wait_s: str) -> AsyncIterator[Site]:
    told = (
        *("--driver", "dcmi", "--dcmi-library", str(libdcmi)),
        *("--recover-s", "0.1", "--survey-wait-s", wait_s),
        *("--address-file", "{root}/address"),
    )
    async with running_site(*told, count=None, starts=False) as site:
        yield site


def take_out(machine: FakeMachine, *cards: int) -> None:
    """Take cards out; the driver counts them still."""
    for card in cards:
        machine.remove(card, 0)
    machine.tell(f"unnamed {len(cards)}")


def put_in(machine: FakeMachine, *cards: int, unnamed: int = 0, more: str = "") -> None:
    for card in cards:
        words = f"phy={card} logic={card} {CHIP} ip=192.168.20.10{card}"
        machine.add(card, 0, words)
    machine.tell(f"unnamed {unnamed}", more)


async def begin_with_half(site: Site) -> None:
    """Start the agent, and wait until it serves the chips that are there."""
    site.product = HALF
    site.start_agent()
    await site.until_allocatable(4)


async def readiness(site: Site) -> str:
    return await page_of(site.root / "address", "readyz")


async def status(site: Site) -> dict[str, Any]:
    reader, writer = await asyncio.open_unix_connection(site.root / socket.NAME)
    try:
        found: dict[str, Any] = json.loads(await reader.read())
    finally:
        writer.close()
    return found


async def until_told(site: Site, reason: str, text: str) -> None:
    """Wait until an event of the node says so."""

    async def messages() -> list[str]:
        return [event["message"] for event in await site.events(reason)]

    await site.until(messages, lambda found: any(text in each for each in found))


async def annotations_of(site: Site, name: str) -> dict[str, str]:
    found = await site.api.get(f"{PODS}/{name}")
    written: dict[str, str] = found["metadata"]["annotations"]
    return written


async def until_ready(site: Site, part: str = "ok") -> None:
    await until(lambda: readiness(site), lambda page: part in page, within_s=60.0)


async def until_status(site: Site, is_so: Callable[[dict[str, Any]], bool]) -> None:
    await until(lambda: status(site), is_so, within_s=60.0, ignoring=OSError)


async def test_a_node_that_shows_more_chips_begins_anew_beside_running_pods(
    site: Site, machine: FakeMachine
) -> None:
    unnamed = "the driver cannot name 4 of its cards yet"
    waits = f"waiting for all chips, {WAIT_S} s at most: {unnamed}"
    site.product = HALF
    site.start_agent()
    await until_ready(site, waits)
    await until_status(site, lambda found: found["waitingFor"] == f"driver: {waits}")
    await until_told(site, "NpuNotServed", waits)

    await site.until_allocatable(4)
    await until_ready(site)
    await until_status(site, lambda found: found["driverProblem"] == unnamed)
    await site.serve("early", 2)
    await site.serve("other", 2)
    before = {name: await annotations_of(site, name) for name in ("early", "other")}
    mounted = site.mounted()

    wrong = (
        "chip 4 is none of the Atlas 800 training server with 4 chips that is served"
    )
    put_in(machine, 4, 5, 6, unnamed=1)
    await until_told(site, "NpuProductChanged", f"the wrong product row: {wrong}")
    await until_ready(site, f"the wrong product row: {wrong}")
    site.product = WHOLE
    await site.until_allocatable(7)
    await until_told(site, "NpuProductChanged", f"the agent begins anew: {wrong}")

    await until_ready(site)
    await until_status(site, lambda found: found["product"] == WHOLE.key)
    await until_status(site, lambda found: found["driverProblem"] is None)
    await site.settle()
    assert site.mounted() == mounted
    after = {name: await annotations_of(site, name) for name in before}
    assert after == before
    await site.serve("late", 2)
    assert await site.events("NpuClaimUnreadable") == []


async def test_a_library_that_loads_slowly_is_not_loaded_again_for_another_row(
    site: Site, machine: FakeMachine
) -> None:
    await begin_with_half(site)
    await site.serve("early", 2)

    put_in(machine, 4, 5, 6, 7, more="hang dcmi_init -1 -1")

    site.product = WHOLE
    await site.until_allocatable(8)
    await until_ready(site)
    await site.serve("late", 4)


@pytest.mark.parametrize("wait_s", ["600"])
async def test_a_node_with_a_dead_card_is_served_by_what_its_node_says_of_its_chips(
    site: Site, machine: FakeMachine
) -> None:
    put_in(machine, 4, 5, 6, 7)
    site.start_agent()
    await site.until_allocatable(8)
    await site.serve("first", 4)
    mounted = site.mounted()
    await until_ready(site)
    await site.stop_agent()
    await site.until_allocatable(0)

    (site.root / "chips").unlink()  # as a release before it left the node
    take_out(machine, 7)
    machine.tell("unnamed 1")
    busy = Trouble(what=What.REFUSED, status=429, resource="nodes", count=1)
    site.troubles.begin(replace(busy, verbs=frozenset({"list"}), user="*ascend-agent"))
    site.start_agent()
    await site.until_allocatable(7)

    await until_ready(site)
    await until_status(site, lambda found: found["product"] == WHOLE.key)
    await site.settle()
    assert site.mounted() == mounted


async def writer(site: Site) -> str:
    """The process that has written the ConfigMap; "" for none."""
    found: str = (await site.report())["metadata"]["annotations"].get(WRITER, "")
    return found


async def test_an_agent_begins_anew_while_the_api_server_refuses_all(
    site: Site, machine: FakeMachine
) -> None:
    await begin_with_half(site)
    await until_ready(site)
    before = await site.until(lambda: writer(site))

    end = site.troubles.begin(
        Trouble(what=What.REFUSED, status=503, user="*ascend-agent")
    )
    put_in(machine, 4, 5, 6, unnamed=1)
    await until_ready(site, "the wrong product row")
    site.product = WHOLE
    await site.until_allocatable(7)
    end()

    await until_told(site, "NpuProductChanged", "the wrong product row")
    await until_told(site, "NpuProductChanged", "the agent begins anew")
    for row in (HALF, WHOLE):
        await until_told(site, "NpuServed", f"the node is served as {row.key}")
    await until_ready(site)
    assert await site.until(lambda: writer(site)) == before
    await site.serve("late", 4)


async def test_an_agent_begins_anew_with_holds_that_no_disk_has(
    site: Site, machine: FakeMachine
) -> None:
    await begin_with_half(site)
    (site.root / "holds.old" / "full").mkdir(parents=True)  # no write can replace it
    await site.serve("early", 2)
    mounted = site.mounted()

    put_in(machine, 4, 5, 6, 7)
    site.product = WHOLE
    await site.until_allocatable(8)
    await site.settle()

    assert site.mounted() == mounted
    assert await site.events(confirm.RESTORED) == []


async def test_a_problem_that_lasts_while_the_agent_begins_anew_is_told_once(
    site: Site, machine: FakeMachine
) -> None:
    await begin_with_half(site)
    full = site.root / "holds.old" / "full"
    full.mkdir(parents=True)  # no write can replace it
    await site.serve("early", 2)
    await until_ready(site, "the journal on disk lacks holds")

    put_in(machine, 4, 5, 6, 7)
    site.product = WHOLE
    await site.until_allocatable(8)
    await until_told(site, "NpuServed", f"the node is served as {WHOLE.key}")
    await until_ready(site, "the journal on disk lacks holds")
    await until_status(site, lambda found: found["journalProblem"])

    full.rmdir()
    full.parent.rmdir()
    await until_ready(site)
    await until_status(site, lambda found: found["journalProblem"] is None)
    await until_told(site, "NpuJournalWritten", "the journal has all holds again")
    for reason in ("NpuJournalOld", "NpuJournalWritten"):
        (event,) = await site.events(reason)
        assert event.get("count", 1) == 1
    assert await site.events("NpuJournalUnusable") == []


async def test_claims_on_chips_that_come_late_after_a_boot_stay_as_they_are(
    site: Site, machine: FakeMachine
) -> None:
    put_in(machine, 4, 5, 6, 7)
    site.start_agent()
    await site.until_allocatable(8)
    await site.serve("first", 4)
    await site.serve("second", 4)
    before = {name: await annotations_of(site, name) for name in ("first", "second")}
    assert all(annotations.CONFIGURATION in each for each in before.values())
    await site.stop_agent()

    take_out(machine, 4, 5, 6, 7)
    site.start_agent()
    await site.until_allocatable(4)
    await until_ready(site)
    await site.settle()
    after = {name: await annotations_of(site, name) for name in before}
    assert after == before

    put_in(machine, 4, 5, 6, 7)
    await site.until_allocatable(8)
    await site.settle()
    after = {name: await annotations_of(site, name) for name in before}
    assert after == before
    assert await site.events("NpuClaimUnreadable") == []
    assert await site.events("NpuProductChanged") == []


async def test_cards_that_change_under_a_running_agent_are_as_after_its_restart(
    site: Site, machine: FakeMachine, libdcmi: Path
) -> None:
    put_in(machine, 4, 5, 6, 7)
    site.start_agent()
    await site.until_allocatable(8)
    await site.serve("first", 2)
    await site.serve("second", 2)
    mounted = site.mounted()
    worker_of_old = libdcmi.with_suffix(".old")
    shutil.copy(libdcmi, worker_of_old)
    try:
        take_out(machine, 0, 5)
        machine.event(0, "40F84E00", 3, 1)
        await site.until_allocatable(6)
        worker_of_old.replace(libdcmi)
        put_in(machine, 0, unnamed=1)
        machine.say(1, 0, logic=12)
        await site.until_allocatable(7)
        await site.settle()
        running = stable(await status(site))
        await site.restart_agent(7)
        await site.settle()
    finally:
        worker_of_old.unlink(missing_ok=True)

    assert stable(await status(site)) == running
    assert site.mounted() == mounted


def stable(found: dict[str, Any]) -> dict[str, Any]:
    """A status without what only the past explains."""
    return {key: text for key, text in found.items() if key != "changes"}


HOLDS = (Hold(sequence=1, kubelet_ids=("Ascend910-0",), chips=(0,), slot="u", need=0),)


class EndingAgent(Agent):
    """An agent whose row changes, and whose plugin still answers an Allocate."""

    def __init__(self) -> None:
        self.is_ending = asyncio.Event()
        self.is_answered = asyncio.Event()
        self.is_closed = False
        #: names of the parts that have ended, in their order
        self.ended: list[str] = []
        self.row_changes = asyncio.Event()
        parts: dict[str, Any] = {
            "_driver_monitor": SimpleNamespace(
                changed_row="another row", begins_anew=self.row_changes, observe=None
            ),
            "_poller": SimpleNamespace(run=self._part("driver")),
            "_pods": SimpleNamespace(
                run=self._part("pods"), wait_until_known=nothing, is_listed=False
            ),
            "_fault_config_watch": SimpleNamespace(run=self._part("faults")),
            "_journal_writer": SimpleNamespace(
                run=self._part("journal"), entries=lambda: HOLDS
            ),
            "_reporter": SimpleNamespace(run=self._part("reporter")),
            "_foreign": SimpleNamespace(run=self._part("foreign pods")),
            "_lines": [
                SimpleNamespace(
                    product=WHOLE,
                    chip_monitor=SimpleNamespace(judge_again=lambda: None),
                    confirm_holds=nothing,
                    list_pods=nothing,
                    start_tasks=lambda _tasks: None,
                    serve=lambda tasks: tasks.create_task(self._serve()),
                )
            ],
        }
        for name, part in parts.items():
            setattr(self, name, part)

    def _part(self, name: str) -> Callable[..., Awaitable[None]]:
        async def run(*_: object) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                self.ended.append(name)

        return run

    async def _serve(self) -> None:
        self.row_changes.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.is_ending.set()
            await self.is_answered.wait()
            self.ended.append("plugin")

    async def _restore(self) -> None:
        pass

    async def _report(self, line: object) -> NoReturn:
        await self._part("report")()
        raise AssertionError(line)

    async def close(self) -> None:
        self.is_closed = True


async def nothing() -> None:
    pass


async def test_all_that_an_allocate_waits_for_runs_until_the_plugin_has_ended() -> None:
    agent = EndingAgent()
    running = asyncio.create_task(agent.run_until_row_changes())
    await agent.is_ending.wait()
    await asyncio.sleep(0.01)
    before = list(agent.ended)
    agent.is_answered.set()
    await running

    assert before == []
    assert agent.ended[0] == "plugin"
    others = ["driver", "faults", "foreign pods", "journal", "pods", "report"]
    others.append("reporter")
    assert sorted(agent.ended[1:]) == others


async def test_an_agent_that_begins_anew_hands_over_why_and_all_holds() -> None:
    agent = EndingAgent()
    agent.is_answered.set()

    assert await agent.run_until_row_changes() == ("another row", HOLDS)
    assert agent.is_closed


async def test_an_agent_that_is_stopped_while_it_begins_anew_stops() -> None:
    agent = EndingAgent()
    running = asyncio.create_task(agent.run_until_row_changes())
    await agent.is_ending.wait()

    running.cancel()
    await asyncio.sleep(0)
    agent.is_answered.set()

    with pytest.raises(asyncio.CancelledError):
        await running
    assert agent.is_closed
