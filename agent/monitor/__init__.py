"""Watch a node's chips and the fault configuration; put changes into the ledgers.

Here: the monitors of the driver's reports, of the processes that still use chips after
their pod has ended, and of the cluster's fault configuration. Not here: reading a
driver (`agent.devices`), the meaning of a fault (`agent.health`, pure), pods
(`agent.pods`).

Open `driver` first: it receives each result of reading the driver, and passes each
product line's part to that line's monitor. `chips` then judges the chips of one product
line, `parts` their parts by them. `fault_config` follows the ConfigMap
`mindx-dl-fault-config`. `pod_processes` finds the processes that ended pods have left
behind. `stray_processes` tells which processes keep a chip from being free.

Decision records in docs/adr: 17 (the driver's library has a process of its own), 27
(one agent serves all product lines of its node), 30 (a process that cannot be read
keeps what may be its pod's), 45 (a kind of part is a row).
"""
