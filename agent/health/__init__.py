"""Decide the health of each chip: from fault codes to levels to a condition over time.

Pure functions and state machines over readings of the driver. Here: the built-in levels
of fault codes (`codes`, `levels`), the cluster's own (`fault_config`, from the
ConfigMap `mindx-dl-fault-config`), upgrades of codes that return or stay (`rules`,
`escalation`), chips separated by name (`separation`), faults of switches (`switches`).
A new code goes into `codes` (the data); `levels` looks levels up.

Not here: reading the driver (`agent.devices`), watching the ConfigMap and calling these
machines in turn (`agent.monitor`), publishing the result (`agent.report`).

Open `conditions` first: its `step` turns a reading into a condition for each chip. Then
`judge`, which gives the faults of a reading their levels. No decision record covers
this package: each module names its source in MindCluster's device plugin.
"""
