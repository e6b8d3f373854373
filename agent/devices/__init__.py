"""Read the state of a node's Ascend chips, from Huawei's library or from a YAML file.

Here: the values of a reading (`reading`), and the interface of every driver (`driver`).
Also the two drivers: real chips (`dcmi`) and chips described in a file (`simulated`).
`detect` chooses one of them, and `poller` calls it with a deadline. `processes` reads
from the kernel which processes run.

Not here: the health of a chip (`agent.health`), and which pod has which chip
(`agent.claims`).

Open `reading` first, then `driver`. Decision record in docs/adr: 17 (the driver's
library has a process of its own).
"""
