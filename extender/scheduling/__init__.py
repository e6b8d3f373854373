"""Decisions for one pod: filter nodes, choose chips, and render the claim for bind.

Begin with `node_filter` (filter and prioritize), then `reserve` (chooses chips at bind)
and `claim` (annotations that bind writes). `capacity` finds how many pods a node's CPU
and memory allow. `decisions` stores the last decision for each pod.

Belongs here: pure functions that read the cache and decide for a single pod or node.
Does not belong here: plans for jobs of several pods (`planning`), protocols and I/O.

Decisions: `docs/adr/0006-chips-are-chosen-at-bind.md`,
`docs/adr/0023-what-bind-writes-of-a-whole-node.md`.
"""
