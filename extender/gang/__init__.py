"""Which pods are one job, and when its waiting binds are released.

Begin with `membership` (which job a pod is of), `size` (how many pods it has), `gangs`
(all jobs) and `permit` (when waiting binds are released, a state machine). `events` has
the events and effects of that machine; `waiting_binds` holds the calls.

Belongs here: pure rules about jobs of several pods. Does not belong here: where their
pods go (`planning`), and I/O.

Decisions: `docs/adr/0018-bind-is-the-gate-of-a-job.md`,
`docs/adr/0022-volcanos-allocation-is-tentative.md`.
"""
