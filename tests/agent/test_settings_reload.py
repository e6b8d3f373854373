"""Settings whose file is edited while the agent runs."""

import asyncio
from pathlib import Path

import pytest

from agent.settings import Settings
from agent.settings_reload import PAUSE_S, SettingsReload, has_file
from service.settings import SettingsError, load


def told(*argv: str) -> Settings:
    return load(Settings, argv, {"NODE_NAME": "n1"})


class World:
    def __init__(self) -> None:
        self.levels: list[str] = []
        self.reload = SettingsReload(told(), told, set_level=self.levels.append)


@pytest.fixture
def world() -> World:
    return World()


def test_how_much_is_logged_follows_at_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    for level in ("debug", "debug", "info"):
        world.reload.apply(told("--log-level", level))

    assert world.levels == ["debug", "info"]
    assert caplog.records == []


def test_of_all_else_it_is_said_once_that_a_restart_is_needed(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    changed = told("--recover-s", "3", "--listen", ":1")
    world.reload.apply(changed)
    world.reload.apply(changed)
    world.reload.apply(told())  # taken back
    world.reload.apply(changed)

    assert world.levels == []
    assert [(each.message, each.__dict__["reason"]) for each in caplog.records] == 2 * [
        ("restart needed for changed settings", "recover-s, listen")
    ]


def test_what_is_wrong_changes_nothing_and_is_said_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = SettingsError(["file: expected a number, found 'x'"])
    world.reload.apply(wrong)
    world.reload.apply(wrong)

    assert world.levels == []
    assert [(each.message, each.__dict__["reason"]) for each in caplog.records] == [
        ("changed settings are wrong", "file: expected a number, found 'x'")
    ]


async def test_the_file_is_looked_at_again_and_again(tmp_path: Path) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text("log-level: info\n")  # a small file, in a test
    looks = asyncio.Queue[str]()

    def again() -> Settings:
        file.write_text("log-level: debug\n")
        return told("--config", str(file))

    following = SettingsReload(
        told("--config", str(file)), again, set_level=looks.put_nowait, pause_s=0.01
    )
    task = asyncio.create_task(following.run())
    async with asyncio.timeout(60):
        level = await looks.get()
    task.cancel()

    assert (level, PAUSE_S) == ("debug", 10.0)


@pytest.mark.parametrize(
    ("argv", "environ", "found"),
    [
        (("--config", "x"), {}, True),
        (("--config=x",), {}, True),
        ((), {"ASCEND_AGENT_CONFIG": "x"}, True),
        (("--node-name", "n"), {}, False),
    ],
)
def test_only_a_file_can_change(
    argv: tuple[str, ...], environ: dict[str, str], *, found: bool
) -> None:
    assert has_file(argv, environ) is found
