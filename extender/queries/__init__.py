"""Read-only endpoints under /v1: explain, plan (what-if), snapshot and OpenAPI.

Answers: why is a pod on its node or pending, and where would a job go?
Belongs here: the routes (`routes`), the answers as JSON (`explain`, `what_if`), the
state of a job (`job_state`), how many of its pods fit (`job_fit`), the cluster as a
document (`snapshot`), and the endpoints' OpenAPI description (`openapi`).
Does not belong here: endpoints that a scheduler calls, such as filter and bind;
anything that changes cache or cluster.
Open first: `routes`.
Decision records: none for this folder. `docs/adr/0006-chips-are-chosen-at-bind.md`
explains why a pod that needs no plan has no chips before its bind.
"""
