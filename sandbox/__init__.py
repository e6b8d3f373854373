"""An embedded cluster: what the demo plays on, and what tests run in.

What belongs here: an API server, kubelets and a scheduling loop in memory
(`apiserver`, `kubelet`, `scheduler`), a whole cluster of them with our real
programs (`world`), and the story told on it (`demo`). What does not: any rule of
the product. Agents and the extender run as programs, never as imports.
"""

import os

# Else gRPC tells on stderr that a kubelet was stopped ("Got goaway"), in between
# the lines of the story. It reads this once, when it is first imported.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
