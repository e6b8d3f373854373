"""Watch the hardware and its surroundings, and pass changes on to the ledgers.

Here: the objects that hold the driver's last report, the processes on chips without a
pod, and the cluster's fault configuration. Each object compares a new value with the
previous value. It then tells the ledger, the announcer or a callback what changed. Not
here: reading a driver (`agent.devices`), the meaning of a fault (`agent.health`, pure),
pods (`agent.pods`).

Open `driver` first: it receives each result of reading the driver, and passes each
product line's part to that line's monitor. `chips` then judges the chips of one product
line. `fault_config` follows the ConfigMap `mindx-dl-fault-config`. `stray_processes`
finds the processes that keep a chip from being free.

Decision records in docs/adr: 17 (the driver's library has a process of its own), 27
(one agent serves all product lines of its node).
"""
