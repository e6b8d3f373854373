"""Plans of whole jobs: candidate nodes, topology, reservations of all members.

Begin with `planner` (filter calls, waiting binds and effects of jobs), then `plan` (a
reservation for each member, or why not). `candidates` remembers which nodes the
scheduler offered, `topology` reads leaf switches and SuperPoDs, and `reservation`
reserves nodes for large jobs.

Belongs here: decisions for all pods of a job together. Does not belong here: the state
of a job (`gang`), decisions for one pod (`scheduling`), eviction (`preemption`).

Decisions: `docs/adr/0006-chips-are-chosen-at-bind.md`,
`docs/adr/0018-bind-is-the-gate-of-a-job.md`,
`docs/adr/0026-a-node-is-there-once-for-each-resource.md`.
"""
