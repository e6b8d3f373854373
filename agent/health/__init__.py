"""Decide the health of each chip: from fault codes to levels to a condition over time.

Pure functions and state machines over readings of the driver. Here: the built-in levels
of fault codes (`codes`, `levels`). The cluster's own levels, from the ConfigMap
`mindx-dl-fault-config` (`fault_config`). Higher levels for faults that return or stay
(`rules`, `escalation`). Chips separated by name (`separation`). Faults of switches
(`switches`). A new code is added to `codes`, which has the data; `levels` finds the
level of a code.

Not here: reading the driver (`agent.devices`), watching the ConfigMap and calling these
machines in turn (`agent.monitor`), publishing the result (`agent.report`).

Open `conditions` first: its `step` turns a reading into a condition for each chip. Then
`judge`, which gives the faults of a reading their levels. No decision record covers
this package: each module names its source in MindCluster's device plugin.
"""
