"""The central scheduling service: which node a pod gets, and which of its chips.

Belongs here: what is known of the cluster (`cache`), the pure decisions made on it
(`verdicts`, `choice`, `storms`; of whole jobs `jobs`, `planning`, `gate`, `reserving`,
which `planner` carries out), the one call that carries a decision out (`binding`),
and what kube-scheduler and people read (`protocol`, `explain`, `server`).
Does not belong here: rules of chips and node order (`scheduler_core`), anything that
speaks to the API server (`kube`).
"""
