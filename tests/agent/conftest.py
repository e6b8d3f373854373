"""What the agent's tests share: a node, a libdcmi, and texts kept byte for byte."""

import shutil
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.agent.site import Site, running_site
from tests.agent.two_lines import WORLDS

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


def pytest_configure(config: pytest.Config) -> None:
    """Marks: what the node of a test differs in."""
    config.addinivalue_line("markers", "site(*more, **kinds): as for `running_site`")


@pytest.fixture
async def site(request: pytest.FixtureRequest) -> AsyncIterator[Site]:
    """A node with an agent; the mark `site` says what it differs in.

    Its parameter is what stands beside the chips: see `tests.agent.two_lines`.
    """
    mark = request.node.get_closest_marker("site") or pytest.mark.site().mark
    beside = getattr(request, "param", "")
    async with running_site(*mark.args, beside=beside, **mark.kwargs) as site:
        yield site


@pytest.fixture(params=[False, True], ids=WORLDS)
def is_second(request: pytest.FixtureRequest) -> bool:
    """Whether the line of a test is the second of its node: `tests.agent.two_lines`."""
    return bool(request.param)


@pytest.fixture(scope="session")
def libdcmi(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fake library."""
    return _library(tmp_path_factory.mktemp("dcmi"))


@pytest.fixture
def build_libdcmi(tmp_path: Path) -> Callable[..., Path]:
    """Make a fake library of another kind: with more options, and perhaps source."""

    def build(*options: str, source: str = "") -> Path:
        more = tmp_path / "more.c"
        more.write_text(source)
        return _library(tmp_path, *options, str(more))

    return build


def _library(folder: Path, *options: str) -> Path:
    target = folder / "libdcmi.so"
    return _compiled(target, "dcmi.c", "-shared", "-fPIC", "-pthread", *options)


@pytest.fixture(scope="session")
def layout_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that prints where a compiler puts each field."""
    return _compiled(tmp_path_factory.mktemp("layout") / "layout", "layout.c")
