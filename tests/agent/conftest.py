"""A libdcmi without hardware, compiled once per run; and what is kept byte for byte."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent / "devices" / "fake_dcmi"
GOLDEN = Path(__file__).parent / "golden"

Compare = Callable[[str, str], None]


@pytest.fixture
def compare(pytestconfig: pytest.Config) -> Compare:
    """Compares a text with a golden file of this name."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if pytestconfig.getoption("--update-golden"):
            path.write_text(text)
        assert text == path.read_text()

    return compare


def _compiled(target: Path, source: str, *options: str) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("the fake libdcmi needs a C compiler named cc; found none")
    subprocess.run(  # noqa: S603  # our own program
        [compiler, "-O1", *options, "-o", str(target), str(SOURCE / source)], check=True
    )
    return target


@pytest.fixture(scope="session")
def libdcmi(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fake library."""
    target = tmp_path_factory.mktemp("dcmi") / "libdcmi.so"
    return _compiled(target, "dcmi.c", "-shared", "-fPIC", "-pthread")


@pytest.fixture(scope="session")
def layout_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that prints where a compiler puts each field."""
    return _compiled(tmp_path_factory.mktemp("layout") / "layout", "layout.c")
