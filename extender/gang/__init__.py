"""Which pods form one job, and when the bind calls of a job may be carried out.

Begin with `membership` (which job a pod is of), `size` (how many pods a job has),
`gang` (a job, `gangs` has all of them), `job_plan`, and `permit` (a state machine:
when waiting bind calls go on). `learning` learns from plans that were not followed.
`events` has the events and effects of `permit`. `waiting_binds` holds the bind calls
that wait.

Belongs here: rules about jobs of several pods, without I/O. Does not belong here: the
choice of nodes and chips for the pods of a job (`planning`).

Decisions: `docs/adr/0018-bind-is-the-gate-of-a-job.md`,
`docs/adr/0022-volcanos-allocation-is-tentative.md`.
"""
