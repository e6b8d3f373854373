"""Watch the hardware and its surroundings, and pass changes on to the ledgers.

Here: the objects that hold what the driver last reported, the processes on chips
without a pod, and the cluster's fault configuration. Each compares a new value with the
one before it, then tells the ledger, the announcer or a callback what changed. Not
here: reading a driver (`agent.devices`), the meaning of a fault (`agent.health`, pure),
pods (`agent.pods`).

Open `driver` first: it receives each result of reading the driver and gives each
product line its part. `chips` then judges the chips of one product line. `fault_config`
follows the ConfigMap `mindx-dl-fault-config`, `stray_processes` the processes that keep
a chip from being free.

Decision records in docs/adr: 17 (the driver's library has a process of its own), 27
(one agent serves all product lines of its node).
"""
