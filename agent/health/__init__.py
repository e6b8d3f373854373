"""Decide from the driver's fault codes whether each chip is healthy.

Each fault code gets a level, and the levels of a chip's faults decide its condition.

Here: the built-in levels of fault codes (`codes`, `levels`). The cluster's own levels,
from the ConfigMap `mindx-dl-fault-config` (`fault_config`). Higher levels for faults
that return or stay (`rules`, `code_history`, `upgrades`, `escalation`). Chips that
people or a rule have taken out of service by name (`separation`). A new code is added
to `codes`, which has the data; `levels` finds the level of a code.

Not here: reading the driver (`agent.devices`), watching the ConfigMap and calling the
modules of this package in turn (`agent.monitor`), publishing the result
(`agent.report`).

Open `conditions` first: its `step` turns a reading into a condition for each chip. Then
`judge`, which gives the faults of a reading their levels. Record 33 in `docs/adr` says
how fault events are counted. Most modules name their source in MindCluster's device
plugin.
"""
