"""Read the state of a node's Ascend chips, from Huawei's library or from a YAML file.

A reading is the state of all chips at one time, as a value of the module `reading`.
`driver` has the interface of the two drivers: `dcmi` reads real chips, and `simulated`
reads chips described in a file. `poller` reads the driver that `agent.wiring`
chooses, with a deadline. `cgroups` reads from the kernel which pod a process belongs
to, and `processes` its name.

Not here: the health of a chip (`agent.health`), and which pod has which chip
(`agent.claims`).

Open `reading` first, then `driver`. Decision record in docs/adr: 17 (the driver's
library has a process of its own).
"""
