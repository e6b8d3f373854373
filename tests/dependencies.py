"""What comes with us into the image: is it pinned, may we ship it, is a hole known?

    python tests/dependencies.py [REPORT]

REPORT is what `pip-audit --format json` wrote; without it, or where it could look up
nothing, that is said. Exit code 1: a hole is known. Pins and licences are tests
(tests/test_dependencies.py), because they need no network.
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
OURS = "ascend-affinity"
#: Come with every virtual environment, and are in no image.
_OF_THE_VENV = {"pip", "setuptools", "wheel"}


def pinned() -> dict[str, str]:
    """{name: version} of constraints.txt."""
    lines = (ROOT / "constraints.txt").read_text(encoding="ascii").splitlines()
    pairs = (line.partition("==")[::2] for line in lines if "==" in line)
    return {_plain(name): version.partition(" ")[0] for name, version in pairs}


def installed() -> dict[str, str]:
    """{name: version} of what is installed besides us."""
    found = {_plain(each.name): each.version for each in metadata.distributions()}
    return {
        name: version
        for name, version in found.items()
        if name not in {OURS, *_OF_THE_VENV}
    }


def shipped() -> tuple[str, ...]:
    """The names of all that the programs need, directly or not."""
    found: set[str] = set()
    waiting = [OURS]
    while waiting:
        for name in _needs(waiting.pop()):
            if name not in found:
                found.add(name)
                waiting.append(name)
    return tuple(sorted(found))


def licence(name: str) -> str:
    """What a distribution says of its licence."""
    about = metadata.metadata(name)
    classifiers = [
        each.rpartition(" :: ")[2]
        for each in about.get_all("Classifier") or ()
        if each.startswith("License :: OSI")
    ]
    expression, field = (
        str(about[key]) if key in about else ""
        for key in ("License-Expression", "License")
    )
    return expression or next(iter(classifiers), field)


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What was looked up, and what was found."""

    looked_up: tuple[str, ...] = ()
    #: name version: id of a hole
    holes: tuple[str, ...] = ()


def read(report: Mapping[str, Any]) -> Audit:
    """Read what pip-audit wrote; what it skipped was not looked up."""
    rows = [each for each in report["dependencies"] if "skip_reason" not in each]
    return Audit(
        looked_up=tuple(each["name"] for each in rows),
        holes=tuple(
            f"{each['name']} {each['version']}: {hole['id']}"
            for each in rows
            for hole in each["vulns"]
        ),
    )


def told(audit: Audit, wanted: Sequence[str]) -> str:
    """What to tell a person, who must not take silence for safety."""
    if audit.holes:
        return "\n".join(("Known holes in what we ship:", *audit.holes))
    missing = len({*wanted} - {_plain(name) for name in audit.looked_up})
    if missing:
        return (
            f"NOT AUDITED: {missing} of the {len(wanted)} packages that we ship could "
            "not be looked up in a database of vulnerabilities; run `make audit` "
            "where pypi.org or its like answers."
        )
    return f"No hole is known in the {len(wanted)} packages that we ship."


def _needs(name: str) -> Iterator[str]:
    for needed in metadata.requires(name) or ():
        requirement, _, marker = needed.partition(";")
        match = re.match(r"[\w.-]+", requirement)
        # What is not installed is for another Python or another system.
        if match and "extra" not in marker and _plain(match[0]) in installed():
            yield _plain(match[0])


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def main(arguments: Sequence[str]) -> int:
    """Tell what is known, or print the requirements that are to be looked up."""
    wanted = shipped()
    if arguments == ["--list"]:
        sys.stdout.writelines(f"{name}=={pinned()[name]}\n" for name in wanted)
        return 0
    text = "".join(Path(each).read_text(encoding="utf-8") for each in arguments)
    audit = read(json.loads(text)) if text else Audit()
    sys.stdout.write(f"{told(audit, wanted)}\n")
    return 1 if audit.holes else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
