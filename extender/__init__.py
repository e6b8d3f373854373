"""The central scheduling service: which node a pod gets, and which of its chips.

Belongs here: what is known of the cluster (`cache`), the pure decisions made on it
(`scheduling` for a pod; `gang`, `planning` for whole jobs; `preemption`), the protocols
of schedulers (`kube_scheduler`, `volcano`), what people read (`queries`, `shadow`), and
who may decide (`election`).
Does not belong here: rules of chips and node order (`scheduler_core`), anything that
speaks to the API server (`kube`).
"""
