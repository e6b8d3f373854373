"""Go modules of the end-to-end tests agree where they use the same modules."""

import re
from pathlib import Path

from tests.e2e.places import REPOSITORY

FOLDER = REPOSITORY / "tests" / "e2e"


def versions(path: Path) -> dict[str, str]:
    """{module: version that is built}."""
    text = path.read_text(encoding="utf-8")
    required = dict(re.findall(r"(?m)^\s*(?:require )?(\S+\.\S+/\S+) (v\S+)", text))
    replaced = dict(re.findall(r"(?m)^\s*(?:replace )?(\S+) => \S+ (v\S+)", text))
    return required | replaced


def test_controllers_use_the_control_planes_modules() -> None:
    """What both need is compiled once then: minutes of each run."""
    theirs = versions(FOLDER / "controlplane" / "go.mod")
    ours = versions(FOLDER / "controllers" / "go.mod")
    common = ours.keys() & theirs.keys()

    assert len(common) > 50
    assert {name: ours[name] for name in common} == {
        name: theirs[name] for name in common
    }
