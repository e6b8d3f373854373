"""Decisions for one pod: filter nodes, reserve chips, and the claim that bind writes.

Begin with `node_filter` (filter and prioritize), then `reserve` (bind chooses chips)
and `claim` (annotations). `capacity` checks CPU and memory for jobs; `decisions`
remembers the last reason for each pod.

Belongs here: pure functions over the cache for a single pod. Does not belong here: jobs
of several pods (`planning`), protocols and I/O.

Decisions: `docs/adr/0006-chips-are-chosen-at-bind.md`,
`docs/adr/0023-what-bind-writes-of-a-whole-node.md`.
"""
