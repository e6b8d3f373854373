"""Keys of structured log lines that several modules of the agent share.

A module of its own: it imports no other module of the agent, so that all can import it.
"""

from typing import Final

NODE: Final = "node"
CHIP: Final = "chip"
CHIPS: Final = "chips"
CLAIM: Final = "claim"
CONDITION: Final = "condition"
CONTAINER: Final = "container"
COUNT: Final = "count"
DEVICES: Final = "devices"
DURATION: Final = "duration_s"
ERROR: Final = "error"
NAMESPACE: Final = "namespace"
PAUSE: Final = "pause_s"
POD: Final = "pod"
POD_UID: Final = "pod_uid"
REASON: Final = "reason"
SEQUENCE: Final = "sequence"
VERSION: Final = "version"
WRITER: Final = "writer"
