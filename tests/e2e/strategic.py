"""What Kubernetes' own library makes of strategic merge patches, for a golden file.

`python -m tests.e2e.strategic` writes it anew; it needs Go and the network, or a
filled module cache.
"""

import json
import subprocess
from pathlib import Path

from tests.sandbox.apiserver.patches import cases

_MODULE = Path(__file__).with_name("controlplane")


def main() -> None:
    """Write the golden file."""
    asked = [*cases.WRITTEN, *cases.by_chance(seed=1, count=60)]
    done = subprocess.run(
        ["go", "run", "./strategicpatch"],  # noqa: S607  # whichever Go there is
        cwd=_MODULE,
        input=json.dumps(asked),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    lines = [json.dumps(case, sort_keys=True) for case in json.loads(done.stdout)]
    cases.GOLDEN.parent.mkdir(exist_ok=True)
    cases.GOLDEN.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
