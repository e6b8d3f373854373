"""An embedded cluster with simulated NPUs, for the demo, for trials and for tests.

Belongs here: an API server, kubelets, a scheduling loop and a Job controller in memory
(`apiserver`, `kubelet`, `scheduler`, `jobs`), a cluster made of them and of our real
programs (`world`), faults (`faults`), scenarios from files (`scenario`), and the story
of `make demo` (`demo`). Does not belong here: rules of the product. Agents and the
extender run as programs, never as imports.

Decision: `docs/adr/0010-a-sandbox-of-our-own.md`.
"""

import os

# Else gRPC tells on stderr that a kubelet was stopped ("Got goaway"), in between
# the lines of the story. It reads this once, when it is first imported.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
