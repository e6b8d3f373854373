"""Reads what is true in the simulated cluster, checks it, and prints tables of it.

Begin with `facts` (what API server, kubelets and plugins say) and `checks` (pure
functions that return what is wrong with facts). `observer` collects facts of a running
cluster.

Decision: `docs/adr/0010-a-sandbox-of-our-own.md`.
"""
