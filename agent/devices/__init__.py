"""Read the hardware of a node, through one of several drivers.

Here: the values of a reading (`reading`), the contract of every driver (`driver`), the
drivers themselves (`dcmi`, `simulated`), the choice between them (`detect`), and the
task that asks the driver in turn without waiting too long (`poller`). Also processes,
which the kernel is asked for (`processes`).

Not here: the health of a chip (`agent.health`), and which pod has which chip
(`agent.claims`).

Open `reading` first, then `driver`. Decision record in docs/adr: 17 (the driver's
library has a process of its own).
"""
