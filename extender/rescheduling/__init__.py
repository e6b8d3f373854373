"""Which pods of a job go because a chip of one of them broke, and where to.

Begin with `rescheduler`: it follows faults and jobs, and carries effects out. Then read
`machine` (the way of a fault through time) with its parts `fault_jobs`, `stages` and
`departures`, and `judge` (which pods go, as things are). `ends` says what an eviction
does to a job, `record` is what outlives the extender. `mover` ends pods and asks what
becomes of them, `returns` gives their successors the places that are kept.

Belongs here: the assessment of a job with fault pods, and what its pods are told.
Does not belong here: levels of faults and the choice of a rung (`scheduler_core`), what
a job says about faults (`gang`), plans (`planning`).

Decision records: 43 (a job with a fault is looked at, and goes whole), 44 (a move keeps
its places for the job).
"""
