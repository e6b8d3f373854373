"""Publish a node's chips in its ConfigMap, and in labels and annotations of its Node.

The ConfigMap is `mindx-dl-deviceinfo-<node>`.

Here: the node report as a value (`content`, pure), the state machine that decides when
it is written (`schedule`, pure), and the writer (`reporter`). Not here: annotations of
pods (`agent.pods.annotator`), wire formats of the ConfigMap
(`scheduler_core.wire.deviceinfo`), health of chips (`agent.health`).

Open `content` first: `NodeReport` is everything that both objects say about the chips.
`schedule` says when a write is due, and when to leave the ConfigMap to another program.
`owner` finds the DaemonSet that owns the ConfigMap.

Decision records in docs/adr: 12 (another device plugin is left alone), 26 (each product
line of a node is a resource), 27 (one agent for all product lines), 31 (a pod's
configuration waits for the address that `reporter` reads from the Node).
"""
