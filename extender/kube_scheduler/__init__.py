"""The extender protocol of kube-scheduler: filter, prioritize, preempt, bind.

Begin with `verbs`, which has one method for each verb. Then read `binder`: it reserves
chips, and binds with node and claim in one call. `sent_binds` sends that call, and
finds out the outcome of unclear binds. `protocol` decodes requests and encodes answers.

Belongs here: answers to kube-scheduler. Does not belong here: the choice of nodes and
chips (`scheduling`, `planning`), Volcano's protocol (`volcano`), HTTP (`http`).

Decisions: `docs/adr/0006-chips-are-chosen-at-bind.md`,
`docs/adr/0018-bind-is-the-gate-of-a-job.md`.
"""
