"""Read the chips of a node, through one of several drivers.

Here: the values of a reading (`reading`), the contract of every driver (`driver`), and
the drivers themselves (`dcmi`, `simulated`). Also the choice between them (`detect`),
and the task that calls the chosen driver with a deadline (`poller`). Also what the
kernel shows of processes (`processes`).

Not here: the health of a chip (`agent.health`), and which pod has which chip
(`agent.claims`).

Open `reading` first, then `driver`. Decision record in docs/adr: 17 (the driver's
library has a process of its own).
"""
