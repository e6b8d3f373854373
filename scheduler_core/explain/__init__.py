"""Explanations: why a pod or a job does not fit, and what would make it fit.

Belongs here: a node's explanation step by step, advice, and the measure of
fragmentation.
Does not belong here: reasons of a single node (`node/reasons.py`), texts of HTTP
answers (`extender/queries`).

Open first: `node.py`.
Decision record: 21 (preemption by eviction), for the victims beside an advice.
"""
