"""Preemption: victims on a node, and the cluster as if chips or nodes were free.

Belongs here: the choice of the pods to evict for a pod that does not fit, and the
relaxations that advice is made of.
Does not belong here: evictions and their order in time (`extender/preemption`), advice
for a pod or job (`explain`).

Open first: `victims.py`.
Decision record: 21 (preemption by eviction).
"""
