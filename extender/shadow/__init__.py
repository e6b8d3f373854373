"""Shadow mode: compares the cluster's scheduler with what the extender would decide.

Answers: of another scheduler's decisions, which would we have made, too?
Belongs here: the comparison of one decision (`compare`, pure but for its counts), and
its metrics, log and endpoint (`reporter`).
Does not belong here: the decisions themselves (`scheduling`, `planning`), any write to
the cluster.
Open first: `compare`.
Decision records: none; `docs/shadow.md` is its manual.
"""
