"""The central scheduling service: offers nodes for a pod, and chooses its chips.

Belongs here: the state of the cluster (`cache`), the way from its effects to the parts
that carry them out (`dispatch`), decisions on nodes and chips (`scheduling` for a pod;
`gang`, `planning` for whole jobs; `preemption`), all reasons to refuse (`refusals`),
the protocols of schedulers (`kube_scheduler`, `volcano`), traffic with the API server
(`apiserver`), listeners (`http`), read-only endpoints (`queries`, `shadow`) and leader
election (`election`).
Does not belong here: rules for choosing chips and ranking nodes (`scheduler_core`), the
client of the API server (`kube`).
Open first: `wiring`, which connects the parts, then `cache.cache`.
Decision records: 6 (chips are chosen at bind), 18 (bind waits for the whole job),
20 (a leadership term starts with an empty cache), 21 (preemption by eviction),
22 (Volcano's allocation is tentative).
"""
