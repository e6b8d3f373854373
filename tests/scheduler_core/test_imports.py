"""The core needs an interpreter, and nothing that would have to be installed."""

import sys
from pathlib import Path

from tests.support.programs import run_python

_ROOT = Path(__file__).parents[2]
_IMPORT_ALL = """
import importlib, pkgutil, sys
sys.path.insert(0, sys.argv[1])
import scheduler_core
for module in pkgutil.walk_packages(scheduler_core.__path__, "scheduler_core."):
    importlib.import_module(module.name)
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""


def test_all_of_the_core_imports_the_standard_library_only() -> None:
    """Without site-packages, and without the modules of this environment."""
    done = run_python("-I", "-S", "-c", _IMPORT_ALL, str(_ROOT))

    others = set(done.stdout.split()) - sys.stdlib_module_names
    assert others == {"scheduler_core", "__main__"}
