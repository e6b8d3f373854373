"""Plans of whole jobs, with their candidate nodes, topology and reservations.

Begin with `planner`: it answers filter for pods of jobs, and reserves their plans. Then
read `plan`: it returns a reservation for each unbound member, or a refusal; it reads
the job by `plan_input` and chooses nodes and chips by `placing`. `permits` holds the
bind calls of a job, and `job_calls` asks the API server about jobs. `candidates`
remembers the nodes that the scheduler offered to each job, `offered_nodes` gives them
to a plan. `topology` reads leaf switches and SuperPoDs. `reservation` chooses nodes for
large jobs.

Belongs here: decisions for all pods of a job together. Does not belong here: the state
of a job (`gang`), decisions for one pod (`scheduling`), eviction (`preemption`).

Decisions: `docs/adr/0006-chips-are-chosen-at-bind.md`,
`docs/adr/0018-bind-is-the-gate-of-a-job.md`,
`docs/adr/0026-a-node-is-there-once-for-each-resource.md`.
"""
