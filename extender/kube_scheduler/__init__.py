"""The extender protocol of kube-scheduler: filter, prioritize, preempt, bind.

Begin with `verbs` (one method for each verb), then `binder` (reserves chips, writes
node and claim in one call, resolves unclear outcomes). `protocol` reads and writes
JSON.

Belongs here: answers to kube-scheduler. Does not belong here: the choice of nodes and
chips (`scheduling`, `planning`), Volcano's protocol (`volcano`), HTTP (`http`).

Decisions: `docs/adr/0006-chips-are-chosen-at-bind.md`,
`docs/adr/0018-bind-is-the-gate-of-a-job.md`.
"""
