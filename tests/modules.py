"""Measure modules and folders by the limits of house style.

Prints modules of more than 300 lines, the longest first: `make sizes`. Nothing fails
here. `tests/test_modules.py` holds the limits.
"""

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

#: Packages that ship. `kubelet_api` is generated.
PRODUCT = ("agent", "extender", "kube", "sandbox", "scheduler_core", "service")
#: Packages with the lower limit for folders.
STRICT = ("agent", "extender", "scheduler_core")
#: Unit: lines.
SMALL, LONG, LONGEST = 40, 300, 600
#: Modules in a folder, without `__init__.py`.
MOST, MOST_STRICT = 24, 16
#: Words of the sentence by which a small module gives its reason, as in "A module of
#: its own: both schedulers use it", or "stands in a module of its own because …".
REASON = re.compile(r"\bmodule\s+of\s+its\s+own\b\W+\w+", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """A file of Python, as far as limits ask."""

    #: below the root
    path: Path
    lines: int
    #: of a small one, in which it gives the reason
    docstring: str = ""


def read(root: Path, packages: Iterable[str]) -> Sequence[Module]:
    """Return the modules of some packages, by path."""
    return [
        _module(path, root)
        for package in packages
        for path in sorted((root / package).rglob("*.py"))
    ]


def _module(path: Path, root: Path) -> Module:
    text = path.read_text(encoding="utf-8")
    lines = len(text.splitlines())
    docstring = ast.get_docstring(ast.parse(text)) if lines < SMALL else ""
    return Module(path=path.relative_to(root), lines=lines, docstring=docstring or "")


def longer(modules: Iterable[Module], limit: int) -> Iterator[str]:
    """Yield modules of more lines than a limit, the longest first."""
    found = [module for module in modules if module.lines > limit]
    for module in sorted(found, key=lambda module: (-module.lines, module.path)):
        yield f"{module.path} has {module.lines} lines"


def unexplained(modules: Iterable[Module]) -> Iterator[str]:
    """Yield small modules whose docstring gives no reason for being one."""
    for module in modules:
        if module.path.name in ("__init__.py", "__main__.py"):
            continue
        if module.lines < SMALL and not REASON.search(module.docstring):
            lines = f"{module.path} has {module.lines} lines"
            yield f'{lines} and no sentence "A module of its own: …"'


def crowded(modules: Iterable[Module]) -> Iterator[str]:
    """Yield folders with more modules than their package allows."""
    count: Mapping[Path, int] = Counter(
        module.path.parent for module in modules if module.path.name != "__init__.py"
    )
    for folder, found in sorted(count.items()):
        limit = MOST_STRICT if folder.parts[0] in STRICT else MOST
        if found > limit:
            yield f"{folder} has {found} modules, expected at most {limit}"


def main() -> int:
    """Print long modules of product and tests."""
    for package in (*PRODUCT, "benchmarks", "tests"):
        for line in longer(read(ROOT, [package]), LONG):
            sys.stdout.write(f"{line}\n")
    sys.stdout.write(f"More than {LONG} lines; more than {LONGEST} fail.\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
