"""A cluster with simulated NPUs on one machine, from nothing to nothing.

API server, kubelets and scheduling loop live in this process; agents and the
extender are the real programs, as child processes. Everything that exists
because of a world lies in one directory and ends with it: no process, port or
file is left, whichever way the world ends.

The way through: `directories` says what lies where, `programs` owns the child
processes, `world` puts the cluster together and `readiness` waits until it is up.
"""

from sandbox.world.directories import CHIP_COUNT, RESOURCE, ControlPlane, Node, Premises
from sandbox.world.machines import Cards, Machine, MachineError
from sandbox.world.processes import EXTENDER, Crew, agent_of
from sandbox.world.programs import ProgramDiedError
from sandbox.world.readiness import NotReadyError
from sandbox.world.world import Commands, PortTakenError, World, running

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
    "running",
]
