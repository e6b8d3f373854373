"""A cluster with simulated NPUs on one machine, from its directory to its last process.

API server, kubelets and scheduling loop live in this process. Agents and the extender
are the real programs, as child processes. Everything that a world creates lies in one
directory and ends with it: no process, port or file is left, however the world ends.

Begin with `world`, which puts the cluster together. `directories` has its paths,
`programs` owns the child processes, kills and freezes them, and `readiness` waits until
all is up.

Decision: `docs/adr/0010-a-sandbox-of-our-own.md`.
"""

from sandbox.world.directories import CHIP_COUNT, RESOURCE, ControlPlane, Node, Premises
from sandbox.world.machines import Cards, Machine, MachineError
from sandbox.world.programs import EXTENDER, Crew, ProgramDiedError, agent_of
from sandbox.world.readiness import NotReadyError
from sandbox.world.world import (
    Commands,
    PortTakenError,
    World,
    rescheduling,
    running,
)

__all__ = [
    "CHIP_COUNT",
    "EXTENDER",
    "RESOURCE",
    "Cards",
    "Commands",
    "ControlPlane",
    "Crew",
    "Machine",
    "MachineError",
    "Node",
    "NotReadyError",
    "PortTakenError",
    "Premises",
    "ProgramDiedError",
    "World",
    "agent_of",
    "rescheduling",
    "running",
]
