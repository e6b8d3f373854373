"""Shadow mode: compares another scheduler's decisions with those of the extender.

Answers: which decisions of another scheduler would the extender have made too?
Belongs here: the comparison of one decision (`compare`, pure but for its counts), and
its metrics, log and endpoint (`reporter`).
Does not belong here: the decisions themselves (`scheduling`, `planning`), any write to
the cluster.
Open first: `compare`.
Decision records: none; `docs/shadow.md` is its manual.
"""
