from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import ClassVar

import pytest

from service.settings import (
    REQUIRED,
    SettingsError,
    at_least,
    load,
    one_of,
    option,
    usage,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """program: it is for tests."""

    PREFIX: ClassVar[str] = "ASCEND_TEST"

    node_name: str = option(REQUIRED, "which node this is", env="NODE_NAME")
    state_dir: Path = option(Path("/var/lib/x"), "where state is kept")
    file: Path | None = option(None, "a file, if any")
    heartbeat_s: float = option(300.0, "seconds between beats", check=at_least(1))
    port_count: int = option(2, "how many ports")
    self_maintain: bool = option(default=True, text="who counts")
    log_level: str = option("info", "how much", check=one_of("debug", "info"))


def loaded(
    argv: Sequence[str] = (), environ: Mapping[str, str] | None = None
) -> Settings:
    return load(Settings, argv, {"NODE_NAME": "n1"} if environ is None else environ)


def problems(
    argv: Sequence[str] = (), environ: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as caught:
        loaded(argv, environ)
    assert str(caught.value) == "\n".join(caught.value.problems)
    return caught.value.problems


UNKNOWN = "command line: expected a known setting, found "
DEFAULTS = Settings(
    node_name="n1",
    state_dir=Path("/var/lib/x"),
    file=None,
    heartbeat_s=300.0,
    port_count=2,
    self_maintain=True,
    log_level="info",
)


def test_what_nobody_says_has_its_default() -> None:
    assert loaded() == DEFAULTS


def test_all_spellings_of_a_flag() -> None:
    argv = [
        *("--node-name", "n2"),
        "--state-dir=/s",
        *("-heartbeat-s", "2.5"),
        "-port-count=-3",
        *("--file", "-"),
        "--self-maintain=false",
        *("--log-level", "debug"),
    ]

    assert loaded(argv) == Settings(
        node_name="n2",
        state_dir=Path("/s"),
        file=Path("-"),
        heartbeat_s=2.5,
        port_count=-3,
        self_maintain=False,
        log_level="debug",
    )


@pytest.mark.parametrize(
    ("argv", "value"),
    [
        (["--self-maintain"], True),
        (["--self-maintain", "--node-name", "n1"], True),
        (["--self-maintain", "FALSE"], False),
        (["--self-maintain", "off"], False),
        (["--self-maintain=1"], True),
    ],
)
def test_a_switch_needs_no_value(argv: list[str], *, value: bool) -> None:
    assert loaded(argv).self_maintain is value


def test_flag_before_environment_before_file_before_default(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("node-name: file\nport-count: 7\nheartbeat-s: 8\n")
    environ = {
        "NODE_NAME": "environment",
        "ASCEND_TEST_PORT_COUNT": "9",
        "ASCEND_TEST_CONFIG": str(file),
    }

    found = loaded(["--node-name", "flag"], environ)

    assert (found.node_name, found.port_count) == ("flag", 9)
    assert (found.heartbeat_s, found.log_level) == (8.0, "info")


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("port-count: many\nnode-nam: n1\nstate-dir: [a]\n")
    argv = [
        "--heartbeat-s=0.5",
        "--log-leve",
        "stray",
        f"--config={file}",
        "--file",
    ]

    found = problems(argv, {"ASCEND_TEST_SELF_MAINTAIN": "eh"})

    assert found == (
        UNKNOWN + "'--log-leve'; did you mean log-level?",
        UNKNOWN + "'stray'",
        "--file: expected a value, found nothing",
        f"{file}: expected a known setting, found 'node-nam'; did you mean node-name?",
        "--node-name: expected a value, found none anywhere",
        f"{file}: state-dir: expected one value, found ['a']",
        "--heartbeat-s: expected 1 or more, found '0.5'",
        f"{file}: port-count: expected a whole number, found 'many'",
        "environment ASCEND_TEST_SELF_MAINTAIN: expected true or false, found 'eh'",
    )


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        (["--heartbeat-s", "nan"], "--heartbeat-s: expected a number, found 'nan'"),
        (["--heartbeat-s", "inf"], "--heartbeat-s: expected a number, found 'inf'"),
        (["--heartbeat-s", "1s"], "--heartbeat-s: expected a number, found '1s'"),
        (["--port-count", "1.5"], "--port-count: expected a whole number, found '1.5'"),
        (["--port-count", "--1"], "--port-count: expected a value, found nothing"),
        (["--port-count=--1"], "--port-count: expected a whole number, found '--1'"),
        (["--port-count="], "--port-count: expected a whole number, found ''"),
        (["--state-dir="], "--state-dir: expected a path, found ''"),
        (
            ["--log-level=loud"],
            "--log-level: expected one of debug, info, found 'loud'",
        ),
    ],
)
def test_a_wrong_value_is_shown_with_what_was_expected(
    argv: list[str], problem: str
) -> None:
    assert problem in problems(argv)


def test_a_file_that_is_absent(tmp_path: Path) -> None:
    path = tmp_path / "absent.yaml"

    assert problems(["--config", str(path)]) == (
        f"--config: expected a readable file, found No such file or directory: {path}",
    )


@pytest.mark.parametrize(
    ("content", "beginning"),
    [
        ("a: [", "expected YAML, found: "),
        ("- a\n- b\n", "expected `name: value` lines, found ['a', 'b']"),
        ("\x00", "expected YAML, found: "),
    ],
)
def test_a_file_that_is_none(tmp_path: Path, content: str, beginning: str) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text(content)

    (problem,) = problems(["--config", str(path)])

    assert problem.startswith(f"{path}: {beginning}")


def test_an_empty_file_says_nothing(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.touch()

    assert loaded(["--config", str(path)]) == DEFAULTS


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_is_printed_and_ends_well(
    capsys: pytest.CaptureFixture[str], flag: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        loaded([flag])

    assert caught.value.code == 0
    assert capsys.readouterr().out == usage(Settings) + "\n"


def test_the_help_names_flag_environment_default_and_meaning() -> None:
    lines = usage(Settings).splitlines()

    assert lines[:9] == [
        "program: it is for tests.",
        "",
        "usage: program [settings]",
        "",
        "Settings: flag, environment, [default]",
        "",
        "  --node-name  NODE_NAME  [required]",
        "      which node this is",
        "  --state-dir  ASCEND_TEST_STATE_DIR  [/var/lib/x]",
    ]


def test_the_help_is_as_wide_as_a_terminal() -> None:
    assert max(map(len, usage(Settings).splitlines())) <= 80


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        loaded(["--version"])

    assert caught.value.code == 0
    assert capsys.readouterr().out == f"program {metadata.version('ascend-affinity')}\n"
