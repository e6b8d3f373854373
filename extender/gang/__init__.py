"""Which pods form one job, and when the bind calls of a job may be carried out.

Begin with `membership` (which job a pod is of), `size` (how many pods a job has),
`gangs` (all jobs) and `permit` (when waiting bind calls go on, a state machine).
`events` has the events and effects of that state machine. `waiting_binds` holds the
bind calls that wait.

Belongs here: pure rules about jobs of several pods. Does not belong here: where their
pods go (`planning`), and I/O.

Decisions: `docs/adr/0018-bind-is-the-gate-of-a-job.md`,
`docs/adr/0022-volcanos-allocation-is-tentative.md`.
"""
