"""The extender protocol of Volcano: predicates, votes on jobs and victims, allocations.

Begin with `verbs` (the handlers of the verbs), then `sessions` (refusals and plans
within one session of Volcano). `claims` writes claims on pods and removes them.
`podgroup_conditions` shows on a PodGroup why the PodGroup waits. `victims` chooses
among the pods that Volcano offers to evict, and `protocol` reads and writes JSON.

Belongs here: all that differs from kube-scheduler. Does not belong here: the choice of
nodes and chips (`scheduling`, `planning`), and evictions by the extender itself
(`preemption`).

Decisions: `docs/adr/0022-volcanos-allocation-is-tentative.md`,
`docs/adr/0028-a-condition-behind-volcanos-own.md`.
"""
