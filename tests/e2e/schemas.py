"""Which of Kubernetes' schemas the sandbox keeps, taken from a real API server.

`python -m tests.e2e.schemas FOLDER` writes `sandbox/apiserver/openapi/schemas.json`
anew; FOLDER holds what the server answers at `/openapi/v3/…`, a file for each group.
The files in `api/openapi-spec/v3` of Kubernetes' source are named alike, but lack the
values that a field may have. A contract test compares what was kept with what an API
server serves.
"""

import json
import sys
from pathlib import Path
from typing import Any

from sandbox.apiserver.openapi import types
from service.openapi import with_referred

_DOCUMENTS = (
    "api__v1_openapi.json",
    "apis__apps__v1_openapi.json",
    "apis__batch__v1_openapi.json",
    "apis__coordination.k8s.io__v1_openapi.json",
    "apis__policy__v1_openapi.json",
)
#: What the sandbox serves, and what bodies and answers consist of besides.
_ROOTS = (
    "io.k8s.api.apps.v1.DaemonSet",
    "io.k8s.api.apps.v1.Deployment",
    "io.k8s.api.batch.v1.Job",
    "io.k8s.api.coordination.v1.Lease",
    "io.k8s.api.core.v1.Binding",
    "io.k8s.api.core.v1.ConfigMap",
    "io.k8s.api.core.v1.Event",
    "io.k8s.api.core.v1.Namespace",
    "io.k8s.api.core.v1.Node",
    "io.k8s.api.core.v1.Pod",
    "io.k8s.api.core.v1.ServiceAccount",
    "io.k8s.api.policy.v1.Eviction",
    "io.k8s.api.policy.v1.PodDisruptionBudget",
)


def main() -> None:
    """Write the file."""
    folder = Path(sys.argv[1])
    known: dict[str, Any] = {}
    for name in reversed(_DOCUMENTS):  # the core group's word is the last
        document = json.loads((folder / name).read_text(encoding="utf-8"))
        known |= document["components"]["schemas"]
    kept = with_referred(_ROOTS, known)
    lines = [f"{json.dumps(name)}: {_text(schema)}" for name, schema in kept.items()]
    types.FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def _text(schema: Any) -> str:
    return json.dumps(schema, separators=(",", ":"), sort_keys=True, ensure_ascii=False)


if __name__ == "__main__":
    main()
